"""Numbers of a fleet, as one member of it sees them. Scrapes run in another thread: they read plain numbers."""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from hubbubd.core.server import NOBODY, Lease
from hubbubd.members import Member, Standing
from hubbubd.runtime.ownership import UPKEEP
from hubbubd.telemetry import metrics
from hubbubd.telemetry.meter import Meter, Reading


class Measured(Protocol):
    """A member of a fleet, as `runtime.fleet.Fleet` describes it."""

    me: str
    ahead_s: float

    def members(self) -> list[Member]: ...

    def owned_count(self) -> int: ...

    def free_count(self) -> int: ...

    def remaining_s(self) -> float: ...

    def lag(self) -> int: ...


class FleetMeasures:
    """Measures a member of a fleet, in one life of it."""

    def __init__(self, meter: Meter, fleet: Measured) -> None:
        self._meter = meter
        self._fleet = fleet
        if not meter.on:
            return
        meter.observe(metrics.FLEET_MEMBERS, self._members)
        meter.observe(metrics.FLEET_OWNED, lambda: _one(fleet.owned_count()))
        meter.observe(metrics.FLEET_UNOWNED, lambda: _one(fleet.free_count()))
        meter.observe(metrics.FLEET_LEASE, lambda: _one(max(fleet.remaining_s(), 0.0)))
        meter.observe(metrics.FLEET_LAG, lambda: _one(fleet.lag()))
        meter.observe(metrics.FLEET_CLOCK, lambda: _one(fleet.ahead_s))

    def taken(self, server: str, before: Lease | None, free_s: float) -> None:
        """A server has become this member's. `before` is its lease when it was free, `free_s` how long it was."""
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

    def lost(self) -> None:
        """This member was declared gone while it ran."""
        self._meter.count(metrics.FLEET_LOST, {})

    def _members(self) -> Iterable[Reading]:
        found = Counter(
            "overdue" if each.overdue and each.standing is not Standing.GONE else each.standing.value
            for each in self._fleet.members()
        )
        return [(found[state], {"state": state}) for state in ("live", "draining", "overdue", "gone")]


def _one(value: float) -> Iterable[Reading]:
    return ((value, {}),)
