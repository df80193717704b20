"""The order of a table's records by age, kept as they come and go."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

Place = tuple[float, str]
"""When a record was made, and its id."""


class ByAge:
    """Ids of records, oldest first. Finding a place costs the logarithm of their number; a new one is the last."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._made: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(self, record_id: str, record: object) -> None:
        """Takes a record in, or leaves it where it is; one that does not say when it was made has no place."""
        made_at: float | None = getattr(record, "created_at", None)
        known = self._made.get(record_id)
        if made_at is None or known == made_at:
            return
        if known is not None:
            self.drop(record_id)
        self._made[record_id] = made_at
        insort(self._places, (made_at, record_id))

    def drop(self, record_id: str) -> None:
        """Forgets a record, if it is there."""
        made_at = self._made.pop(record_id, None)
        if made_at is not None:
            del self._places[bisect_left(self._places, (made_at, record_id))]

    def before(self, place: Place | None) -> Iterator[str]:
        """Those made before a place, all for None; newest first. None may come or go meanwhile."""
        at = len(self._places) if place is None else bisect_left(self._places, place)
        for index in range(at - 1, -1, -1):
            yield self._places[index][1]

    def after(self, place: Place | None) -> Iterator[str]:
        """Those made after a place, all for None; oldest first. None may come or go meanwhile."""
        for index in range(0 if place is None else bisect_right(self._places, place), len(self._places)):
            yield self._places[index][1]
