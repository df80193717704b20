"""The owner of a server serves it: what is not at work is put to work again, for each reason, and each by itself."""

from collections.abc import Sequence

import anyio
import pytest

from hubbubd.errors import HubError, Unavailable, UnknownOutcome
from hubbubd.members import MemberStatus
from hubbubd.runtime.ownership import Takeover
from hubbubd.store import OutcomeUnknown, Precondition, StoreUnavailable, Write

from .conftest import server, settle, until
from .fleet import Members, Running
from .test_fleet import another, live_links, of, owner
from .test_fleet_moves import Commit, about, commits_by, in_one_place, remote, slow


async def added(fleet: Members, *names: str) -> Running:
    """Members, with a server that was added over the API; the one that has it."""
    await of(fleet, *names, servers=())
    await fleet.running["a"].hub.servers.add(remote())
    await until(lambda: live_links(fleet) == 1)
    await settle(5)
    return owner(fleet)


def unsure_once(one: Running, key: str) -> list[bool]:
    """Has a member not hear in time that its next commit about a key has held; filled when that has happened."""
    happened: list[bool] = []

    async def commit(direct: Commit, writes: Sequence[Write], guards: Sequence[Precondition]) -> int:
        revision = await direct(writes, guards)
        if about(writes, key) and not happened:
            happened.append(True)
            raise OutcomeUnknown("no answer")
        return revision

    commits_by(one, commit)
    return happened


def fails_once(monkeypatch: pytest.MonkeyPatch, of: object, method: str, error: Exception) -> None:
    """Has an asynchronous method fail once."""
    direct, failures = getattr(of, method), [error]

    async def once(*args: object) -> object:
        if failures:
            raise failures.pop()
        return await direct(*args)

    monkeypatch.setattr(of, method, once)


async def test_a_server_whose_removal_the_store_has_refused_serves_again(fleet: Members) -> None:
    has = await added(fleet, "a", "b")
    fleet.database.away = True
    with pytest.raises(Unavailable, match="nothing was changed"):
        await has.hub.servers.remove("one")
    await settle(1)
    fleet.database.away = False
    await until(lambda: live_links(fleet) == 1)
    await has.hub.servers.remove("one")
    await settle(5)
    assert live_links(fleet) == 0
    assert has.fleet.lease("one") is None


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
async def test_a_server_that_is_removed_and_added_again_within_a_moment_is_served(fleet: Members, here: bool) -> None:
    has = await added(fleet, "a", "b")
    where = has if here else another(fleet, has)
    await has.hub.servers.remove("one")
    await where.hub.servers.add(remote())
    await settle(60)
    await in_one_place(fleet, owner(fleet))


async def test_a_server_is_served_whose_former_lease_went_by_a_commit_of_unknown_outcome(fleet: Members) -> None:
    has = await added(fleet, "a")
    unsure = unsure_once(has, "lease/one")
    await has.hub.servers.remove("one")
    await until(lambda: unsure)
    await settle(5)
    await has.hub.servers.add(remote())
    await settle(60)
    await in_one_place(fleet, has)


async def test_a_server_is_served_whose_adding_had_an_unknown_outcome(fleet: Members) -> None:
    has = await added(fleet, "a", "b")
    await has.hub.servers.remove("one")
    unsure_once(has, "server/one")
    with pytest.raises(UnknownOutcome):
        await has.hub.servers.add(remote())
    await settle(60)
    await in_one_place(fleet, owner(fleet))


async def test_a_server_whose_leaving_fails_within_the_hub_is_served(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = await added(fleet, "a", "b")
    fails_once(monkeypatch, has.hub.calls, "close_queue", RuntimeError("a bug"))
    await has.fleet.move("one")
    await settle(60)
    await in_one_place(fleet, owner(fleet))


async def test_a_server_that_is_replaced_half_way_inherits_nothing(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = await added(fleet, "a")
    forgotten: list[str] = []

    async def forget(name: str) -> None:
        forgotten.append(name)

    fails_once(monkeypatch, has.hub.tasks, "clear", Unavailable("away", reason="STORE_UNAVAILABLE"))
    monkeypatch.setattr(fleet.peers, "delete_oauth_secrets", forget)
    with pytest.raises(HubError):
        await has.hub.servers.change("one", lambda _: server("one", command=None, url="https://other.example.org/mcp"))
    await until(lambda: live_links(fleet) == 1)
    assert forgotten == ["one"]


async def test_a_server_that_comes_back_elsewhere_while_its_lease_is_deleted_is_in_one_place(fleet: Members) -> None:
    has = await added(fleet, "a", "b")
    other = another(fleet, has)
    deleting, go_on = anyio.Event(), anyio.Event()

    async def commit(direct: Commit, writes: Sequence[Write], guards: Sequence[Precondition]) -> int:
        if about(writes) and not deleting.is_set():
            deleting.set()
            await go_on.wait()
        return await direct(writes, guards)

    commits_by(has, commit)
    await has.hub.servers.remove("one")
    await deleting.wait()
    slow(has, 3)
    await other.hub.servers.add(remote())
    await settle(2)  # it is being taken
    go_on.set()
    for _ in range(300):
        await anyio.sleep(0.1)
        assert live_links(fleet) <= 1
    await in_one_place(fleet, owner(fleet))


@pytest.mark.parametrize("again", [False, True], ids=["gone", "added again"])
async def test_a_removal_that_holds_after_all_leaves_nothing_at_work(fleet: Members, again: bool) -> None:
    has = await added(fleet, "a", "b")
    happened: list[str] = []

    async def commit(direct: Commit, writes: Sequence[Write], guards: Sequence[Precondition]) -> int:
        if not about(writes, "server/one"):
            return await direct(writes, guards)
        if happened == ["unknown"]:
            raise StoreUnavailable("away")
        if not happened:
            happened.append("unknown")
            later.append((writes, guards))
            raise OutcomeUnknown("no answer")
        return await direct(writes, guards)

    later: list[tuple[Sequence[Write], Sequence[Precondition]]] = []
    direct = has.store.commit
    commits_by(has, commit)
    with pytest.raises(UnknownOutcome):
        await has.hub.servers.remove("one")
    await until(lambda: live_links(fleet) == 1)  # put to work again, as its record is still there
    await direct(*later[0])
    happened.append("held")
    await settle(40)
    assert live_links(fleet) == 0
    if again:
        await another(fleet, has).hub.servers.add(remote())
        await settle(40)
        await in_one_place(fleet, owner(fleet))


@pytest.mark.parametrize("bug", [False, True], ids=["refused", "a bug"])
async def test_one_server_that_cannot_be_taken_keeps_no_other_waiting(
    fleet: Members, monkeypatch: pytest.MonkeyPatch, bug: bool
) -> None:
    names = ("one", "two", "three")
    await of(fleet, "a", servers=())
    for name in names:
        await fleet.running["a"].hub.servers.add(remote(name))
    await until(lambda: all(live_links(fleet, name) == 1 for name in names))
    left = await fleet.start("b")
    refresh = left.hub.servers.refresh_secrets

    async def sealed(taking: Takeover) -> None:
        if taking.owns("one") and bug:
            raise RuntimeError("a bug")
        if taking.owns("one"):
            raise Unavailable("its secrets are sealed with a key that is not here", reason="STORE_UNAVAILABLE")
        await refresh(taking)

    monkeypatch.setattr(left.hub.servers, "refresh_secrets", sealed)
    fleet.running["a"].kill()
    await until(lambda: not any(live_links(fleet, name) for name in names))
    await until(lambda: live_links(fleet, "two") == live_links(fleet, "three") == 1)
    await left.hub.servers.add(remote("four"))
    await until(lambda: live_links(fleet, "four") == 1)
    assert live_links(fleet) == 0
    monkeypatch.setattr(left.hub.servers, "refresh_secrets", refresh)
    await until(lambda: live_links(fleet) == 1)


async def test_a_member_looks_at_the_others_while_a_server_takes_long_to_be_taken(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await of(fleet, "a", "b", servers=())
    names = [f"s{number}" for number in range(9)]  # so many that each member has some
    for name in names:
        await fleet.running["a"].hub.servers.add(remote(name))
    await until(lambda: all(live_links(fleet, name) == 1 for name in names))
    busy = fleet.running["b"]
    dead = fleet.running["a"]
    assert {name for name in names if dead.fleet.owns(name)}

    async def for_ever(_: Takeover) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(busy.hub.inbox, "take_over", for_ever)
    dead.kill()
    await settle(30)
    again = await fleet.start("a")
    await settle(5)
    there = next(each for each in busy.fleet.members() if each.name == "a")
    assert there.term == again.store.term


async def test_a_server_that_cannot_be_taken_is_given_up_by_a_member_that_drains(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = await added(fleet, "a", "b")
    there = another(fleet, has)
    await has.fleet.move("one", there.name)
    await in_one_place(fleet, there)

    async def sealed(_: Takeover) -> None:
        raise Unavailable("its secrets are sealed with a key that is not here", reason="STORE_UNAVAILABLE")

    monkeypatch.setattr(has.hub.servers, "refresh_secrets", sealed)
    await there.fleet.move("one", has.name)
    await until(lambda: has.fleet.owns("one"))
    await settle(5)
    (me,) = [each for each in has.fleet.members() if each.name == has.name]
    await has.fleet.set_status(me, MemberStatus.DRAINING)
    await until(lambda: live_links(fleet) == 1)
    await in_one_place(fleet, there)


async def test_what_is_at_work_is_not_taken_again(fleet: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    has = await added(fleet, "a")
    taken: list[Takeover] = []
    take = has.hub.take_over

    async def note(taking: Takeover) -> None:
        taken.append(taking)
        await take(taking)

    monkeypatch.setattr(has.hub, "take_over", note)
    await settle(30)
    fleet.peers["one"].closing_s = 5
    update = server("one", command=None, url="https://example.org/mcp", headers={"X-New": "1"})
    await has.hub.servers.change("one", lambda _: update)
    await settle(30)
    assert taken == []
    assert live_links(fleet) == 1


async def test_a_new_owner_reads_the_secrets_of_its_servers_anew(
    fleet: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = await added(fleet, "a", "b")
    read: list[str] = []

    async def refresh(*servers: str) -> None:
        read.extend(servers)

    monkeypatch.setattr(fleet.peers, "refresh_secrets", refresh)
    other = another(fleet, has)
    await has.fleet.move("one", other.name)
    await in_one_place(fleet, other)
    assert read == ["one"]
