"""Garbage collection beside many lasting records: new objects are scanned seldom, all objects very seldom.

Reference counts free nearly all that the hub makes. A collection stops the process while it looks at every object that
may be part of a cycle: a second for some million of them, as many as a long history has, and nearly all of them stay.
So the objects that outlast a long collection become permanent (`gc.freeze`), as do those that imports have made.
Permanent objects are scanned for cycles only after their number has grown by a quarter, which takes a small share of
the time. They are no longer scanned once a scan would take more than about a second.
"""

import gc
import math
import time
from collections.abc import Callable
from typing import Final, Protocol

REST_FACTOR: Final = 5000
"""The pause after a scan or a count of permanent objects, as a multiple of its duration, in processor time.

During the pause collections scan new objects only.
"""

GROWTH: Final = 1.25
"""How many times as many permanent objects there must be as after their last scan, before they are scanned again."""

MAX_PERMANENT: Final = 1_000_000
"""The most permanent objects that are scanned: a scan of more would stop the hub for longer than a second.

Cycles among more objects take memory until the hub ends. A hub with so many objects has some 300,000 records, or 2,000
servers. Records have no cycles; connections that end have some.
"""

SHORT_S: Final = 0.1
"""The shortest full collection, in seconds, after which the remaining objects become permanent."""

THRESHOLDS: Final = (10_000, 4, 5)
"""How many new objects cause a collection, and how many collections cause one of the next generation.

These are the arguments of `gc.set_threshold`.

Calls under way have some thousand objects that end with them. CPython's own thresholds would scan these 14 times as
often, and the lasting objects of a call some 25 times before they are permanent: a fifth of the hub's processor time.
"""

FULL_COLLECTION: Final = 2
"""The generation of a full collection."""


class Collector(Protocol):
    """The functions of the module `gc` that `Garbage` uses."""

    def freeze(self) -> None:
        """Make all existing objects permanent: later collections do not scan them."""

    def unfreeze(self) -> None:
        """Make no object permanent: the next full collection scans all."""

    def get_freeze_count(self) -> int:
        """Return the number of permanent objects; takes longer the more there are."""
        ...


class Garbage:
    """Decides at each full collection whether it scans permanent objects, and whether the rest becomes permanent.

    `now` returns processor time in seconds: other load on the machine must not make a short collection seem long.
    """

    def __init__(self, collector: Collector = gc, now: Callable[[], float] = time.process_time) -> None:
        """Count the present permanent objects. `collector` is the module `gc`, except in tests."""
        self._collector = collector
        self._now = now
        self._started_at = 0.0
        self._includes_permanent = False
        """Whether the collection under way scans the permanent objects, too."""
        # Processor time before which permanent objects are not scanned.
        self._next_scan_at = -math.inf
        self._permanent_count = self._permanent_after_scan = collector.get_freeze_count()

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Act at the start and the stop of a full collection, as one of `gc.callbacks`.

        At the start, include the permanent objects in the collection if that is due. At the stop, make all remaining
        objects permanent if the collection was long, or had included permanent ones.
        """
        if info["generation"] != FULL_COLLECTION:
            return
        if phase == "start":
            self._started_at = self._now()
            self._includes_permanent = self._started_at >= self._next_scan_at and self._is_scan_due()
            if self._includes_permanent:
                self._collector.unfreeze()
            return
        # Permanent objects must become permanent again.
        was_unfrozen = self._includes_permanent and self._permanent_count > 0
        if self._now() - self._started_at < SHORT_S and not was_unfrozen:
            return  # in a small hub the next collection is short, too, and frees what is garbage by then
        self._collector.freeze()
        if self._includes_permanent:
            self._permanent_after_scan = self._collector.get_freeze_count()
            self._postpone_next_scan()

    def _is_scan_due(self) -> bool:
        """Count the permanent objects, and return whether they have grown by GROWTH, to at most MAX_PERMANENT.

        If not, postpone the next count, too.
        """
        self._permanent_count = self._collector.get_freeze_count()
        is_due = self._permanent_after_scan * GROWTH <= self._permanent_count <= MAX_PERMANENT
        if not is_due:
            self._postpone_next_scan()  # the count takes long, too
        return is_due

    def _postpone_next_scan(self) -> None:
        """Pause scans and counts of permanent objects for REST_FACTOR times the duration of this one."""
        now = self._now()
        self._next_scan_at = now + (now - self._started_at) * REST_FACTOR


def configure_collection() -> None:
    """Free the garbage of imports, make all other objects permanent, and register `Garbage` for later collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(Garbage().on_collection)
