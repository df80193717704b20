"""Calls: how they end, and what is seen of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.errors import AlreadyExists, FailedPrecondition, NotFound, PeerError, Unavailable
from hubbubd.redaction import REDACTION
from hubbubd.runtime.calls import LogEvent, ProgressEvent
from hubbubd.runtime.records import EventKind

from ..raising import raising
from .conftest import FORM, Watching, World, question, server, settle, spec, until
from .peer import Outcome, Sent, after, at_once, gives, never


async def test_queued_and_parked_calls_are_cancelled_and_one_on_the_wire_only_when_told_to_abort(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        if sent.params["name"] == "ask":
            await sent.ask("elicitation/create", FORM, on_wire=True).answered()
        return await never(sent)

    world.peer.behaviour = behaviour
    async with world.hub(server()) as hub:
        parked = await hub.calls.start(spec("ask"), "me")
        request = await question(hub)
        running = await hub.calls.start(spec("second"), "me")
        queued = await hub.calls.start(spec("third"), "me")
        await settle()
        assert (await hub.calls.cancel(queued.id, abort=False)).state is CallState.CANCELLED
        assert (await hub.calls.cancel(parked.id, abort=False)).state is CallState.CANCELLED
        with raising(FailedPrecondition, "CALL_IN_PROGRESS"):
            await hub.calls.cancel(running.id, abort=False)
        assert (await hub.calls.cancel(running.id, abort=True)).state is CallState.CANCELLED
        assert [sent.cancelled for sent in world.peer.sent] == [True, True]
        with raising(FailedPrecondition, "CALL_FINISHED"):
            await hub.calls.cancel(running.id, abort=True)
        assert hub.calls.counts("one").cancelled == 3
        assert request.id


async def cancelled_natively(work: Any, when: Callable[[], object] | None = None) -> None:
    """Begins the work and cancels it as grpc.aio does: the task itself, once, in the middle."""
    task = asyncio.create_task(work)
    if when is not None:
        await until(when)
    else:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_is_cancelled_as_its_turn_comes_is_not_sent(world: World) -> None:
    held = list[Any]()

    async def behaviour(sent: Sent) -> Outcome:
        await anyio.sleep(1)
        held.append(hub.calls.cancel("second", abort=True))
        # Before the second call runs, but after the first one has given it the turn.
        asyncio.get_running_loop().call_soon(held[0].send, None)
        return await at_once(sent)

    world.peer.behaviour = behaviour
    async with world.hub(server()) as hub:
        first = asyncio.create_task(hub.calls.call(spec("first", call_id="first"), "me"))
        await until(lambda: world.peer.sent)
        second = asyncio.create_task(hub.calls.call(spec("second", call_id="second"), "me"))
        await first
        assert (await second).state is CallState.CANCELLED
        held[0].close()
        assert [sent.call_id for sent in world.peer.sent] == ["first"]
        assert hub.calls.get("second").started_at is None


async def test_a_detached_call_goes_on_when_its_caller_hangs_up(world: World) -> None:
    world.peer.behaviour = after(10)
    async with world.hub(server()) as hub:
        await cancelled_natively(hub.calls.call(spec(call_id="c"), "me", detached=True), lambda: world.peer.sent)
        await until(lambda: hub.calls.get("c").state is CallState.COMPLETED)


async def test_a_call_id_names_one_request_for_good(world: World) -> None:
    async with world.hub(server(), server("two")) as hub:
        first = await hub.calls.call(spec(call_id="c"), "me")
        again = await hub.calls.call(spec(call_id="c"), "me")
        assert again.result == first.result
        assert len(world.peer.sent) == 1
        for other in (spec("other", call_id="c"), spec(call_id="c", server="two"), spec(call_id="c", method="x")):
            with raising(AlreadyExists, "CALL_ID_REUSED"):
                await hub.calls.call(other, "me")


async def test_a_call_id_is_taken_from_the_first_moment_and_over_all_servers(world: World) -> None:
    world.store.delay_s = 0.5
    async with world.hub(server(), server("two")) as hub:
        outcomes = await asyncio.gather(
            hub.calls.start(spec(call_id="c"), "me"),
            hub.calls.start(spec(call_id="c", server="two"), "me"),
            hub.calls.start(spec(call_id="c"), "me"),
            return_exceptions=True,
        )
        assert [type(outcome).__name__ for outcome in outcomes] == ["Call", "AlreadyExists", "Call"]


async def test_whoever_starts_a_call_that_is_becoming_detached_hears_of_it_when_it_is_durable(world: World) -> None:
    world.peer.behaviour = after(10)
    async with world.hub(server()) as hub:
        waiting = asyncio.create_task(hub.calls.call(spec(call_id="c"), "me"))
        await until(lambda: world.peer.sent)
        await settle()
        world.store.failures, world.store.delay_s = 1000, 1.0
        starts = (hub.calls.start(spec(call_id="c"), "me") for _ in range(3))
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
        world.store.failures = 0
        assert (await hub.calls.start(spec(call_id="c"), "me")).detached
        assert (await waiting).state is CallState.COMPLETED


async def test_a_call_whose_caller_hangs_up_while_it_cannot_be_made_detached_is_stopped(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        waiting = asyncio.create_task(hub.calls.call(spec(call_id="c"), "me"))
        await until(lambda: world.peer.sent)
        await settle()
        world.store.failures, world.store.delay_s = 1, 1.0
        starting = asyncio.create_task(hub.calls.start(spec(call_id="c"), "me"))
        await settle()
        waiting.cancel()
        with pytest.raises(Unavailable):
            await starting
        await until(lambda: hub.calls.get("c").state.ended)
        assert hub.calls.get("c").state is CallState.CANCELLED


async def test_a_call_that_the_store_does_not_take_is_not_sent_and_holds_no_place(world: World) -> None:
    async with world.hub(server()) as hub:
        await settle()
        world.store.failures = 1
        with pytest.raises(Unavailable):
            await hub.calls.start(spec(call_id="c"), "me")
        assert not world.peer.sent
        with pytest.raises(NotFound):
            hub.calls.get("c")
        assert (await hub.calls.call(spec(call_id="c"), "me")).state is CallState.COMPLETED


async def test_clearing_does_not_wait_for_a_call_that_is_never_admitted(world: World) -> None:
    async with world.hub(server(), server("two")) as hub:
        await settle()
        world.store.delay_s, world.store.failures = 1, 1
        start = asyncio.create_task(hub.calls.start(spec(call_id="c"), "me"))
        await settle(0.1)
        with anyio.fail_after(10):
            await hub.calls.clear_queue("one")
        with pytest.raises(Unavailable):
            await start


async def test_an_error_of_the_server_is_passed_on_as_it_is(world: World) -> None:
    world.peer.behaviour = gives(PeerError(-32001, "no such file \ud83d", {"path": "/x"}))
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.state is CallState.FAILED
        assert call.fault.code == "SERVER_ERROR"
        assert call.fault.details["jsonrpc_code"] == -32001
        assert call.fault.details["jsonrpc_data"] == {"path": "/x"}
        assert call.fault.details["server"] == "one"
        await settle()
        assert hub.health.is_serving


async def test_a_mistake_of_the_hub_fails_that_call_alone(world: World) -> None:
    async def broken(sent: Sent) -> Outcome:
        raise RuntimeError("a bug")

    world.peer.behaviour = broken
    async with world.hub(server()) as hub:
        assert (await hub.calls.call(spec(), "me")).fault.code == "INTERNAL"
        world.peer.behaviour = at_once
        assert (await hub.calls.call(spec(), "me")).state is CallState.COMPLETED


async def test_those_who_watch_a_call_see_its_progress_and_its_log_lines(
    world: World, watching: Callable[..., Watching]
) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        for step in (1, 2):
            sent.progress(step, 2, "half")
            sent.link.inbound.on_notification("notifications/message", {"data": step}, sent.call_id)
            await anyio.sleep(1)
        return {}

    world.peer.behaviour = behaviour
    async with world.hub(server()) as hub:
        watch = watching(hub.calls.watch(CallFilter(ids=frozenset({"c"}))))
        await settle()
        await hub.calls.call(spec(call_id="c"), "me")
        await hub.calls.call(spec(call_id="other"), "me")
        await settle()
        live = [event.live for event in watch.events if event.kind is EventKind.LIVE]
        assert {event.call_id for event in live} == {"c"}
        assert [event.progress for event in live if isinstance(event, ProgressEvent)] == [1, 2]
        assert [payload.loads(event.params) for event in live if isinstance(event, LogEvent)] == [
            {"data": 1},
            {"data": 2},
        ]
        assert watch.events[-1].kind is EventKind.UPSERT or watch.events[-1].record is None


async def test_the_end_of_a_detached_call_is_durable_before_its_caller_hears_of_it(world: World) -> None:
    async with world.hub(server()) as hub:
        await hub.calls.call(spec(call_id="c"), "me", detached=True)
        (entry,) = (await world.store.snapshot("call/c")).entries
        assert payload.loads(entry.value)["state"] == "completed"


async def test_those_who_watch_a_call_see_no_secret_of_its_server(
    world: World, watching: Callable[..., Watching]
) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        sent.progress(1, 2, "with a-token-of-some-length")
        sent.link.inbound.on_notification("notifications/message", {"data": "a-token-of-some-length"}, sent.call_id)
        return {}

    world.peer.behaviour = behaviour
    REDACTION.set_secrets("one", ["a-token-of-some-length"])
    async with world.hub(server()) as hub:
        watch = watching(hub.calls.watch(CallFilter()))
        await settle()
        await hub.calls.call(spec(), "me")
        await settle()
        progress, line = [event.live for event in watch.events if event.kind is EventKind.LIVE]
        assert progress.message == "with [redacted]"
        assert payload.loads(line.params) == {"data": "[redacted]"}
    REDACTION.set_secrets("one", ())


async def test_a_call_that_has_just_ended_is_durable_for_whoever_makes_it_again(world: World) -> None:
    async with world.hub(server()) as hub:
        await settle()
        ended = await hub.calls.call(spec(call_id="again"), "me")
        world.store.failures = 1
        with pytest.raises(Unavailable):
            await hub.calls.start(spec(call_id="again"), "me")
        assert (await hub.calls.start(spec(call_id="again"), "me")).state is ended.state is CallState.COMPLETED
        stored = (await world.store.snapshot("call/")).entries
        assert [entry.key for entry in stored] == ["call/again"]
