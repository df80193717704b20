"""Garbage collection beside many records that stay: seldom, of what is new, and very seldom of everything.

Reference counts free nearly all that the hub makes. A collection stops the process while it looks at every object that
may be part of a cycle: a second for some million of them, as many as a long history has, and nearly all of them stay.
So what a long collection has left is taken for permanent (`gc.freeze`), as is what imports have made. Cycles among that
are looked for once it has grown by a quarter, so seldom that it takes a small share of the time, and no longer once it
would take more than about a second.
"""

import gc
import math
import time
from collections.abc import Callable
from typing import Final, Protocol

REST_FACTOR: Final = 5000
"""After a look at all objects, or a count of them, only new ones are looked at, for so many times as long as that took.

Times are those of the processor.
"""

GROWTH: Final = 1.25
"""Cycles among the permanent objects are looked for once there are so many times as many as after the last time."""

MAX_PERMANENT: Final = 1_000_000
"""Cycles among more permanent objects are left alone: to look for them would stop the hub for longer than a second.

They take memory until the hub ends. A hub with so many objects has some 300,000 records, or 2,000 servers. Records have
no cycles; connections that end have some.
"""

SHORT_S: Final = 0.1
"""Seconds of a full collection. What a shorter one has left does not become permanent: the next one looks again."""

THRESHOLDS: Final = (10_000, 4, 5)
"""So many new objects cause a collection, and so many of these one of the next generation (`gc.set_threshold`).

Calls under way have some thousand objects that end with them. By CPython's own thresholds these are looked at 14 times
as often, and what stays of a call some 25 times before it is permanent: a fifth of the hub's processor time.
"""

FULL_COLLECTION: Final = 2
"""The generation of a full collection."""


class Collector(Protocol):
    """What is used of the module `gc`."""

    def freeze(self) -> None:
        """Make all objects that are left permanent: later collections do not look at them."""

    def unfreeze(self) -> None:
        """Have the next full collection look at everything."""

    def get_freeze_count(self) -> int:
        """Return the number of permanent objects; takes some time itself."""
        ...


class Garbage:
    """Follows the full collections of a process.

    `now` is in seconds of the processor: beside other load a short collection takes long, and is short all the same.
    """

    def __init__(self, collector: Collector = gc, now: Callable[[], float] = time.process_time) -> None:
        """Count the permanent objects that there are now. Other than in tests, `collector` is the module `gc`."""
        self._collector = collector
        self._now = now
        self._started_at = 0.0
        self._looks_at_all = False
        """Whether the collection under way looks at the permanent objects, too."""
        self._next_look_at = -math.inf
        self._permanent = self._permanent_after_look = collector.get_freeze_count()

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Act at the start and the stop of a full collection, as one of `gc.callbacks`.

        At the start, have the collection look at permanent objects, too, if that is due. At the stop of a long one,
        make all objects that are left permanent.
        """
        if info["generation"] != FULL_COLLECTION:
            return
        if phase == "start":
            self._started_at = self._now()
            self._looks_at_all = self._started_at >= self._next_look_at and self._is_worthwhile()
            if self._looks_at_all:
                self._collector.unfreeze()
            return
        thawed = self._looks_at_all and self._permanent > 0  # what was permanent is to be so again
        if self._now() - self._started_at < SHORT_S and not thawed:
            return  # so it is in a small hub, which need not keep what may become garbage
        self._collector.freeze()
        if self._looks_at_all:
            self._permanent_after_look = self._collector.get_freeze_count()
            self._postpone_next_look()

    def _is_worthwhile(self) -> bool:
        """Return whether the permanent objects have grown so much that a look at them may pay."""
        self._permanent = self._collector.get_freeze_count()
        worthwhile = self._permanent_after_look * GROWTH <= self._permanent <= MAX_PERMANENT
        if not worthwhile:
            self._postpone_next_look()  # as to count them takes long, too
        return worthwhile

    def _postpone_next_look(self) -> None:
        """Look at the permanent objects again only after REST_FACTOR times the duration of this look."""
        now = self._now()
        self._next_look_at = now + (now - self._started_at) * REST_FACTOR


def configure_collection() -> None:
    """Collect what imports have left, make the rest permanent, and have `Garbage` act on later collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(Garbage().on_collection)
