"""An index of a table's records by creation time, for pages."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

Place = tuple[float, str]
"""Sort key of a record: its creation time, in seconds since the epoch, and its id."""


class ByAge:
    """Ids of records, oldest first. Lookup by bisection; a new record is appended at the end."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._made: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(self, record_id: str, record: object) -> None:
        """Add a record or keep its place; a record without `created_at` is ignored."""
        made_at: float | None = getattr(record, "created_at", None)
        known = self._made.get(record_id)
        if made_at is None or known == made_at:
            return
        if known is not None:
            self.drop(record_id)
        self._made[record_id] = made_at
        insort(self._places, (made_at, record_id))

    def drop(self, record_id: str) -> None:
        """Remove a record, if present."""
        made_at = self._made.pop(record_id, None)
        if made_at is not None:
            del self._places[bisect_left(self._places, (made_at, record_id))]

    def before(self, place: Place | None) -> Iterator[str]:
        """Yield ids made before a place (None: all), newest first. The index must not change meanwhile."""
        at = len(self._places) if place is None else bisect_left(self._places, place)
        for index in range(at - 1, -1, -1):
            yield self._places[index][1]

    def after(self, place: Place | None) -> Iterator[str]:
        """Yield ids made after a place (None: all), oldest first. The index must not change meanwhile."""
        for index in range(0 if place is None else bisect_right(self._places, place), len(self._places)):
            yield self._places[index][1]
