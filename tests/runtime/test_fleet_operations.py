"""What operators see and change of a fleet, at any of its members."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from hubbub.v1 import fleet_pb2 as pb
from hubbubd.config import ServerConfig
from hubbubd.errors import FailedPrecondition, HubError
from hubbubd.members import Member, MemberStatus
from hubbubd.rpc.servicers.members import FleetAdminService
from hubbubd.runtime.diagnostics.findings import Finding, Severity
from hubbubd.runtime.diagnostics.fleet_checks import check_fleet
from hubbubd.runtime.fleet.operations import FleetOperations
from hubbubd.runtime.ownership import Owner
from hubbubd.store import StoreUnavailable
from hubbubd.telemetry import metrics
from hubbubd.telemetry.meter import Meter, Reading

from ..raising import raising
from .conftest import World, server, settle, until
from .fleet import TTL_S, Members, Place, Running
from .test_fleet import another, http, live_links, of, owner, two_of
from .test_measures import Seen


def at(member: Running) -> FleetOperations:
    return FleetOperations(member.fleet)


def api(member: Running) -> FleetAdminService:
    return FleetAdminService(member.hub)


async def seen_by(member: Running) -> pb.GetFleetResponse:
    return await api(member).get_fleet(pb.GetFleetRequest())


async def refused(work: Any) -> HubError:
    with pytest.raises(HubError) as error:
        await work
    return error.value


def answering(*names: str) -> Any:
    async def answers(owner: Owner) -> bool:
        return owner.member in names

    return answers


async def test_every_member_shows_the_members_and_their_servers(fleet: Members) -> None:
    await of(fleet, "a", "b", servers=(http("one"), http("two")))
    await settle(3)
    for asked in fleet.running.values():
        shown = await seen_by(asked)
        assert shown.member == asked.name
        assert [each.name for each in shown.members] == ["a", "b"]
        assert {s: each.name for each in shown.members for s in each.servers} == {
            name: owner(fleet, name).name for name in ("one", "two")
        }
        assert [each.state for each in shown.members] == [pb.MEMBER_STATE_LIVE] * 2
        assert [(each.address, each.forward) for each in shown.members] == [("a:1", "a:2"), ("b:1", "b:2")]
        assert shown.revision == asked.hub.store.revision
        assert all(each.lag == shown.revision - each.position for each in shown.members)
        assert not shown.unowned


async def test_a_server_is_handed_to_the_member_that_is_named(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    has = owner(fleet)
    for to in sorted(fleet.running.keys() - {has.name}):
        has = owner(fleet)
        moved = await api(has).move_server(pb.MoveServerRequest(server="one", member=to))
        assert moved.member == to
        assert moved.revision <= has.hub.store.revision
        await until(lambda: fleet.owners("one"))
        assert owner(fleet).name == to


async def test_without_a_name_another_member_gets_the_server(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    has = owner(fleet)
    to = await at(has).move("one")
    await until(lambda: fleet.owners("one"))
    assert owner(fleet).name == to != has.name


async def test_a_server_stays_where_it_is_meant_to_be(fleet: Members) -> None:
    await of(fleet, "a", "b")
    has = owner(fleet)
    assert await at(has).move("one", has.name) == has.name
    await settle(5)
    assert has.fleet.owns("one")
    assert len(fleet.peers["one"].links) == 1


async def test_what_cannot_be_moved_is_refused_with_the_reason(fleet: Members) -> None:
    has, there = await two_of(fleet)
    await has.hub.servers.add(server("tool"))
    await until(lambda: has.fleet.owns("tool"))
    assert (await refused(at(has).move("nothing"))).reason == "SERVER_NOT_FOUND"
    assert (await refused(at(has).move("@upkeep"))).reason == "SERVER_NOT_FOUND"
    assert (await refused(at(has).move("one", "zz"))).reason == "MEMBER_NOT_FOUND"
    assert (await refused(at(there).move("one"))).reason == "OWNER_CHANGING"
    stays = await refused(at(has).move("tool", there.name))
    assert (stays.reason, stays.metadata["member"]) == ("SERVER_NOT_MOVABLE", has.name)
    await at(has).set_status(there.name, MemberStatus.DRAINING)
    assert (await refused(at(has).move("one", there.name))).reason == "MEMBER_NOT_LIVE"
    assert (await refused(at(has).move("one"))).reason == "MEMBER_NOT_LIVE"
    await settle(5)
    assert has.fleet.owns("one")


async def test_a_member_drains_and_takes_servers_again_as_any_other_says(fleet: Members) -> None:
    has, there = await two_of(fleet)
    assert (await api(there).drain_member(pb.DrainMemberRequest(member=has.name))).member == has.name
    await until(lambda: there.fleet.owns("one"))
    assert not has.hub.health.is_serving
    assert there.hub.health.is_serving
    assert (await api(there).resume_member(pb.ResumeMemberRequest(member=has.name))).member == has.name
    await until(lambda: has.hub.health.is_serving)
    assert (await api(there).drain_member(pb.DrainMemberRequest())).member == there.name
    await until(lambda: has.fleet.owns("one"))


async def test_who_is_gone_neither_drains_nor_resumes(fleet: Members) -> None:
    dead, left = await two_of(fleet)
    dead.kill()
    await until(lambda: left.fleet.owns("one"))
    for status in (MemberStatus.DRAINING, MemberStatus.LIVE):
        gone = await refused(at(left).set_status(dead.name, status))
        assert (gone.reason, "is gone" in str(gone)) == ("MEMBER_NOT_LIVE", True)
    assert (await refused(at(left).set_status("zz", MemberStatus.LIVE))).reason == "MEMBER_NOT_FOUND"


async def test_a_member_that_is_dead_is_not_waited_for(fleet: Members) -> None:
    dead, left = await two_of(fleet)
    await settle(TTL_S)
    dead.kill()
    died = anyio.current_time()
    lives = await refused(at(left).expel(dead.name, dead=False, force=False))
    assert lives.reason == "MEMBER_LIVES"
    assert (await api(left).expel_member(pb.ExpelMemberRequest(member=dead.name, dead=True))).member == dead.name
    await until(lambda: left.fleet.owns("one"))
    assert anyio.current_time() - died < 2.5
    assert await at(left).expel(dead.name, dead=True, force=False) == dead.name


async def test_a_member_that_answers_is_expelled_only_by_force_and_starts_anew(fleet: Members) -> None:
    has, left = await two_of(fleet)
    left.fleet.answers = answering(has.name)
    lives = await refused(at(left).expel(has.name, dead=True, force=False))
    assert (lives.reason, f"{has.name}:2" in str(lives)) == ("MEMBER_LIVES", True)
    assert has.fleet.may_act()
    await at(left).expel(has.name, dead=True, force=True)
    await has.fleet.lost.wait()
    await until(lambda: left.fleet.owns("one"))


async def test_no_member_expels_itself(fleet: Members) -> None:
    await of(fleet, "a")
    refusal = await refused(at(fleet.running["a"]).expel("a", dead=True, force=True))
    assert refusal.reason == "MEMBER_LIVES"


async def test_an_overdue_member_is_expelled_without_a_word_that_it_is_dead(fleet: Members) -> None:
    await of(fleet, "a", "b")
    dead, left = fleet.running["a"], fleet.running["b"]
    await settle(TTL_S)
    dead.kill()
    row = fleet.database.rows["a"]
    row.expires_at = anyio.current_time() - 1
    assert await at(left).expel("a", dead=False, force=False) == "a"
    assert row.member.status is MemberStatus.GONE


async def test_a_server_without_an_owner_is_listed_with_what_to_do(fleet: Members) -> None:
    await of(fleet, "a", "b", servers=())
    home, left = fleet.running["b"], fleet.running["a"]
    await home.hub.servers.add(server("tool"))
    await until(lambda: home.fleet.owns("tool"))
    await settle(2)
    home.kill()
    await settle(60)
    (found,) = (await seen_by(left)).unowned
    assert found.server == "tool"
    assert "added: at b, which does not live: start it" in found.why
    assert found.since.ToSeconds() > 30
    assert [each.about for each in await findings(left) if each.severity is Severity.WARN] == ["fleet", "server tool"]


async def test_a_server_that_no_live_member_has_in_a_file_says_so(fleet: Members) -> None:
    await fleet.start("a")
    await fleet.start("b", http())
    await until(lambda: live_links(fleet) == 1)
    await settle(2)
    fleet.running["b"].kill()
    (words,) = [each.why async for each in why_over_time(fleet.running["a"])]
    assert "has it in its configuration file" in words


async def why_over_time(member: Running) -> AsyncGenerator[pb.UnownedServer]:
    await settle(60)
    for each in (await seen_by(member)).unowned:
        yield each


async def test_when_all_drain_nobody_takes_servers_and_that_is_the_reason(fleet: Members) -> None:
    await of(fleet, "a", "b")
    one = fleet.running["a"]
    for name in "ab":
        await at(one).set_status(name, MemberStatus.DRAINING)
    await until(lambda: not fleet.owners("one"))
    await settle(2)
    (found,) = (await seen_by(one)).unowned
    assert found.why.startswith("no member takes servers")


async def test_a_server_that_has_just_become_free_is_about_to_be_taken(fleet: Members) -> None:
    dead, left = await two_of(fleet)
    await settle(TTL_S)
    dead.kill()
    await left.fleet.set_status(fleet.database.rows[dead.name].member, MemberStatus.GONE)
    (found,) = at(left).unowned_servers()
    assert "has just become free" in found.why


async def test_the_key_of_the_vault_is_rotated_where_it_is_asked(fleet: Members) -> None:
    await of(fleet, "a")
    one = fleet.running["a"]

    async def rotated() -> tuple[int, int]:
        return 3, 4

    one.fleet.rotate_key = rotated
    done = await api(one).rotate_vault_key(pb.RotateVaultKeyRequest())
    assert (done.sealed, done.rows) == (3, 4)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("get_fleet", pb.GetFleetRequest()),
        ("move_server", pb.MoveServerRequest(server="one")),
        ("drain_member", pb.DrainMemberRequest()),
        ("resume_member", pb.ResumeMemberRequest()),
        ("expel_member", pb.ExpelMemberRequest(member="a")),
        ("rotate_vault_key", pb.RotateVaultKeyRequest()),
        ("finish_upgrade", pb.FinishUpgradeRequest()),
    ],
)
async def test_a_hub_without_a_fleet_says_so(world: World, method: str, request_: Any) -> None:
    async with world.hub() as hub:
        with raising(FailedPrecondition, "NO_FLEET"):
            await getattr(FleetAdminService(hub), method)(request_)


async def test_a_member_serves_only_while_it_may_act(fleet: Members) -> None:
    await of(fleet, "a", "b")
    one = fleet.running["a"]
    watch = one.hub.health.watch()
    assert await anext(watch)
    fleet.database.away = True
    while await anext(watch):
        pass
    assert not one.fleet.may_act()
    fleet.database.away = False
    while not await anext(watch):
        pass
    assert one.fleet.may_act()
    await watch.aclose()


async def findings(member: Running) -> list[Finding]:
    return await check_fleet(member.fleet, member.hub.servers.candidates.find_differing(), member.hub.clock.now())


async def test_a_fleet_that_is_well_has_only_good_findings(fleet: Members) -> None:
    await of(fleet, "a", "b")
    await settle(2)
    assert {each.severity for each in await findings(fleet.running["a"])} == {Severity.OK}


@pytest.mark.parametrize(
    ("ahead_s", "standbys", "expected"),
    [
        (0.2, 0, {"standby of the database": "no synchronous one is there"}),
        (3.0, 1, {"clock of the fleet": "this member's clock is 3.0 s behind the database's"}),
        (-3.0, 1, {"clock of the fleet": "this member's clock is 3.0 s ahead of the database's"}),
        (0.0, None, {}),
    ],
)
async def test_what_an_operator_should_look_at_is_found(
    fleet: Members, ahead_s: float, standbys: int | None, expected: dict[str, str]
) -> None:
    await of(fleet, "a", "b")
    await settle(2)
    one = fleet.running["a"]
    fleet.wrong_s["a"], fleet.database.standbys = -ahead_s, standbys
    assert {each.about: each.message for each in await findings(one) if each.severity is not Severity.OK} == expected


async def test_a_database_that_is_away_is_a_finding(fleet: Members) -> None:
    await of(fleet, "a", "b")
    fleet.database.away = True
    assert Severity.FAIL in {each.severity for each in await findings(fleet.running["a"])}


async def test_a_server_that_this_member_s_file_has_otherwise_is_a_finding(fleet: Members) -> None:
    await fleet.start("a", http())
    await until(lambda: live_links(fleet) == 1)
    other: ServerConfig = server("one", command=None, url="http://127.0.0.1:2/mcp")
    there = await fleet.start("b", other)
    await settle(5)
    (found,) = [each for each in await findings(there) if each.about == "CONFIG_DIFFERS"]
    assert found.message.endswith("one")
    assert not [each for each in await findings(fleet.running["a"]) if each.about == "CONFIG_DIFFERS"]


async def test_the_fleet_is_measured_by_each_member(fleet: Members) -> None:
    seen = {name: Seen() for name in "ab"}
    fleet.meters = {name: each.meter for name, each in seen.items()}
    await of(fleet, "a", "b")
    await settle(TTL_S)
    has = owner(fleet)
    left = another(fleet, has)
    mine, others = seen[has.name], seen[left.name]
    assert mine.value(metrics.FLEET_MEMBERS, state="live") == 2
    assert (mine.value(metrics.FLEET_OWNED), others.value(metrics.FLEET_OWNED)) == (1, 0)
    assert mine.value(metrics.FLEET_TAKEOVERS, why="new") == 1
    assert 0 < mine.value(metrics.FLEET_LEASE) <= TTL_S
    assert (mine.value(metrics.FLEET_CLOCK), mine.value(metrics.FLEET_UNOWNED)) == (0, 0)
    assert mine.value(metrics.FLEET_LAG) >= 0
    has.store.sever(cut=True)
    await until(lambda: left.fleet.owns("one"))
    assert others.value(metrics.FLEET_TAKEOVERS, why="owner_gone") == 1
    assert others.summed(metrics.FLEET_TAKEOVER, why="owner_gone")[0] == 1
    assert others.value(metrics.FLEET_MEMBERS, state="gone") == 1
    has.store.sever(cut=False)
    await has.fleet.lost.wait()
    await settle(1)
    assert mine.value(metrics.FLEET_FENCED) == 1


async def test_a_member_that_has_not_looked_yet_is_measured(fleet: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: Place) -> list[Member]:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(Place, "members", away)
    seen = Seen()
    fleet.meters = {"a": seen.meter}
    await fleet.start("a", http())
    assert seen.value(metrics.FLEET_MEMBERS, state="live") == 0
    assert (seen.value(metrics.FLEET_LAG), seen.value(metrics.FLEET_OWNED)) == (0, 0)


async def test_a_member_may_be_measured_as_soon_as_it_says_how(fleet: Members) -> None:
    readings = Counter[metrics.Metric]()

    class Hasty(Meter):
        on = True

        def observe(self, metric: metrics.Metric, read: Callable[[], Iterable[Reading]]) -> None:
            if metric.name.startswith("hubbub.fleet."):
                with suppress(AttributeError):  # what is missing then must not keep the member from starting
                    readings[metric] += len(list(read()))

    fleet.meters = {"a": Hasty()}
    await fleet.start("a", http())
    assert readings[metrics.FLEET_LAG] == 1


async def test_a_server_that_was_handed_on_or_came_back_is_measured_as_such(fleet: Members) -> None:
    seen = {name: Seen() for name in "ab"}
    fleet.meters = {name: each.meter for name, each in seen.items()}
    has, left = await two_of(fleet)
    await at(has).move("one", left.name)
    await until(lambda: left.fleet.owns("one"))
    assert seen[left.name].value(metrics.FLEET_TAKEOVERS, why="handed_on") == 1
    left.kill()
    await until(lambda: left.name not in fleet.running)
    again = await fleet.start(left.name, http())
    await until(lambda: again.fleet.owns("one"))
    assert seen[left.name].value(metrics.FLEET_TAKEOVERS, why="restarted") == 1


async def test_the_store_of_a_member_that_is_away_refuses_operations(fleet: Members) -> None:
    await of(fleet, "a", "b")
    fleet.database.away = True
    with pytest.raises(Exception, match="away"):
        await at(fleet.running["a"]).set_status("b", MemberStatus.DRAINING)
