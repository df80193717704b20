"""Ages: how old records really are, even if the clock is set or the computer sleeps.

    the clock is set, or goes on after a stop that nobody confirms ──> a new era ──> earlier stamps count as later ones

The last known time is noted every NOTE_S while something changes, and at the end of the hub.
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

NOTE_S = 600.0
"""Seconds between two notes of the time while something changes; after a kill the last note may be so old."""

MILESTONES = 100
"""How many milestones divide the age of tombstones: these are compacted late by at most that fraction."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The hub's upkeep record. `milestones` are (revision, time), oldest first, which date the tombstones.

    `eras` are the spans between leaps of the clock, the present era last.
    """

    milestones: tuple[tuple[Whole, Moment], ...] = ()
    eras: tuple[ClockEra, ...] = ()


class Ages:
    """Corrects stamps for leaps of the clock. In a fleet the member that owns UPKEEP notes the leaps, for all."""

    def __init__(self, ledger: Ledger, table: Table[Upkeep], clock: Clock, ownership: Ownership) -> None:
        """`table` has one record: the eras (spans between leaps of the clock) and the milestones."""
        self._ledger = ledger
        self._table = table
        self._clock = clock
        self._ownership = ownership
        self._last_now, self._last_elapsed = self._now(), clock.elapsed()  # both as of the last look for leaps
        self._watched_from = self._last_now
        """When, by the clock, this hub started, or the clock was last set by a leap."""
        self._clock_set_by_s = 0.0
        """By how many seconds the clock was set since `_watched_from`: less than a leap."""
        self._noted_revision = ledger.store.revision
        self._on_redated: Callable[[], None] = lambda: None
        self.has_leaps = len(self._upkeep.eras) > 1
        """Whether the clock has leapt, so that `correct_stamp` may return another stamp than it gets."""
        table.follow(lambda before, after: self._notify_if_redated(before or Upkeep(), after or Upkeep()))

    def on_redated(self, listener: Callable[[], None]) -> None:
        """Call the listener when `correct_stamp` starts to return other times for old stamps. It must not block."""
        self._on_redated = listener

    def correct_stamp(self, at: float) -> float:
        """Return a stamp corrected for later leaps of the clock: one from before a leap forward becomes later."""
        return core.correct_stamp(self._upkeep.eras, at, self._now())

    @property
    def doubted_s(self) -> float:
        """Seconds by which records may be older than `correct_stamp` says, due to leaps that nobody has confirmed."""
        return core.doubted_s(self._upkeep.eras)

    def notice_leaps(self, newest_stamp: Callable[[], float] = lambda: 0.0) -> float:
        """Begin a new era (a span between leaps) if the clock has leapt since the last look.

        Call this before any record is deleted for its age. `newest_stamp` returns the stamp of the newest record, 0 if
        there is no record; it is used if no time was ever noted in the store. Return the seconds by which deadlines
        set before the hub's start are to be moved: the step of the clock while no hub ran, if nobody confirms that
        this time has passed; else 0.
        """
        self._clock.detect_jump()
        now, elapsed = self._now(), self._clock.elapsed()
        # Time that has passed moves both clocks on; the difference is by how much this one was set.
        self._clock_set_by_s += now - self._last_now - (elapsed - self._last_elapsed)
        self._last_now, self._last_elapsed = now, elapsed
        set_by_s = self._clock_set_by_s
        if abs(set_by_s) >= LEAP_S:
            self._watched_from, self._clock_set_by_s = now, 0.0
        if not self._ownership.owns(UPKEEP):  # the member that owns UPKEEP begins the era, for all members
            return 0.0
        eras, moved_s = self._upkeep.eras, 0.0
        if not eras:
            last = newest_stamp() or self._watched_from
            self._change_eras(lambda eras: eras or (ClockEra(last=last),))
            eras = self._upkeep.eras
        if abs(set_by_s) >= LEAP_S:
            self._begin_era("the clock was set", until=now - set_by_s, by_s=set_by_s)
        elif moved_s := self._find_unseen_step(eras[-1].last, now):
            # Stamps after the last note of the time count as of that era, too.
            until = eras[-1].last + LEAP_S
            self._begin_era("the clock is not where it was when the hub ended", until=until, by_s=moved_s)
        self._confirm_clock(now)
        return self._upkeep.eras[-2].shift_s if moved_s else 0.0

    def _find_unseen_step(self, last: float, now: float) -> float:
        """Return the seconds by which the clock moved from the time `last` to this hub's start; 0 if it is no leap."""
        if self._watched_from - last > LEAP_S:
            return self._watched_from - last
        return now - last if last - now > LEAP_S else 0.0

    def note_progress(self, tombstones_s: float) -> None:
        """Record the time and, if due, a milestone; delete milestones that no tombstone needs. All is write-behind.

        `tombstones_s` is how many seconds tombstones live. Nothing is written while nothing else in the store changes,
        nor by a member that does not own UPKEEP.
        """
        if not self._ownership.owns(UPKEEP) or not self._upkeep.eras:
            return
        now, revision = self._now(), self._ledger.store.revision
        last_revision, last_at = self._upkeep.milestones[-1] if self._upkeep.milestones else (-1, -math.inf)
        # Writing itself takes a revision, which must not cause the next write.
        age_s = now - self.correct_stamp(last_at)
        is_milestone_due = revision > last_revision + 1 and age_s >= tombstones_s / MILESTONES
        if not is_milestone_due and (revision <= self._noted_revision + 1 or now - self._upkeep.eras[-1].last < NOTE_S):
            return
        # Tombstones up to this revision are too old to be kept, so nobody needs milestones before it any more.
        forgotten = self.newest_forgotten_revision(tombstones_s)

        def with_milestone(stored: Upkeep | None) -> Upkeep:
            """Return the upkeep record with the milestone that is due, and without those that no tombstone needs."""
            before = stored or Upkeep()
            later = (*before.milestones, (revision, now)) if is_milestone_due else before.milestones
            return replace(before, milestones=tuple(each for each in later if each[0] >= forgotten))

        self._ledger.change_later(self._table, "upkeep", with_milestone)
        self._note_time(now)
        self._noted_revision = revision

    def close(self) -> None:
        """At the end of the hub note the time, write-behind, unless it was noted less than NOTE_S ago."""
        if self._ownership.owns(UPKEEP) and self._upkeep.eras and self._now() - self._upkeep.eras[-1].last >= NOTE_S:
            self._note_time(self._now())

    def forget_eras_older_than(self, age_s: float) -> None:
        """Forget the eras (spans between leaps of the clock) in which every stamp is older than `age_s` seconds."""
        oldest, eras = self._now() - age_s, self._upkeep.eras
        if eras and core.without_old_eras(eras, oldest) != eras:
            self._change_eras(lambda stored: core.without_old_eras(stored, oldest))

    def newest_forgotten_revision(self, tombstones_s: float) -> int:
        """Return the newest revision that is older than the age of tombstones; 0 when none is known."""
        oldest = self._now() - tombstones_s
        milestones = self._upkeep.milestones
        return max((revision for revision, at in milestones if self.correct_stamp(at) <= oldest), default=0)

    async def trust_clock(self) -> float:
        """Count doubted time as passed, since a person confirms the clock; durable on return.

        Return how many seconds were in doubt. Raises Unavailable.
        """
        doubted_s = self.doubted_s

        def after_trust(stored: Upkeep | None) -> Upkeep | None:
            """Return the upkeep record with no time in doubt; None if there is no record yet."""
            return stored and replace(stored, eras=core.after_trust(stored.eras))

        await self._ledger.change(self._table, "upkeep", after_trust)
        return doubted_s

    def _begin_era(self, cause: str, *, until: float, by_s: float) -> None:
        """Begin an era after the clock has leapt by `by_s` seconds; the era before ends at `until`.

        The change is write-behind. `cause` says in the log what happened to the clock.
        """
        first = self._watched_from
        # Write-behind may apply the step again, but only one era must begin.
        self._change_eras(
            lambda eras: eras if eras and eras[-1].first == first else core.after_leap(eras, until, by_s, first)
        )
        log.warning(f"{cause}; that deletes nothing", by_s=round(by_s), doubted_s=round(self.doubted_s))

    def _confirm_clock(self, now: float) -> None:
        """Count doubted time as passed if a time service of the machine says that the clock is right."""
        before = self._upkeep.eras
        if not before[-1].vouched and self._clock.is_vouched() and core.after_confirmation(before, now) != before:
            self._change_eras(lambda eras: core.after_confirmation(eras, now))
            if core.doubted_s(before) and not self.doubted_s:
                log.warning("a time service says that the clock is right; nothing is doubted any more")

    def _note_time(self, now: float) -> None:
        """Record the time as the last known one of the present era, write-behind."""

        def with_last_time(eras: tuple[ClockEra, ...]) -> tuple[ClockEra, ...]:
            """Return the eras with the time in the last of them, which is made if there is none."""
            *past, present = eras or (ClockEra(),)
            return (*past, replace(present, last=now))

        self._change_eras(with_last_time)

    def _change_eras(self, step: Callable[[tuple[ClockEra, ...]], tuple[ClockEra, ...]]) -> None:
        """Apply `step` to the eras (spans between leaps of the clock): in memory at once, in the store later.

        `step` is called again if another member has changed the eras meanwhile. Listeners are notified at once if old
        stamps now count as other times.
        """

        def with_changed_eras(stored: Upkeep | None) -> Upkeep:
            """Return the upkeep record with the eras after the step."""
            record = stored or Upkeep()
            return replace(record, eras=step(record.eras))

        before = self._upkeep
        # Readers, as `_upkeep` here, see the change at once; followers of the table only once it is durable.
        self._ledger.change_later(self._table, "upkeep", with_changed_eras)
        self._notify_if_redated(before, self._upkeep)

    def _notify_if_redated(self, before: Upkeep, after: Upkeep) -> None:
        """Update `has_leaps`, and call the listener if old stamps count as other times after the change than before."""
        self.has_leaps = len(self._upkeep.eras) > 1
        if _shifts(before.eras) != _shifts(after.eras):
            self._on_redated()

    @property
    def _upkeep(self) -> Upkeep:
        """The stored upkeep record; an empty one if there is none."""
        return self._table.record("upkeep") or Upkeep()

    def _now(self) -> float:
        """Return the time in seconds since the epoch, within the bounds of stored times."""
        return bounds.clamp_moment(self._clock.now()) or 0.0


def _shifts(eras: tuple[ClockEra, ...]) -> list[tuple[float, float]]:
    """Return for each era when it begins, and by how many seconds its stamps are moved."""
    return [(era.first, era.shift_s) for era in eras]
