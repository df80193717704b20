"""Checks of a fleet, by one of its members: clocks, standbys, servers without an owner, files that differ."""

from collections.abc import Iterator

from hubbubd.runtime.findings import Finding, Severity
from hubbubd.runtime.fleet import Fleet
from hubbubd.runtime.fleet_operations import Operations
from hubbubd.store import StoreUnavailable

CLOCKS_S = 1.0
"""Seconds by which a member's clock may differ from the database's."""

UNOWNED_S = 30.0
"""Seconds that a server may have no owner: longer than a member's end is noticed late."""


async def checked(fleet: Fleet, differing: list[str]) -> list[Finding]:
    """Return what an operator should know. `differing` are servers that this member's files have otherwise."""
    return [_members(fleet), _clock(fleet), await _standby(fleet), *_unowned(fleet), *_files(differing)]


def _members(fleet: Fleet) -> Finding:
    members = [each for each in fleet.members() if each.serves]
    others = ", ".join(each.name for each in members if each.name != fleet.me)
    if not others:
        advice = "start another, or resume one that drains (hubbub fleet status)"
        return Finding("fleet", Severity.WARN, f"no member but {fleet.me} takes servers", advice)
    return Finding("fleet", Severity.OK, f"{fleet.me}, with {others}")


def _clock(fleet: Fleet) -> Finding:
    about, off_s = "clock of the fleet", fleet.ahead_s
    if abs(off_s) <= CLOCKS_S:
        return Finding(about, Severity.OK, f"differs from the database's by {abs(off_s):.2f} s")
    how = "behind" if off_s > 0 else "ahead of"
    return Finding(
        about,
        Severity.WARN,
        f"this member's clock is {abs(off_s):.1f} s {how} the database's",
        "let NTP set the clocks of all members and of the database",
    )


async def _standby(fleet: Fleet) -> Finding:
    about, advice = (
        "standby of the database",
        "have a synchronous standby, so that a failover loses nothing (docs/store.md)",
    )
    try:
        standbys = await fleet.standbys()
    except StoreUnavailable as exc:
        return Finding(about, Severity.FAIL, str(exc), "see that the database runs")
    if standbys is None:
        seen = "GRANT pg_monitor to the account of the hub"
        return Finding(about, Severity.OK, "a synchronous one is configured; whether it is there cannot be seen", seen)
    if not standbys:
        return Finding(about, Severity.WARN, "no synchronous one is there", advice)
    return Finding(about, Severity.OK, f"{standbys} synchronous")


def _unowned(fleet: Fleet) -> Iterator[Finding]:
    for each in Operations(fleet).unowned():
        if each.since_s > UNOWNED_S:
            message = f"no member has had it for {each.since_s:.0f} s"
            yield Finding(f"server {each.server}", Severity.WARN, message, each.why)


def _files(differing: list[str]) -> Iterator[Finding]:
    if differing:
        names = ", ".join(sorted(differing))
        yield Finding(
            "CONFIG_DIFFERS",
            Severity.WARN,
            f"in this member's files these servers are not as their owners have them: {names}",
            "give all members the same files, and `hubbub reload` each",
        )
