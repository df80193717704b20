"""A fleet of hubs over one store: each server has one owner, and what one member does the others know."""

import random
from dataclasses import replace
from typing import Any

import anyio
import pytest

from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery, RequestState
from hubbubd.errors import Unavailable
from hubbubd.members import MemberStatus
from hubbubd.runtime.fleet.operations import FleetOperations
from hubbubd.runtime.ownership import UPKEEP, Owner
from hubbubd.store import StoreUnavailable
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import FORM, open_requests, question, server, settle, spec, until
from .fleet import TTL_S, Members, Running
from .mortal import DONE, ELICIT, needs
from .peer import Outcome, Sent, gives, never


def http(name: str = "one", **options: Any) -> ServerConfig:
    return server(name, command=None, url="http://127.0.0.1:1/mcp", **options)


def owner(fleet: Members, name: str = "one") -> Running:
    """The member that has a server."""
    (found,) = [each for each in fleet.running.values() if each.fleet.owns(name)]
    return found


def another(fleet: Members, one: Running) -> Running:
    return next(each for each in fleet.running.values() if each is not one)


def live_links(fleet: Members, name: str = "one") -> int:
    return sum(link.lost is None for link in fleet.peers[name].links)


async def of(fleet: Members, *names: str, servers: tuple[ServerConfig, ...] = (http(),)) -> None:
    """Start members, and wait until all servers are connected."""
    for name in names:
        await fleet.start(name, *servers)
    await until(lambda: all(live_links(fleet, each.name) == 1 for each in servers))
    await settle(1)


async def two_of(fleet: Members) -> tuple[Running, Running]:
    """Start `a` and `b`; return the one that has the server `one`, and the other."""
    await of(fleet, "a", "b")
    return owner(fleet), another(fleet, owner(fleet))


async def test_a_call_in_rounds_goes_on_where_its_server_goes(fleet: Members) -> None:
    peer = fleet.peers["one"]
    peer.era = Era.STATELESS
    results = [needs(a=ELICIT), DONE]

    async def serve(_sent: Sent) -> Outcome:
        return results.pop(0)

    peer.behaviour = serve
    await of(fleet, "a", "b", "c")
    dead = owner(fleet)
    await dead.hub.calls.start(spec(call_id="c"), "me")
    request = await question(dead.hub)
    dead.kill()
    await until(lambda: fleet.owners("one"))
    there = another(fleet, owner(fleet)).hub
    assert there.inbox.get(request.id).state is RequestState.OPEN
    await there.inbox.answer(request.id, Accept({"name": "x"}), "ann", answer_id=None, claim_id=None)
    await until(lambda: there.calls.get("c").state.ended)
    assert there.calls.get("c").state is CallState.COMPLETED
    assert there.inbox.get(request.id).delivery is Delivery.DELIVERED


async def test_what_a_dead_member_had_sent_ends_as_it_may_have_been_carried_out(fleet: Members) -> None:
    fleet.peers["one"].behaviour = never
    await of(fleet, "a", "b")
    dead = owner(fleet)
    await dead.hub.calls.start(spec(call_id="c"), "me")
    fleet.peers["one"].link.ask("elicitation/create", FORM)
    request = await question(dead.hub)
    left = another(fleet, dead).hub
    await until(lambda: left.calls.get("c").state is not CallState.QUEUED)
    dead.kill()
    await until(lambda: left.calls.get("c").state.ended)
    fault = left.calls.get("c").fault
    assert fault.code == "OWNER_LOST"
    await until(lambda: left.inbox.get(request.id).state is RequestState.WITHDRAWN)


async def test_a_call_that_its_caller_has_named_is_known_before_it_is_sent(fleet: Members) -> None:
    known = list[bool]()

    async def serve(_sent: Sent) -> Outcome:
        await settle()  # others hear of it
        known.append(all(each.hub.calls.has_call("named") for each in fleet.running.values()))
        return DONE

    fleet.peers["one"].behaviour = serve
    await of(fleet, "a", "b")
    await owner(fleet).hub.calls.call(spec(call_id="named"), "me")
    assert known == [True]


async def test_a_worker_holds_a_question_no_longer_than_its_member_lives(fleet: Members) -> None:
    fleet.peers["one"].era = Era.STATELESS
    fleet.peers["one"].behaviour = gives(needs(a=ELICIT))
    has, left = await two_of(fleet)
    with has.hub.work.join("agent", RequestFilter(), 1):
        await has.hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: open_requests(left.hub) and open_requests(left.hub)[0].claim is not None)
        await settle(100)
        assert open_requests(left.hub)[0].claim is not None  # renewed
        has.kill()
        died = anyio.current_time()
        await until(lambda: open_requests(left.hub)[0].claim is None)
        assert anyio.current_time() - died <= 31


async def test_nothing_moves_while_the_database_is_away_and_nobody_acts(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    has = owner(fleet)
    fleet.database.away = True
    await settle(TTL_S)
    assert fleet.owners("one") == []
    await settle(2 * TTL_S)
    fleet.database.away = False
    await until(lambda: fleet.owners("one"))
    await settle(3 * TTL_S)
    assert owner(fleet) is has
    assert len(fleet.peers["one"].links) == 1


async def test_a_member_that_is_cut_off_stops_to_act_before_another_begins(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    cut = owner(fleet)
    cut.store.sever(cut=True)
    while len(fleet.peers["one"].links) == 1:
        assert len(fleet.owners("one")) <= 1
        await anyio.sleep(0.05)
    assert not cut.fleet.may_act()
    assert cut.fleet.owns("one")  # it cannot know
    assert owner_but(fleet, cut).name != cut.name
    cut.store.sever(cut=False)
    await cut.fleet.lost.wait()


def owner_but(fleet: Members, cut: Running) -> Running:
    (found,) = [each for each in fleet.running.values() if each.fleet.owns("one") and each is not cut]
    return found


async def test_a_server_is_moved_when_nothing_is_under_way(fleet: Members) -> None:
    peer, done = fleet.peers["one"], anyio.Event()
    peer.behaviour = gives(DONE, once=done)
    await of(fleet, "a", "b", "c")
    has = owner(fleet)
    to = another(fleet, has)
    await has.hub.calls.start(spec(call_id="c"), "me")
    await until(lambda: peer.sent)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(has.fleet.move, "one", to.name)
        await settle(1)
        with raising(Unavailable, "MOVED"):
            await has.hub.calls.start(spec(call_id="later"), "me")
        done.set()
    await until(lambda: to.fleet.owns("one") and live_links(fleet) == 1)
    assert to.hub.calls.get("c").state is CallState.COMPLETED
    await to.hub.calls.start(spec(call_id="later"), "me")
    await until(lambda: has.hub.calls.has_call("later") and has.hub.calls.get("later").state is CallState.COMPLETED)


async def test_a_member_that_drains_has_nothing_left_and_takes_nothing(fleet: Members) -> None:
    names = [f"s{number}" for number in range(8)]
    await of(fleet, "a", "b", servers=tuple(map(http, names)))
    draining = owner(fleet, "s0")
    left = another(fleet, draining)
    await FleetOperations(left.fleet).set_status(draining.name, MemberStatus.DRAINING)
    await until(lambda: all(left.fleet.owns(name) for name in (*names, UPKEEP)))
    await settle(30)
    assert not any(map(draining.fleet.owns, names))
    await FleetOperations(left.fleet).set_status(draining.name, MemberStatus.LIVE)
    await settle(2)
    left.kill()
    await until(lambda: all(map(draining.fleet.owns, names)))


async def test_a_server_that_could_not_be_taken_at_first_is_taken_later(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    has, other = await two_of(fleet)
    tried: list[Any] = []

    async def refuse(*what: Any) -> int:
        tried.append(what)
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as away:
        away.setattr(other.store, "commit", refuse)
        has.kill()
        await until(lambda: len(tried) > 2)
        assert fleet.owners("one") == []
    await until(lambda: other.fleet.owns("one"))


async def test_a_member_that_does_not_serve_yet_is_not_asked(fleet: Members) -> None:
    await of(fleet, "a", "b")
    has = owner(fleet)
    other, row = another(fleet, has), fleet.database.rows[has.name]
    row.member, reached = replace(row.member, forward=""), row.member.forward
    await until(lambda: other.fleet.owner("one") is None and other.fleet.others() == [])
    row.member = replace(row.member, forward=reached)
    await until(lambda: other.fleet.owner("one") == Owner(has.name, 1, reached))


async def test_servers_are_shared_out_among_members_that_come_later(fleet: Members) -> None:
    fleet.settings["rebalance"] = True
    names = [f"s{number}" for number in range(9)]
    await of(fleet, "a", servers=tuple(map(http, names)))
    for name in ("b", "c"):
        await fleet.start(name, *map(http, names))
    await settle(60)
    shares = sorted(sum(map(each.fleet.owns, names)) for each in fleet.running.values())
    assert shares[0] >= 2
    assert sum(shares) == 9
    links = {name: len(fleet.peers[name].links) for name in names}
    await settle(1200)
    assert {name: len(fleet.peers[name].links) for name in names} == links  # and then stay where they are


async def test_a_server_of_a_file_is_taken_where_a_file_has_it(fleet: Members) -> None:
    await fleet.start("a")
    await fleet.start("b", http())
    await until(lambda: live_links(fleet) == 1)
    assert owner(fleet).name == "b"
    fleet.running["b"].kill()
    await settle(60)
    assert live_links(fleet) == 0


async def test_a_server_that_nobody_can_have_is_removed_by_anybody(fleet: Members) -> None:
    await of(fleet, "a", "b", servers=())
    await fleet.running["b"].hub.servers.add(server("tool"))
    await until(lambda: fleet.running["b"].fleet.owns("tool"))
    fleet.running["b"].kill()
    left = fleet.running["a"]
    with pytest.raises(Unavailable):
        await left.hub.servers.remove("tool")
    await until(lambda: left.fleet.is_free("tool"))
    await left.hub.servers.remove("tool")
    await settle(5)
    assert left.hub.servers.find("tool") is None
    assert left.fleet.lease("tool") is None


async def test_what_needs_the_owner_is_refused_elsewhere(fleet: Members) -> None:
    await of(fleet, "a", "b")
    there = another(fleet, owner(fleet)).hub
    for act in (there.servers.connect("one"), there.servers.disconnect("one"), there.calls.call(spec(), "me")):
        with raising(Unavailable, "OWNER_CHANGING"):
            await act


async def test_who_has_the_server_and_where_it_is_reached_is_known_elsewhere(fleet: Members) -> None:
    await of(fleet, "a", "b")
    has = owner(fleet)
    there = another(fleet, has).fleet
    await settle(3)
    found = there.owner("one")
    assert (found.member, found.forward) == (has.name, f"{has.name}:2")
    assert has.fleet.owner("one") is None
    assert [each.member for each in there.others()] == [has.name]


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_to_members_nobody_acts_beside_an_owner(fleet: Members, seed: int) -> None:
    chance = random.Random(seed)
    servers = tuple(map(http, ("one", "two", "three")))
    await of(fleet, "a", "b", "c", servers=servers)
    for _ in range(40):
        one = fleet.running.get(chance.choice("abc"))
        match chance.choice(("cut", "join", "kill", "start", "away", "back", "wait")):
            case "cut" if one is not None:
                one.store.sever(cut=True)
            case "join" if one is not None:
                one.store.sever(cut=False)
            case "kill" if one is not None:
                one.kill()
            case "start":
                for name in set("abc") - fleet.running.keys():
                    await fleet.start(name, *servers) if not fleet.database.away else None
            case "away":
                fleet.database.away = True
            case "back":
                fleet.database.away = False
            case _:
                pass
        for _ in range(chance.randrange(100)):
            await anyio.sleep(0.1)
            assert all(len(fleet.owners(each.name)) <= 1 for each in servers)
    fleet.database.away = False
    for one in list(fleet.running.values()):
        one.store.sever(cut=False)
    await settle(10)
    for name in set("abc") - fleet.running.keys():
        await fleet.start(name, *servers)
    await until(lambda: all(len(fleet.owners(each.name)) == 1 for each in servers))
    await settle(20)
    assert all(live_links(fleet, each.name) == 1 for each in servers)
