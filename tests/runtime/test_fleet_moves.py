"""Servers that are taken and left while the store refuses, callers give up, or something else happens to them."""

from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest

from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter, RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.core.servers.server_record import NOBODY
from hubbubd.errors import Unavailable
from hubbubd.runtime.fleet.member import GIVING_UP_S
from hubbubd.runtime.ownership import Takeover
from hubbubd.store import OutcomeUnknown, Precondition, StoreUnavailable, Write, WriteConflict
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import FORM, open_requests, question, server, settle, spec, until
from .fleet import Members, Running
from .mortal import DONE, ELICIT, needs
from .peer import Outcome, Sent, gives, never
from .test_fleet import another, http, live_links, of, owner, two_of

LEASE = "lease/one"

Commit = Callable[[Sequence[Write], Sequence[Precondition]], Awaitable[int]]


def commits_by(one: Running, how: Callable[[Commit, Sequence[Write], Sequence[Precondition]], Awaitable[int]]) -> None:
    """Has a member commit by a detour."""
    direct = one.store.commit

    async def commit(writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        return await how(direct, writes, guards)

    one.store.commit = commit  # type: ignore[method-assign]


def remote(name: str = "one") -> ServerConfig:
    """A server that may be added over the API."""
    return server(name, command=None, url="https://example.org/mcp")


def about(writes: Sequence[Write], key: str = LEASE) -> bool:
    return any(write.key == key for write in writes)


def slow(one: Running, seconds: float) -> None:
    """Has a member take its time when it takes servers."""
    taken = one.hub.inbox.take_over

    async def take(taking: Takeover) -> None:
        await anyio.sleep(seconds)
        await taken(taking)

    one.hub.inbox.take_over = take  # type: ignore[method-assign]


async def in_one_place(fleet: Members, one: Running) -> None:
    """Waits until a member has the server, and looks that nobody else does anything with it for a while."""
    await until(lambda: one.fleet.owns("one") and live_links(fleet) == 1)
    await settle(10)
    assert fleet.owners("one") == [one.name]
    assert live_links(fleet) == 1


async def test_what_the_store_refuses_to_be_taken_is_taken_once_it_can_be(fleet: Members) -> None:
    await of(fleet, "a", "b", servers=())
    await settle(5)
    a, b = fleet.running["a"], fleet.running["b"]
    await a.hub.servers.add(remote())
    a.store.failures = b.store.failures = 10**9
    await settle(10)
    assert fleet.owners("one") == []
    a.store.failures = b.store.failures = 0
    await until(lambda: fleet.owners("one"))


async def test_a_server_that_cannot_be_taken_keeps_no_other_from_being_taken(fleet: Members) -> None:
    await of(fleet, "a", servers=())
    a = fleet.running["a"]

    async def refuse(direct: Commit, writes: Sequence[Write], guards: Sequence[Precondition]) -> int:
        if about(writes):
            raise StoreUnavailable("away")
        return await direct(writes, guards)

    commits_by(a, refuse)
    await a.hub.servers.add(remote())
    await a.hub.servers.add(remote("two"))
    await until(lambda: live_links(fleet, "two") == 1)
    assert fleet.owners("one") == []


async def test_a_member_goes_on_to_look_after_an_error_that_nobody_has_thought_of(fleet: Members) -> None:
    await of(fleet, "a", servers=())
    a = fleet.running["a"]

    async def broken(_direct: Commit, _writes: Sequence[Write], _guards: Sequence[Precondition]) -> int:
        raise RuntimeError("unexpected")

    direct = a.store.commit
    await a.hub.servers.add(remote())
    commits_by(a, broken)
    await settle(10)
    a.store.commit = direct  # type: ignore[method-assign]
    await until(lambda: fleet.owners("one") and live_links(fleet) == 1)


async def test_a_server_whose_taking_fails_half_way_is_connected_once_and_keeps_what_it_has_asked(
    fleet: Members,
) -> None:
    await of(fleet, "a", "b", servers=())
    await fleet.running["a"].hub.servers.add(remote())
    await until(lambda: live_links(fleet) == 1)
    dead = owner(fleet)
    left = another(fleet, dead)
    taken, failures = left.hub.calls.end_unresumed, [1, 2]

    async def take(taking: Takeover) -> None:
        if failures:
            failures.pop()
            raise Unavailable("away", reason="STORE_UNAVAILABLE")
        await taken(taking)

    left.hub.calls.end_unresumed = take  # type: ignore[method-assign]
    dead.kill()
    await until(lambda: len(failures) < 2 and live_links(fleet) == 1)
    fleet.peers["one"].link.ask("elicitation/create", FORM)
    request = await question(left.hub)
    call = await left.hub.calls.start(spec(call_id="c"), "me")
    await settle(10)
    assert not failures
    assert len(fleet.peers["one"].links) == 2
    assert left.hub.inbox.get(request.id).state is RequestState.OPEN
    assert left.hub.calls.get(call.id).state is CallState.COMPLETED


async def test_a_server_that_is_moved_while_it_is_taken_is_in_one_place(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    owner(fleet).kill()
    for one in fleet.running.values():
        slow(one, 5)
    await until(lambda: any(each.fleet.owns("one") for each in fleet.running.values()))
    taking = owner(fleet)
    to = another(fleet, taking)
    await taking.fleet.move("one", to.name)
    await in_one_place(fleet, to)


async def test_a_move_goes_on_when_its_caller_gives_up(fleet: Members) -> None:
    peer, done = fleet.peers["one"], anyio.Event()
    peer.behaviour = gives(DONE, once=done)
    has, to = await two_of(fleet)
    await has.hub.calls.start(spec(call_id="c"), "me")
    await until(lambda: peer.sent)
    with anyio.move_on_after(1):
        await has.fleet.move("one", to.name)
    done.set()
    await in_one_place(fleet, to)
    assert to.hub.calls.get("c").state is CallState.COMPLETED


async def test_a_server_that_was_moved_with_difficulty_takes_calls_when_it_comes_back(fleet: Members) -> None:
    has, to = await two_of(fleet)
    await has.hub.calls.call(spec(), "me")
    has.store.failures = 2  # the end of the call is not written yet
    await has.fleet.move("one", to.name)
    await in_one_place(fleet, to)
    await to.fleet.move("one", has.name)
    await in_one_place(fleet, has)
    assert (await has.hub.calls.call(spec(), "me")).state is CallState.COMPLETED


async def test_who_waits_for_a_call_that_goes_on_elsewhere_is_told_so(fleet: Members) -> None:
    fleet.peers["one"].era = Era.STATELESS
    results = [needs(a=ELICIT), DONE]

    async def serve(_sent: Sent) -> Outcome:
        return results.pop(0)

    fleet.peers["one"].behaviour = serve
    has, to = await two_of(fleet)

    async def move() -> None:
        await question(has.hub)
        await has.fleet.move("one", to.name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(move)
        with raising(Unavailable, "OWNER_LOST"):  # not to be sent again by itself, as after MOVED
            await has.hub.calls.call(spec(call_id="c"), "me")
    await in_one_place(fleet, to)
    request = await question(to.hub)
    await to.hub.inbox.answer(request.id, Accept({"name": "x"}), "ann", answer_id=None, claim_id=None)
    await until(lambda: to.hub.calls.get("c").state is CallState.COMPLETED)


@pytest.mark.parametrize("held", [True, False], ids=["unknown", "refused"])
async def test_a_lease_whose_giving_up_fails_is_not_taken_from_whoever_has_it_then(fleet: Members, held: bool) -> None:
    has, to = await two_of(fleet)
    holders, failures = list[str](), [1]

    async def fail_once(direct: Commit, writes: Sequence[Write], guards: Sequence[Precondition]) -> int:
        if not about(writes) or not failures:
            return await direct(writes, guards)
        failures.pop()
        if not held:
            raise WriteConflict(LEASE)
        await direct(writes, guards)
        await until(lambda: to.fleet.owns("one"))
        raise OutcomeUnknown("no answer")

    def note(server: str) -> None:
        if server == "one" and (lease := to.fleet.lease(server)) is not None:
            holders.append(lease.member)

    to.fleet.on_change(note)
    commits_by(has, fail_once)
    await has.fleet.move("one", to.name)
    await in_one_place(fleet, to)
    assert not failures
    assert holders == [NOBODY, to.name]


async def test_files_that_are_reloaded_put_no_server_to_work_that_was_left(fleet: Members) -> None:
    has, to = await two_of(fleet)
    away = [True]

    async def refuse(direct: Commit, writes: Sequence[Write], guards: Sequence[Precondition]) -> int:
        if about(writes) and away:
            raise StoreUnavailable("away")
        return await direct(writes, guards)

    commits_by(has, refuse)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(has.fleet.move, "one", to.name)
        await settle(2)
        assert live_links(fleet) == 0
        await has.hub.servers.adopt({"one": http(call_timeout_s=7)}, has.hub.configuration.settings)
        await settle(1)
        assert live_links(fleet) == 0
        away.clear()
    await in_one_place(fleet, to)


async def test_a_server_that_one_file_loses_while_it_is_taken_is_not_forgotten(fleet: Members) -> None:
    dead, left = await two_of(fleet)
    slow(left, 5)
    dead.kill()
    await until(lambda: left.fleet.owns("one"))
    await left.hub.servers.adopt({}, left.hub.configuration.settings)
    await settle(20)
    assert left.hub.servers.find("one") is not None
    assert not left.fleet.owns("one")
    await fleet.start(dead.name, http())
    await in_one_place(fleet, fleet.running[dead.name])


async def test_a_server_that_is_removed_while_it_is_left_leaves_nothing(fleet: Members) -> None:
    usual, fleet.peers["one"].behaviour = fleet.peers["one"].behaviour, never
    await of(fleet, "a", "b", servers=())
    await fleet.running["a"].hub.servers.add(remote())
    await until(lambda: live_links(fleet) == 1)
    has = owner(fleet)
    await has.hub.calls.start(spec(call_id="c"), "me")
    await until(lambda: fleet.peers["one"].sent)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(has.fleet.move, "one")
        await settle(1)
        await has.hub.servers.remove("one")
    await settle(10)
    assert all(each.fleet.lease("one") is None for each in fleet.running.values())
    assert live_links(fleet) == 0
    await has.hub.servers.add(remote())
    await until(lambda: live_links(fleet) == 1)
    fleet.peers["one"].behaviour = usual
    assert (await owner(fleet).hub.calls.call(spec(), "me")).state is CallState.COMPLETED


async def test_a_member_that_is_lost_in_the_middle_of_a_move_lets_go(fleet: Members) -> None:
    fleet.peers["one"].behaviour = never
    await of(fleet, "a", "b")
    has = owner(fleet)
    await has.hub.calls.start(spec(call_id="c"), "me")
    await until(lambda: fleet.peers["one"].sent)
    left = another(fleet, has)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(has.fleet.move, "one")
        await settle(1)
        has.store.sever(cut=True)
        await until(lambda: fleet.owners("one") == [left.name])
        has.store.sever(cut=False)
        await has.fleet.lost.wait()
    await has.fleet.move("one")  # nothing is left to do
    await in_one_place(fleet, left)


async def test_the_end_of_a_call_is_known_before_its_server_is_anybody_elses(fleet: Members) -> None:
    peer, done = fleet.peers["one"], anyio.Event()
    peer.behaviour = gives(DONE, once=done)
    has, to = await two_of(fleet)
    seen = list[CallState]()

    async def note(direct: Commit, writes: Sequence[Write], guards: Sequence[Precondition]) -> int:
        if about(writes):
            seen.extend(call.state for call in to.hub.calls.select(CallFilter()))
        return await direct(writes, guards)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(has.hub.calls.call, spec(), "me")
        await until(lambda: peer.sent)
        await settle(1)
        commits_by(has, note)
        tasks.start_soon(has.fleet.move, "one")
        await settle(1)
        done.set()
    assert seen == [CallState.COMPLETED]


async def test_a_worker_of_a_living_member_keeps_what_it_holds_when_its_server_is_taken(fleet: Members) -> None:
    fleet.peers["one"].era = Era.STATELESS
    fleet.peers["one"].behaviour = gives(needs(a=ELICIT))
    dead, left = await two_of(fleet)
    with left.hub.work.join("agent", RequestFilter(), 1):
        await dead.hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: open_requests(left.hub) and open_requests(left.hub)[0].claim is not None)
        before = open_requests(left.hub)[0].claim
        dead.kill()
        await until(lambda: left.fleet.owns("one"))
        await settle(5)
        after = open_requests(left.hub)[0].claim
        assert after.id == before.id


async def test_a_member_ends_in_time_though_the_database_went_away_while_it_handed_on(fleet: Members) -> None:
    fleet.peers["one"].behaviour = never
    await of(fleet, "a", "b")
    has = owner(fleet)
    await has.hub.calls.start(spec(call_id="c"), "me")
    await until(lambda: fleet.peers["one"].sent)
    began = anyio.current_time()
    with anyio.fail_after(100):
        async with anyio.create_task_group() as ending:
            ending.start_soon(has.fleet.drain)
            await settle(5)
            has.store.sever(cut=True)
    assert 30 < anyio.current_time() - began < 30 + GIVING_UP_S + 1
