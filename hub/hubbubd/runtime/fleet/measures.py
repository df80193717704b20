"""Numbers of a fleet, as one member of it sees them. Scrapes run in another thread: they read plain numbers."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog

from hubbubd.core.servers.server_record import NOBODY, Lease
from hubbubd.members import Member, MemberStatus
from hubbubd.runtime.fleet.clock import FleetClock
from hubbubd.runtime.ownership import UPKEEP
from hubbubd.telemetry import metrics
from hubbubd.telemetry.meter import Meter, Reading

STALLED_S: Final = 5.0
"""Seconds for which a member that is behind may read nothing, and still gets work."""

LONGEST_STEP_S: Final = 2.0
"""The most seconds between two observations that count: this process may have been stopped for longer."""

log = structlog.get_logger(__name__)


class Lag:
    """How far a member is behind the others, and for how long it has been stalled: behind, and reading nothing.

    Being behind is nothing special while others commit. But a member that is behind, and does not move at all, does not
    receive their commits. It counts as stalled only if two observations in a row find it behind at the same revision,
    so that neither a commit just made nor a pause of this process counts.
    """

    def __init__(
        self, me: str, position: Callable[[], int], members: Callable[[], Iterable[Member]], now: Callable[[], float]
    ) -> None:
        """`position` returns the revision up to which this member has read; `now` returns monotonic seconds."""
        self._me = me
        self._position = position
        self._members = members
        self._now = now
        self._seen_position: int | None = None  # at the last observation, if the member was behind then
        self._seen_at = now()
        self._stalled_s = 0.0  # for how long the member has been behind at the same revision

    def revisions_behind(self) -> int:
        """Return by how many revisions this member is behind the member that had read most at its last beat.

        0 if it is behind nobody.
        """
        return self._count_revisions_behind(self._members())

    def receives_changes(self) -> bool:
        """Return whether this member receives what others commit: it has not been stalled behind them for STALLED_S.

        A revision read since the last observation counts at once.
        """
        return self._stalled_s <= STALLED_S or self._position() != self._seen_position or not self._is_behind()

    def observe(self) -> None:
        """Measure for how long this member has been stalled behind others; log once it stops receiving changes.

        Also log once it receives changes again. To be called at each heartbeat and after each read of the
        members.
        """
        now, received_changes, is_behind = self._now(), self.receives_changes(), self._is_behind()
        is_stalled = is_behind and self._position() == self._seen_position
        stalled_before_s = self._stalled_s
        self._stalled_s = stalled_before_s + min(now - self._seen_at, LONGEST_STEP_S) if is_stalled else 0.0
        self._seen_position, self._seen_at = self._position() if is_behind else None, now
        if received_changes and not self.receives_changes():
            log.error("this member does not hear of others' changes; it is to be given no work", member=self._me)
        elif stalled_before_s > STALLED_S and not is_stalled:
            log.warning("this member hears of others' changes again", member=self._me)

    def _is_behind(self) -> bool:
        """Return whether a live member has read more. Gone and overdue ones do not count: their history may differ."""
        live = (each for each in self._members() if each.status is not MemberStatus.GONE and not each.overdue)
        return self._count_revisions_behind(live) > 0

    def _count_revisions_behind(self, members: Iterable[Member]) -> int:
        """Return by how many revisions this member is behind that of `members` that has read most; 0 if behind none."""
        position = self._position()
        return max([0, *(member.position - position for member in members)])


class MeasuredMember(Protocol):
    """A member of a fleet, as `FleetOwnership` describes it."""

    me: str
    time: FleetClock
    lag: Lag

    def members(self) -> list[Member]: ...

    def owned_count(self) -> int: ...

    def free_count(self) -> int: ...

    def remaining_s(self) -> float: ...


class FleetMeasures:
    """Measures a member of a fleet in one of its terms (from a start until it is gone)."""

    def __init__(self, meter: Meter, fleet: MeasuredMember) -> None:
        """Have the meter read the member's numbers from now on, from another thread, if metrics are on."""
        self._meter = meter
        self._fleet = fleet
        if not meter.on:
            return
        meter.observe(metrics.FLEET_MEMBERS, self._count_members)
        meter.observe_number(metrics.FLEET_OWNED, lambda: fleet.owned_count())
        meter.observe_number(metrics.FLEET_UNOWNED, lambda: fleet.free_count())
        meter.observe_number(metrics.FLEET_LEASE, lambda: max(fleet.remaining_s(), 0.0))
        meter.observe_number(metrics.FLEET_LAG, lambda: fleet.lag.revisions_behind())
        meter.observe_number(metrics.FLEET_CLOCK, lambda: fleet.time.ahead_s)

    def count_takeover(self, server: str, before: Lease | None, free_s: float) -> None:
        """Count the takeover of a server that was free for `free_s` seconds; UPKEEP does not count.

        `before` is the server's lease until now, None if it had none.
        """
        if server == UPKEEP:
            return
        if before is None:
            why = "new"
        elif before.member == NOBODY:
            why = "handed_on"
        else:
            why = "restarted" if before.member == self._fleet.me else "owner_gone"
        self._meter.count(metrics.FLEET_TAKEOVERS, {"why": why})
        self._meter.record(metrics.FLEET_TAKEOVER, free_s, {"why": why})

    def count_ended_term(self) -> None:
        """Count that this member's term has ended and a new one begins: it was declared gone, or history was lost."""
        self._meter.count(metrics.FLEET_FENCED, {})

    def _count_members(self) -> Iterable[Reading]:
        """Return how many members there are in each state; overdue members count as overdue, unless they are gone."""
        counts = Counter(
            "overdue" if each.overdue and each.status is not MemberStatus.GONE else each.status.value
            for each in self._fleet.members()
        )
        return [(counts[state], {"state": state}) for state in ("live", "draining", "overdue", "gone")]
