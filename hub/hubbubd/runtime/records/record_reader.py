"""Read access to the records of one noun, for clients."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from hubbubd.core.filters import Filter
from hubbubd.runtime.records.broadcast import Watch
from hubbubd.runtime.records.table import AgePosition, Table

T = TypeVar("T")


class RecordReader(Generic[T]):
    """Reads a table; the base class of the parts of the hub that change the table's records."""

    def __init__(self, table: Table[T]) -> None:
        self._table = table

    def get(self, record_id: str) -> T:
        """Return a record. Raises NotFound."""
        return self._table.get(record_id)

    def find(self, record_id: str) -> T | None:
        """Return a record; None if there is no such record."""
        return self._table.record(record_id)

    def __iter__(self) -> Iterator[T]:
        """Iterate over all records, in no particular order."""
        return iter(self._table)

    def select(self, chosen: Filter[T]) -> list[T]:
        """Return the records that match, newest first."""
        return list(self._table.newest(chosen.matches))

    def newest(self, chosen: Filter[T], after: AgePosition | None = None, oldest_first: bool = False) -> Iterator[T]:
        """Yield the records that match, newest first unless `oldest_first`; only those beyond the position `after`."""
        return self._table.newest(chosen.matches, after, oldest_first)

    def watch(self, chosen: Filter[T], token: str = "") -> Watch[T]:
        """Watch records: snapshot, then changes and live events; a resume token continues an earlier watch."""
        return self._table.feed.watch(chosen, token)

    def listen(self, record_id: str, on_event: Callable[[T, object], None]) -> AbstractContextManager[None]:
        """Call `on_event` for each change and live event (progress, log lines) of one record during the block.

        `on_event` gets the record and the live event, None for a change; changes may be another member's.
        """
        return self._table.feed.listen(record_id, on_event)
