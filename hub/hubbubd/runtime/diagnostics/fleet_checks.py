"""Checks of a fleet by a member: other members, changes, clocks, standbys, servers without an owner, and files."""

from collections.abc import Iterator
from contextlib import suppress

import anyio
import structlog

from hubbubd import bounds
from hubbubd.config.sections.network import is_local
from hubbubd.members import Member, MemberStatus
from hubbubd.runtime.diagnostics.findings import Finding, Severity
from hubbubd.runtime.fleet.member import FleetOwnership
from hubbubd.runtime.fleet.operations import FleetOperations
from hubbubd.runtime.ownership import Owner
from hubbubd.store import StoreUnavailable

CLOCK_TOLERANCE_S = 1.0
"""Seconds by which a member's clock may differ from the database's."""

UNOWNED_S = 30.0
"""Seconds for which a server may have no owner: longer than it takes to notice a member's end."""

GONE_S = 600.0
"""Seconds after which a member that is gone is not just being restarted."""

log = structlog.get_logger(__name__)


async def check_fleet(fleet: FleetOwnership, differing: list[str], now: float) -> list[Finding]:
    """Return findings about a fleet, as one of its members sees it.

    `differing` are the servers that differ between this member's files and their owners. `now` is in seconds since the
    epoch.
    """
    with suppress(StoreUnavailable):  # then the members are as they were last read
        await fleet.refresh_members()  # a member that has just been started again has another address
    return [
        _check_members(fleet),
        *await _check_reachable(fleet),
        *_check_loopback(fleet),
        *_check_gone_members(fleet, now),
        *_check_upgrade(fleet),
        _check_feed(fleet),
        _check_clock(fleet),
        await _check_standby(fleet),
        *_check_unowned_servers(fleet),
        *_check_files(differing),
    ]


def _check_members(fleet: FleetOwnership) -> Finding:
    """Return a finding with the members that take servers; a warning if this is the only one."""
    members = [each for each in fleet.members() if each.serves]
    others = ", ".join(each.name for each in members if each.name != fleet.me)
    if not others:
        advice = "start another, or resume one that drains (hubbub fleet status)"
        return Finding("fleet", Severity.WARN, f"no member but {fleet.me} takes servers", advice)
    return Finding("fleet", Severity.OK, f"{fleet.me}, with {others}")


def _living_members(fleet: FleetOwnership) -> list[Member]:
    """Return the other members that are not gone or overdue, and have published an address for members."""
    others = (each for each in fleet.members() if each.name != fleet.me and each.forward)
    return [each for each in others if each.status is not MemberStatus.GONE and not each.overdue]


async def _check_reachable(fleet: FleetOwnership) -> list[Finding]:
    """Return a warning for each living member that does not answer, or whose clock differs by CLOCK_TOLERANCE_S.

    All are checked at once, each for a bounded time.
    """
    findings: dict[str, Finding] = {}

    async def check_member(member: Member) -> None:
        """Check one member; note a warning if it does not answer, the check fails, or its clock differs."""
        owner = Owner(member.name, member.term, member.forward)
        try:
            if await fleet.answers(owner):
                offset_s = await fleet.clock_of(owner) or 0.0
                if abs(offset_s) > CLOCK_TOLERANCE_S:
                    findings[member.name] = _clock_finding(f"clock of {member.name}", "its clock", offset_s)
                return
        except Exception:  # a member whose check fails must not prevent the checks of others
            log.exception("a member could not be asked: internal error", member=member.name)
        message = f"it does not answer at {member.forward}: this member can forward nothing to it (OWNER_CHANGING)"
        advice = "see that this machine reaches that address: [fleet] of that member, firewalls, certificates"
        if is_local(member.forward):
            advice = (
                "it is loopback, which leads to no other machine: set listen or reached_at in [fleet] of that member"
            )
        findings[member.name] = Finding(f"member {member.name}", Severity.WARN, message, advice)

    async with anyio.create_task_group() as tasks:
        for member in _living_members(fleet):
            tasks.start_soon(check_member, member)
    return [findings[name] for name in sorted(findings)]


def _check_loopback(fleet: FleetOwnership) -> Iterator[Finding]:
    """Yield a warning if other members are to reach this one at loopback, though some are on other machines."""
    own_address = next((each.forward for each in fleet.members() if each.name == fleet.me), "")
    elsewhere = ", ".join(
        f"{each.name} at {each.forward}" for each in _living_members(fleet) if not is_local(each.forward)
    )
    if own_address and is_local(own_address) and elsewhere:
        message = (
            f"others are to reach this member at {own_address}, which leads to their own machine; there is {elsewhere}"
        )
        advice = "set listen in [fleet] to an address that they reach, or reached_at, and restart this member"
        yield Finding("fleet.listen", Severity.WARN, message, advice)


def _check_gone_members(fleet: FleetOwnership, now: float) -> Iterator[Finding]:
    """Yield a finding for each member that has been gone for more than GONE_S; `now` is seconds since the epoch."""
    for each in fleet.members():
        if each.status is MemberStatus.GONE and each.silent_s > GONE_S:
            since = bounds.utc_date(now - each.silent_s)
            advice = "start it again; or nothing, if it is not to come back (hubbub fleet status)"
            yield Finding(f"member {each.name}", Severity.OK, f"gone since {since:%Y-%m-%d %H:%M} UTC", advice)


def _check_upgrade(fleet: FleetOwnership) -> Iterator[Finding]:
    """Yield a warning if an upgrade of the store's schema is not finished, and what is left to do."""
    schema = fleet.membership.schema
    if schema.is_settled:
        return
    older = FleetOperations(fleet).outdated_members()
    message = f"the store's schema has version {schema.version}, but hubs that know {schema.required} are still let in"
    if older:
        advice = f"install the new version at {', '.join(older)}, too"
    else:
        advice = "all members are of the new version: if none is to go back, hubbub fleet finish-upgrade"
    yield Finding("upgrade", Severity.WARN, message, advice)


def _check_feed(fleet: FleetOwnership) -> Finding:
    """Return a finding: whether this member receives the changes that others commit."""
    about, behind = "changes of the fleet", fleet.lag.revisions_behind()
    if fleet.lag.receives_changes():
        return Finding(about, Severity.OK, "this member hears of them")
    return Finding(
        about,
        Severity.FAIL,
        f"this member does not hear of others' changes; it is {behind} revisions behind, and NOT_SERVING",
        "see that the database takes one more connection of this member; restart the member if that does not help",
    )


def _check_clock(fleet: FleetOwnership) -> Finding:
    """Return a finding: whether this member's clock differs from the database's by more than CLOCK_TOLERANCE_S."""
    about, offset_s = "clock of the fleet", fleet.time.ahead_s
    if abs(offset_s) <= CLOCK_TOLERANCE_S:
        return Finding(about, Severity.OK, f"differs from the database's by {abs(offset_s):.2f} s")
    return _clock_finding(about, "this member's clock", offset_s)


def _clock_finding(about: str, clock_name: str, offset_s: float) -> Finding:
    """Return the warning that a clock is `offset_s` seconds behind the database's; negative if it is ahead."""
    direction = "behind" if offset_s > 0 else "ahead of"
    message = f"{clock_name} is {abs(offset_s):.1f} s {direction} the database's"
    return Finding(about, Severity.WARN, message, "let NTP set the clocks of all members and of the database")


async def _check_standby(fleet: FleetOwnership) -> Finding:
    """Return a finding: whether the database has a synchronous standby, as far as this member may see that."""
    about, advice = (
        "standby of the database",
        "have a synchronous standby, so that a failover loses nothing (docs/store.md)",
    )
    try:
        standbys = await fleet.membership.count_standbys()
    except StoreUnavailable as exc:
        return Finding(about, Severity.FAIL, str(exc), "see that the database runs")
    if standbys is None:
        grant_advice = "GRANT pg_monitor to the account of the hub"
        return Finding(
            about, Severity.OK, "a synchronous one is configured; whether it is there cannot be seen", grant_advice
        )
    if not standbys:
        return Finding(about, Severity.WARN, "no synchronous one is there", advice)
    return Finding(about, Severity.OK, f"{standbys} synchronous")


def _check_unowned_servers(fleet: FleetOwnership) -> Iterator[Finding]:
    """Yield a warning for each server without an owner for more than UNOWNED_S, with the reason and what helps."""
    for each in FleetOperations(fleet).unowned_servers():
        if each.free_s > UNOWNED_S:
            message = f"no member has had it for {each.free_s:.0f} s"
            yield Finding(f"server {each.server}", Severity.WARN, message, each.why)


def _check_files(differing: list[str]) -> Iterator[Finding]:
    """Yield a warning that names the servers which differ in this member's files."""
    if differing:
        names = ", ".join(sorted(differing))
        yield Finding(
            "CONFIG_DIFFERS",
            Severity.WARN,
            f"in this member's files these servers are not as their owners have them: {names}",
            "give all members the same files, and `hubbub reload` each",
        )
