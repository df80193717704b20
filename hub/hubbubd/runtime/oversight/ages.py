"""Ages: how old what is recorded truly is, whatever becomes of the clock.

    the clock is set, or goes on after a stop that nobody confirms ──> a new era ──> earlier stamps count as later ones

The last known time is noted every MARK_S while something changes, and at the end of the hub.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from hubbubd import bounds
from hubbubd.bounds import Moment, Whole
from hubbubd.core import eras as core
from hubbubd.core.eras import LEAP_S, ClockEra
from hubbubd.runtime.ownership import UPKEEP, Ownership
from hubbubd.runtime.records import Ledger, Table
from hubbubd.timing.clock import Clock

MARK_S = 600.0
"""Seconds between two notes of the time while something changes: a hub that is killed seems to have stopped by at most
so much earlier."""

MILESTONES = 100
"""How many milestones divide the age of tombstones: these are compacted late by at most that fraction."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The hub's upkeep record. `milestones` are (revision, time), oldest first, which date the tombstones.

    `eras` are those of the clock, the present one last.
    """

    milestones: tuple[tuple[Whole, Moment], ...] = ()
    eras: tuple[ClockEra, ...] = ()


class Ages:
    """Dates what is recorded. In a fleet the member that has UPKEEP notes the leaps of the clock that all share."""

    def __init__(self, ledger: Ledger, table: Table[Upkeep], clock: Clock, ownership: Ownership) -> None:
        self._ledger = ledger
        self._table = table
        self._clock = clock
        self._ownership = ownership
        self._at, self._passed = self._now(), clock.elapsed()
        self._watched_from = self._at
        self._set_s = 0.0
        self._noted = ledger.store.revision
        self._dated: Callable[[], None] = lambda: None
        self.has_leaps = len(self._known.eras) > 1
        """Whether the clock has leapt, so that `true` may change a stamp."""
        table.follow(lambda before, after: self._date_anew(before or Upkeep(), after or Upkeep()))

    def on_dated(self, listener: Callable[[], None]) -> None:
        """Call the listener when earlier stamps count otherwise from now on. It must not block."""
        self._dated = listener

    def true(self, at: float) -> float:
        """Return a stamp in the time of the present clock."""
        return core.correct_stamp(self._known.eras, at, self._now())

    @property
    def doubted_s(self) -> float:
        """Seconds by which what is recorded may be older than it counts, after leaps that nobody has confirmed."""
        return core.doubted_s(self._known.eras)

    def look(self, newest: Callable[[], float] = lambda: 0.0) -> float:
        """Notice leaps of the clock since the last look; nothing may be deleted for its age before that.

        `newest` returns when the newest record was stamped, 0 if there is none: for a store in which no time was ever
        noted. Return by how many seconds waits that were begun before the hub's start are to end later: the clock has
        moved by that while no hub ran, and nobody confirms that it was time.
        """
        self._clock.look()
        now, passed = self._now(), self._clock.elapsed()
        self._set_s += now - self._at - (passed - self._passed)
        self._at, self._passed = now, passed
        set_s = self._set_s
        if abs(set_s) >= LEAP_S:
            self._watched_from, self._set_s = now, 0.0
        if not self._ownership.owns(UPKEEP):
            return 0.0
        known, moved_s = self._known.eras, 0.0
        if not known:
            last = newest() or self._watched_from
            self._put(lambda eras: eras or (ClockEra(last=last),))
            known = self._known.eras
        if abs(set_s) >= LEAP_S:
            self._leap("the clock was set", until=now - set_s, by_s=set_s)
        elif moved_s := self._unexplained(known[-1].last, now):
            # What was stamped after the last note counts as of that era, too.
            until = known[-1].last + LEAP_S
            self._leap("the clock is not where it was when the hub ended", until=until, by_s=moved_s)
        self._vouch(now)
        return self._known.eras[-2].shift_s if moved_s else 0.0

    def _unexplained(self, last: float, now: float) -> float:
        """Return how far the clock is from the last time that was noted, but for what this hub has seen go by."""
        if self._watched_from - last > LEAP_S:
            return self._watched_from - last
        return now - last if last - now > LEAP_S else 0.0

    def note(self, tombstones_s: float) -> None:
        """Note the time, and a milestone if one is due for tombstones that live so long; nothing while all is idle."""
        if not self._ownership.owns(UPKEEP) or not self._known.eras:
            return
        now, revision = self._now(), self._ledger.store.revision
        passed, at = self._known.milestones[-1] if self._known.milestones else (-1, -math.inf)
        # Writing takes a revision itself, which must not cause the next one.
        milestone = revision > passed + 1 and now - self.true(at) >= tombstones_s / MILESTONES
        if not milestone and (revision <= self._noted + 1 or now - self._known.eras[-1].last < MARK_S):
            return
        forgotten = self.forgotten(tombstones_s)

        def further(there: Upkeep | None) -> Upkeep:
            known = there or Upkeep()
            later = (*known.milestones, (revision, now)) if milestone else known.milestones
            return replace(known, milestones=tuple(each for each in later if each[0] >= forgotten))

        self._ledger.later(self._table, "upkeep", further)
        self._note_time(now)
        self._noted = revision

    def close(self) -> None:
        """Note the time at the end of the hub, write-behind."""
        if self._ownership.owns(UPKEEP) and self._known.eras and self._now() - self._known.eras[-1].last >= MARK_S:
            self._note_time(self._now())

    def forget_before(self, age_s: float) -> None:
        """Forget the eras of which everything is older than an age."""
        before, known = self._now() - age_s, self._known.eras
        if known and core.without_old_eras(known, before) != known:
            self._put(lambda eras: core.without_old_eras(eras, before))

    def forgotten(self, tombstones_s: float) -> int:
        """Return the newest revision that is older than the age of tombstones; 0 when none is known."""
        oldest = self._now() - tombstones_s
        milestones = self._known.milestones
        return max((revision for revision, at in milestones if self.true(at) <= oldest), default=0)

    async def trust(self) -> float:
        """Let doubted time count: a person says that it has passed. Return its seconds. Raises Unavailable."""
        doubted_s = self.doubted_s

        def believed(there: Upkeep | None) -> Upkeep | None:
            return there and replace(there, eras=core.after_trust(there.eras))

        await self._ledger.change(self._table, "upkeep", believed)
        return doubted_s

    def _leap(self, what: str, *, until: float, by_s: float) -> None:
        begun = self._watched_from
        self._put(
            lambda eras: eras if eras and eras[-1].first == begun else core.after_leap(eras, until, by_s, begun)
        )  # once, however often the step is made
        log.warning(f"{what}; that ages nothing", by_s=round(by_s), doubted_s=round(self.doubted_s))

    def _vouch(self, now: float) -> None:
        known = self._known.eras
        if not known[-1].vouched and self._clock.vouched() and core.after_confirmation(known, now) != known:
            self._put(lambda eras: core.after_confirmation(eras, now))
            if core.doubted_s(known) and not self.doubted_s:
                log.warning("a time service says that the clock is right; nothing is doubted any more")

    def _note_time(self, now: float) -> None:
        def noted(eras: tuple[ClockEra, ...]) -> tuple[ClockEra, ...]:
            *past, present = eras or (ClockEra(),)
            return (*past, replace(present, last=now))

        self._put(noted)

    def _put(self, step: Callable[[tuple[ClockEra, ...]], tuple[ClockEra, ...]]) -> None:
        """Make a step of the eras, write-behind; again if another member's are there by then, which a person trusts."""

        def further(there: Upkeep | None) -> Upkeep:
            known = there or Upkeep()
            return replace(known, eras=step(known.eras))

        before = self._known
        self._ledger.later(self._table, "upkeep", further)
        self._date_anew(before, self._known)

    def _date_anew(self, before: Upkeep, after: Upkeep) -> None:
        self.has_leaps = len(self._known.eras) > 1
        if _dates(before.eras) != _dates(after.eras):
            self._dated()

    @property
    def _known(self) -> Upkeep:
        return self._table.record("upkeep") or Upkeep()

    def _now(self) -> float:
        return bounds.moment(self._clock.now()) or 0.0


def _dates(eras: tuple[ClockEra, ...]) -> list[tuple[float, float]]:
    return [(era.first, era.shift_s) for era in eras]
