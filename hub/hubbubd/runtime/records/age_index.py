"""An index of a table's records by creation time, for pages."""

from collections.abc import Iterator
from typing import Any

from sortedcontainers import SortedList  # pyright: ignore[reportMissingTypeStubs] - it has no types

AgePosition = tuple[float, str]
"""Sort key of a record: its creation time, in seconds since the epoch, and its id."""


class AgeIndex:
    """Ids of records, oldest first."""

    def __init__(self) -> None:
        # Not a list: once a history is full each new record deletes an old one, for which a list moves all the others.
        self._places: Any = SortedList()
        self._made: dict[str, float] = {}

    def put(self, record_id: str, record: object) -> None:
        """Add a record or keep its place; a record without `created_at` is ignored."""
        made_at: float | None = getattr(record, "created_at", None)
        known = self._made.get(record_id)
        if made_at is None or known == made_at:
            return
        if known is not None:
            self.drop(record_id)
        self._made[record_id] = made_at
        self._places.add((made_at, record_id))

    def drop(self, record_id: str) -> None:
        """Remove a record, if present."""
        made_at = self._made.pop(record_id, None)
        if made_at is not None:
            self._places.remove((made_at, record_id))

    def before(self, place: AgePosition | None) -> Iterator[str]:
        """Yield ids made before a place (None: all), newest first. The index must not change meanwhile."""
        return (record_id for _, record_id in self._places.irange(None, place, (True, False), reverse=True))

    def after(self, place: AgePosition | None) -> Iterator[str]:
        """Yield ids made after a place (None: all), oldest first. The index must not change meanwhile."""
        return (record_id for _, record_id in self._places.irange(place, None, (False, True)))
