"""A hub beside others that write to the same store: it overwrites nothing of theirs, and loses nothing of its own."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from hubbubd.core.access import Principal
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery, PendingRequest, RequestState
from hubbubd.core.tasks import TaskStatus
from hubbubd.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound
from hubbubd.runtime.hub import Hub
from hubbubd.store import Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import FORM, World, question, server, settle, spec, until, update
from .foreign import SharedStore
from .peer import gives, never
from .task_server import RESULT, TaskServer, ended, started, the_task

GIVEN = Accept({"name": "x"})


@pytest.fixture
async def store() -> AsyncGenerator[SharedStore]:
    store = await SqliteStore.open(":memory:")
    yield SharedStore(store)
    await store.close()


@pytest.fixture
def world(store: SharedStore) -> World:
    return World(store)


async def answer(hub: Hub, request: PendingRequest, **ids: Any) -> PendingRequest:
    return await hub.inbox.answer(request.id, GIVEN, "ann", **{"answer_id": None, "claim_id": None, **ids})


async def whole(store: SharedStore) -> None:
    """Nothing was overwritten, and there was something to overwrite."""
    await settle()
    assert store.lost
    assert store.marks
    assert await store.overwritten() == []


@pytest.mark.parametrize("detached", [False, True], ids=["waited for", "detached"])
async def test_a_call_is_recorded_from_beginning_to_end(world: World, store: SharedStore, detached: bool) -> None:
    world.peer.behaviour = gives({"content": []}, after_s=1)
    async with world.hub(server()) as hub:
        await settle()
        store.shared = True
        call = await hub.calls.call(spec(), "ann", detached=detached)
        await whole(store)
        kept = hub.calls.get(call.id)
        assert (kept.state, kept.result, kept.detached) == (CallState.COMPLETED, b'{"content":[]}', detached)
        assert kept.defect


async def test_a_question_is_claimed_answered_and_delivered(world: World, store: SharedStore) -> None:
    async with world.hub(server()) as hub:
        await settle()
        store.shared = True
        asked = world.peer.link.ask("elicitation/create", FORM)
        request = await question(hub)
        claimed = await hub.inbox.claim(request.id, "ann", 60)
        renewed = await hub.inbox.renew(request.id, claimed.claim.id, 120)
        await hub.inbox.release(request.id, renewed.claim.id)
        await answer(hub, request, answer_id="a")
        assert (await asked.answered())["content"] == {"name": "x"}
        await whole(store)
        kept = hub.inbox.get(request.id)
        assert (kept.state, kept.delivery, kept.answer_id) == (RequestState.ANSWERED, Delivery.DELIVERED, "a")
        assert [moment.what.value for moment in kept.moments] == ["claimed", "released", "answered", "delivered"]


async def test_an_answer_that_another_member_accepted_is_the_only_one(world: World, store: SharedStore) -> None:
    async with world.hub(server()) as hub:
        await settle()
        asked = world.peer.link.ask("elicitation/create", FORM)
        request = await question(hub)

        def answered(value: dict[str, Any]) -> dict[str, Any]:
            payload = '{"action":"accept","content":{"name":"theirs"}}'
            return value | {
                "state": "answered",
                "delivery": "pending",
                "answer": {"payload": payload, "refused": False},
                "answered_by": "bob",
                "answer_id": "theirs",
            }

        store.instead["request"] = answered
        store.shared = True
        with raising(FailedPrecondition, "ALREADY_ANSWERED"):
            await answer(hub, request, answer_id="mine")
        assert (await asked.answered())["content"] == {"name": "theirs"}
        await settle()
        kept = hub.inbox.get(request.id)
        assert (kept.answered_by, kept.answer_id, kept.delivery) == ("bob", "theirs", Delivery.DELIVERED)


async def test_an_end_that_another_member_recorded_is_final(world: World, store: SharedStore) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "ann")
        await until(lambda: hub.calls.get(call.id).state is CallState.IN_PROGRESS)
        await settle()
        completed = {"state": "completed", "completed_at": 1.0, "result": '{"theirs":true}'}
        store.instead["call"] = lambda value: value | completed
        store.shared = True
        await hub.calls.cancel(call.id, abort=True)
        await settle()
        kept = hub.calls.get(call.id)
        assert (kept.state, kept.result, kept.fault) == (CallState.COMPLETED, b'{"theirs":true}', None)


async def test_a_call_id_that_another_member_took_at_the_same_time_is_refused(world: World, store: SharedStore) -> None:
    async with world.hub(server()) as hub:
        theirs = await hub.calls.start(spec(call_id="c"), "bob")
        await until(lambda: hub.calls.get("c").state.ended)
        (entry,) = (await store.snapshot("call/c")).entries
        await store.inner.commit([Write("call/c", None)])
        await settle()

        async def faster(writes: Any, guards: Any = ()) -> int:
            del store.commit  # type: ignore[method-assign]
            await store.inner.commit([Write("call/c", entry.value)])
            return await store.inner.commit(writes, guards)

        store.commit = faster  # type: ignore[method-assign]
        with pytest.raises(AlreadyExists):
            await hub.calls.start(spec(call_id="c", max_s=1), "ann")
        assert hub.calls.get("c").principal == theirs.principal == "bob"


async def test_a_server_that_another_member_reconfigured_is_not_changed_by_what_was_decided_before(
    world: World, store: SharedStore
) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
        await settle()
        store.instead["server"] = lambda value: value | {"revision": value["revision"] + 100}
        store.shared = True
        with raising(Aborted, "REVISION_CONFLICT"):
            await update(hub, server(call_timeout_s=7))
        value = await store.value("server/one")
        assert value["config"].get("call_timeout_s") != 7


async def test_a_server_that_another_member_removed_stays_removed(world: World, store: SharedStore) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
        await settle()
        await store.foreign("server/one", lambda _: None)
        world.peer.link.lose()  # its connection goes on being shown
        await settle(2)
        assert await store.value("server/one") is None
        with pytest.raises(NotFound):
            await hub.servers.disconnect("one")


async def test_a_token_that_another_member_revoked_is_not_made_again_by_its_use(
    world: World, store: SharedStore
) -> None:
    async with world.hub() as hub:
        token, secret = await hub.tokens.create("t", [], by="me", ttl_s=None, may_name_others=False)
        other, used = await hub.tokens.create("u", [], by="me", ttl_s=None, may_name_others=False)
        store.shared = True
        assert isinstance(await hub.tokens.principal(used), Principal)
        await whole(store)
        store.instead["token"] = lambda _: None
        assert isinstance(await hub.tokens.principal(secret), Principal)
        await settle()
        assert [each.id for each in hub.tokens.all()] == [other.id]
        assert await store.value(f"token/{token.id}") is None
        await hub.tokens.revoke("u")
        assert await store.value(f"token/{other.id}") is None


async def test_a_later_use_of_a_token_that_another_member_noted_stays(world: World, store: SharedStore) -> None:
    async with world.hub() as hub:
        token, secret = await hub.tokens.create("t", [], by="me", ttl_s=None, may_name_others=False)
        store.instead["token"] = lambda value: value | {"last_used_at": token.created_at + 1000}
        store.shared = True
        await hub.tokens.principal(secret)
        await settle()
        assert hub.tokens.all()[0].last_used_at == token.created_at + 1000


async def test_an_end_of_a_task_that_another_member_recorded_is_final(world: World, store: SharedStore) -> None:
    tasks = TaskServer(world, Era.HANDSHAKE)
    async with world.hub(server()) as hub:
        call = await started(hub)
        await settle()
        store.instead["task"] = lambda value: value | {"status": "cancelled"}
        store.shared = True
        tasks.end(result=RESULT)
        await ended(hub, call)
        await settle()
        assert the_task(hub).status is TaskStatus.CANCELLED
        assert the_task(hub).result is None
        assert hub.calls.get(call.id).state.ended


async def test_what_is_too_old_is_deleted_whoever_touched_it_last(world: World, store: SharedStore) -> None:
    async with world.hub(server(call_history_count=2)) as hub:
        store.shared = True
        calls = [await hub.calls.call(spec(), "ann") for _ in range(6)]
        await settle(10)
        assert {call.id for call in hub.calls.newest(CallFilter())} == {call.id for call in calls[-2:]}
        await whole(store)
