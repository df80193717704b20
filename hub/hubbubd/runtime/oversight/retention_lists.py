"""Shelves: the records that have ended, in order, counted and weighed, and which of them are to go."""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from hubbubd.runtime.records import Table

T = TypeVar("T")

GRACE_S = 1.0
"""What has ended is there for so long at least: whoever waits for its end still reads it."""

HISTORY_BYTES: Final = 64 * 1024 * 1024
"""What the ended records of one noun may take for one server, where many of them are large."""

TOTAL_HISTORY_BYTES: Final = 512 * 1024 * 1024
"""The same for all servers together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many records that have ended are kept, for how long, and how many bytes of them."""

    count: int
    age_s: float
    size: int


class _Ended(NamedTuple):
    """What a retention list knows of a record."""

    server: str
    at: float
    size: int


class _Row:
    """Records that have ended, oldest first, and how many bytes they have."""

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

    def over(self, limits: Limits) -> bool:
        """Whether there is too much. One record alone is never too large: it was let in."""
        return len(self.ended) > limits.count or (self._size > limits.size and len(self.ended) > 1)

    def oldest_goes(self, limits: Limits, now: float) -> bool:
        """Whether the oldest one is to be deleted now."""
        if not self.ended:
            return False
        age_s = now - next(iter(self.ended.values())).at
        return age_s >= GRACE_S and (age_s > limits.age_s or self.over(limits))


class RetentionList(Generic[T]):
    """The records of a table that have ended, in the order in which they did. Adding and taking one costs the same,
    however many there are."""

    def __init__(
        self,
        *,
        table: Table[T],
        ended_at: Callable[[T], float | None],
        size_of: Callable[[T], int],
        total: Callable[[], Limits],
        own: Callable[[str], Limits],
        now: Callable[[], float],
    ) -> None:
        self.table = table
        self._now = now
        self._ended_at = ended_at
        self._size_of = size_of
        self._total = total
        self._own = own
        self._all = _Row()
        self._by_server: dict[str, _Row] = {}

    def load(self) -> None:
        """Takes up what the store remembers, anew when there is something already."""
        self._all = _Row()
        self._by_server.clear()
        ended = ((self._ended_at(record), record) for record in self.table)
        for _, record in sorted((e for e in ended if e[0] is not None), key=lambda e: cast("float", e[0])):
            self.see(record)

    def see(self, record: T) -> bool:
        """Looks whether a record has ended by now; True when there are too many then."""
        known = cast("Any", record)
        at = self._ended_at(record)
        if at is None or known.id in self._all.ended:
            return False
        # A clock that was ahead may have stamped it; it must not keep the limits from those behind it.
        ended = _Ended(known.server, min(at, self._now()), self._size_of(record))
        own = self._by_server.setdefault(known.server, _Row())
        for row in (own, self._all):
            row.add(known.id, ended)
        return own.over(self._own(known.server)) or self._all.over(self._total())

    def drop(self, record_id: str) -> None:
        """Forgets a record that is gone."""
        ended = self._all.drop(record_id)
        if ended is not None and (own := self._by_server.get(ended.server)) is not None:
            own.drop(record_id)
            if not own.ended:
                del self._by_server[ended.server]

    @property
    def newest(self) -> float:
        """When the last of them ended; 0 when there is none."""
        last = next(reversed(self._all.ended.values()), None)
        return last.at if last is not None else 0.0

    def take(self, now: float, *, by_age: bool = True) -> list[str]:
        """Takes off what is to be deleted now: what is too much, and what is too old unless no age is believed."""
        taken: list[str] = []
        for server in list(self._by_server):
            limits = _believed(self._own(server), by_age)
            while (own := self._by_server.get(server)) and own.oldest_goes(limits, now):
                taken.append(next(iter(own.ended)))
                self.drop(taken[-1])
        total = _believed(self._total(), by_age)
        while self._all.oldest_goes(total, now):
            taken.append(next(iter(self._all.ended)))
            self.drop(taken[-1])
        return taken

    @property
    def too_full(self) -> bool:
        """Whether there are more than a limit allows."""
        own = self._by_server.items()
        return self._all.over(self._total()) or any(row.over(self._own(server)) for server, row in own)


def _believed(limits: Limits, by_age: bool) -> Limits:
    return limits if by_age else replace(limits, age_s=math.inf)
