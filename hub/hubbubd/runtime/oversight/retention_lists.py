"""Retention lists: the ended records of a table in order of their end, with counts and sizes, and which to delete."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from hubbubd.runtime.records import Table

T = TypeVar("T")

GRACE_S = 1.0
"""Seconds for which an ended record is kept in any case: whoever waits for its end still reads it."""

HISTORY_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of one server's ended records of one noun."""

TOTAL_HISTORY_BYTES: Final = 512 * 1024 * 1024
"""The most bytes of all servers' ended records of one noun."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Retention limits of ended records: number, age in seconds, bytes."""

    count: int
    age_s: float
    size: int


class _Ended(NamedTuple):
    """What a list knows of a record."""

    server: str
    at: float
    size: int


class _AgeQueue:
    """Ended records, oldest first, with their total size."""

    def __init__(self) -> None:
        self.ended: OrderedDict[str, _Ended] = OrderedDict()
        self._size = 0

    def add(self, record_id: str, ended: _Ended) -> None:
        self.ended[record_id] = ended
        self._size += ended.size

    def drop(self, record_id: str) -> _Ended | None:
        if (ended := self.ended.pop(record_id, None)) is not None:
            self._size -= ended.size
        return ended

    def over(self, limits: RetentionLimits) -> bool:
        """Return whether a limit is exceeded. A single record is never too large."""
        return len(self.ended) > limits.count or (self._size > limits.size and len(self.ended) > 1)

    def oldest_goes(self, limits: RetentionLimits, now: float) -> bool:
        """Return whether the oldest record is to be deleted now."""
        if not self.ended:
            return False
        age_s = now - next(iter(self.ended.values())).at
        return age_s >= GRACE_S and (age_s > limits.age_s or self.over(limits))


class RetentionList(Generic[T]):
    """The ended records of a table in order of their end, in all and per server. Adding and removing are O(1)."""

    def __init__(
        self,
        *,
        table: Table[T],
        ended_at: Callable[[T], float | None],
        size_of: Callable[[T], int],
        total: Callable[[], RetentionLimits],
        own: Callable[[str], RetentionLimits],
        now: Callable[[], float],
    ) -> None:
        self.table = table
        self._now = now
        self._ended_at = ended_at
        self._size_of = size_of
        self._total = total
        self._own = own
        self._all = _AgeQueue()
        self._by_server: dict[str, _AgeQueue] = {}
        self._going: set[str] = set()
        """Those taken whose deletion is not durable yet: another change of them does not bring them back."""

    def load(self) -> None:
        """Load the ended records from the table; may be repeated."""
        self._all = _AgeQueue()
        self._by_server.clear()
        ended = ((self._ended_at(record), record) for record in self.table)
        for _, record in sorted((e for e in ended if e[0] is not None), key=lambda e: cast("float", e[0])):
            self._add(record)

    def newest(self) -> float:
        """Return when the newest ended record of the table was stamped; 0 if there is none."""
        return max((at for record in self.table if (at := self._ended_at(record)) is not None), default=0.0)

    def see(self, record: T) -> bool:
        """Add a record if it has ended; return whether a limit is exceeded then."""
        own = self._add(record)
        return own is not None and (own.over(self._own(cast("Any", record).server)) or self._all.over(self._total()))

    def _add(self, record: T) -> _AgeQueue | None:
        """Add a record if it has ended and is not here yet; return those of its server then."""
        known = cast("Any", record)
        at = self._ended_at(record)
        if at is None or known.id in self._all.ended or known.id in self._going:
            return None
        # Clamped: a timestamp from a clock that was ahead must not shield the records behind it.
        ended = _Ended(known.server, min(at, self._now()), self._size_of(record))
        own = self._by_server.setdefault(known.server, _AgeQueue())
        for row in (own, self._all):
            row.add(known.id, ended)
        return own

    def drop(self, record_id: str) -> None:
        """Forget a deleted record."""
        self._going.discard(record_id)
        self._remove(record_id)

    def _remove(self, record_id: str) -> None:
        ended = self._all.drop(record_id)
        if ended is not None and (own := self._by_server.get(ended.server)) is not None:
            own.drop(record_id)
            if not own.ended:
                del self._by_server[ended.server]

    def take(self, now: float) -> list[str]:
        """Remove and return the ids to delete: beyond number or bytes, or past their age."""
        taken: list[str] = []
        for server in list(self._by_server):
            limits = self._own(server)
            while (own := self._by_server.get(server)) and own.oldest_goes(limits, now):
                taken.append(next(iter(own.ended)))
                self._remove(taken[-1])
        total = self._total()
        while self._all.oldest_goes(total, now):
            taken.append(next(iter(self._all.ended)))
            self._remove(taken[-1])
        self._going.update(taken)
        return taken

    @property
    def too_full(self) -> bool:
        """Whether a limit of number or bytes is exceeded."""
        own = self._by_server.items()
        return self._all.over(self._total()) or any(row.over(self._own(server)) for server, row in own)
