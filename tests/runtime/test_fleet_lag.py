"""A member that does not hear of what others commit is given no work; one that is only late is."""

from dataclasses import dataclass, field, replace

import anyio
from structlog.testing import capture_logs

from hubbubd.members import Member, MemberStatus
from hubbubd.runtime.diagnostics.findings import Finding, Severity
from hubbubd.runtime.diagnostics.fleet_checks import check_fleet
from hubbubd.runtime.fleet.measures import LONGEST_STEP_S, STALLED_S, Lag

from .conftest import settle, until
from .fleet import TTL_S, Members, Running
from .test_fleet import another, http, of, owner

TOLD_S = 2.0
"""Until then a member has looked, and told who watches its health."""


def commit(member: Running) -> None:
    member.hub.audit.note("TakeOverServer", "one")


async def findings(member: Running) -> list[Finding]:
    return await check_fleet(member.fleet, [], member.hub.clock.now())


async def deaf(fleet: Members) -> tuple[Running, Running]:
    """Two members, of which the first one has stopped to hear of the other's commits, and has told."""
    await of(fleet, "a", "b")
    await settle(TTL_S)
    commits = owner(fleet)
    hears = another(fleet, commits)
    hears.store.held = True
    commit(commits)
    await until(lambda: not hears.hub.health.is_serving)
    return hears, commits


async def test_a_member_that_hears_nothing_more_does_not_serve_until_it_has_caught_up(fleet: Members) -> None:
    began = anyio.current_time()
    with capture_logs() as logs:
        hears, commits = await deaf(fleet)
        assert anyio.current_time() - began > STALLED_S
        assert hears.fleet.may_act()
        assert commits.hub.health.is_serving
        assert [each.about for each in await findings(hears) if each.severity is Severity.FAIL] == [
            "changes of the fleet"
        ]
        watch = hears.hub.health.watch()
        assert not await anext(watch)
        await settle(60)
        assert not hears.hub.health.is_serving
        hears.store.held = False
        hears.store.release()
        assert hears.hub.health.is_serving
        with anyio.fail_after(TOLD_S):
            assert await anext(watch)
        await watch.aclose()
        await settle(10)
    said = [each["event"] for each in logs if "others' changes" in each["event"]]
    assert said == [
        "this member does not hear of others' changes; it is to be given no work",
        "this member hears of others' changes again",
    ]


async def test_a_member_that_hears_nothing_more_serves_for_some_seconds(fleet: Members) -> None:
    await of(fleet, "a", "b")
    await settle(TTL_S)
    commits = owner(fleet)
    hears = another(fleet, commits)
    hears.store.held = True
    commit(commits)
    began = anyio.current_time()
    await until(lambda: not hears.hub.health.is_serving)
    assert STALLED_S < anyio.current_time() - began < STALLED_S + 4


async def test_a_member_that_is_behind_and_moves_serves(fleet: Members) -> None:
    await of(fleet, "a", "b")
    await settle(TTL_S)
    commits = owner(fleet)
    hears = another(fleet, commits)
    hears.store.held = True
    behind = 0
    for _ in range(60):
        for _ in range(2):
            commit(commits)
            await settle(0.5)
        behind += hears.fleet.lag.revisions_behind() > 0
        assert hears.hub.health.is_serving
        hears.store.release(1)
    assert behind > 40


async def test_a_member_that_nobody_is_ahead_of_serves_however_long_nothing_happens(fleet: Members) -> None:
    await of(fleet, "a", "b")
    for each in fleet.running.values():
        each.store.held = True
    await settle(600)
    assert all(each.hub.health.is_serving for each in fleet.running.values())


async def test_a_fleet_whose_database_was_away_serves_when_it_is_back(fleet: Members) -> None:
    await of(fleet, "a", "b")
    await settle(TTL_S)
    fleet.database.away = True
    await settle(60)
    fleet.database.away = False
    await settle(TOLD_S)
    assert all(each.hub.health.is_serving for each in fleet.running.values())
    assert await fleet.start("c", http())


@dataclass
class Scripted:
    """A lag, and all that it depends on."""

    now: float = 100.0
    position: int = 10
    others: list[Member] = field(default_factory=list[Member])

    def __post_init__(self) -> None:
        self.lag = Lag("a", lambda: self.position, lambda: self.others, lambda: self.now)

    def other(self, position: int, status: MemberStatus = MemberStatus.LIVE) -> None:
        self.others = [
            Member(
                name="b",
                term=1,
                status=status,
                address="",
                forward="",
                version="1",
                position=position,
                overdue=False,
            )
        ]

    def look(self, after_s: float = 1.0) -> bool:
        self.now += after_s
        self.lag.observe()
        return self.lag.receives_changes()


def test_a_process_that_was_stopped_has_not_been_deaf_for_all_that_time() -> None:
    one = Scripted()
    one.other(11)
    assert one.look()
    assert one.look(after_s=1000)
    assert one.look(after_s=LONGEST_STEP_S)
    assert not one.look(after_s=LONGEST_STEP_S)


def test_a_member_is_deaf_only_if_it_never_moves() -> None:
    one = Scripted()
    assert one.look()
    one.other(1000)
    assert all(one.look() for _ in range(6))
    assert not one.look()
    one.position += 1
    assert one.lag.receives_changes()
    assert all(one.look() for _ in range(6))
    assert not one.look()
    one.position = 1000
    assert one.lag.receives_changes()
    assert one.look()


def test_what_a_member_had_read_that_is_gone_is_no_reason() -> None:
    one = Scripted()
    one.other(1000)
    assert not [one.look() for _ in range(10)][-1]
    one.others = [replace(one.others[0], status=MemberStatus.GONE)]
    assert one.look()
    assert one.lag.revisions_behind() == 990
