"""Calls: their turns and their clocks."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import ServerFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import CauseSource
from hubbubd.runtime.records import WatchEvent

from .conftest import FORM, Watching, World, question, server, settle, spec, until
from .peer import Outcome, Sent, after, at_once, never

YES = Accept({"name": "x"})


async def test_a_call_without_progress_times_out_and_the_server_is_told(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "CALL_TIMEOUT"
        assert anyio.current_time() == pytest.approx(300, abs=0.1)
        assert world.peer.sent[0].cancelled


@pytest.mark.parametrize("tell", [lambda sent: sent.progress(1), Sent.work], ids=["progress", "work"])
async def test_progress_gives_a_call_its_whole_time_again_up_to_the_absolute_maximum(
    world: World, tell: Callable[[Sent], None]
) -> None:
    async def progressing(sent: Sent) -> Outcome:
        for _ in range(100):
            await anyio.sleep(50)
            tell(sent)
        raise AssertionError

    world.peer.behaviour = progressing
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "CALL_MAX_EXCEEDED"
        assert anyio.current_time() == pytest.approx(3600, abs=0.1)
        call = await hub.calls.call(spec(timeout_s=20, max_s=1000), "me")
        assert call.fault.code == "CALL_TIMEOUT"


def asking(*, on_wire: bool, tool: str = "ask", params: dict[str, Any] = FORM) -> Callable[[Sent], Any]:
    """A server that asks a question in the course of one tool, and is quick otherwise."""

    async def behaviour(sent: Sent) -> Outcome:
        if sent.params["name"] == tool:
            return {"answer": await sent.ask("elicitation/create", params, on_wire=on_wire).answered()}
        return await at_once(sent)

    return behaviour


@pytest.mark.parametrize("on_wire", [True, False], ids=["wire", "inferred"])
async def test_a_person_may_take_two_minutes_and_nothing_times_out_nor_waits(world: World, on_wire: bool) -> None:
    world.peer.behaviour = asking(on_wire=on_wire)
    async with world.hub(server()) as hub:
        asked = await hub.calls.start(spec("ask"), "alice")
        request = await question(hub)
        assert request.call_id == asked.id
        assert request.principal == "alice"
        assert request.cause_source is (CauseSource.WIRE if on_wire else CauseSource.INFERRED)
        assert hub.calls.get(asked.id).state is CallState.WAITING_INPUT
        for minute in range(2):
            other = await hub.calls.call(spec(f"other{minute}"), "bob")
            assert other.state is CallState.COMPLETED
            await anyio.sleep(60)
        await hub.inbox.answer(request.id, YES, "alice", answer_id=None, claim_id=None)
        ended = await hub.calls.call(spec("ask", call_id=asked.id), "alice")
        assert payload.loads(ended.result) == {"answer": {"action": "accept", "content": {"name": "x"}}}


async def test_a_question_that_either_of_two_calls_may_have_caused_stops_the_clocks_of_both(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        if sent.params["name"] == "ask":
            await anyio.sleep(1)  # by then the other one is there
            return await asking(on_wire=False)(sent)
        if sent.params["name"] == "slow":
            return await after(150)(sent)
        return await at_once(sent)

    world.peer.behaviour = behaviour
    async with world.hub(server(max_in_flight=2)) as hub:
        asked = await hub.calls.start(spec("ask"), "me")
        slow = await hub.calls.start(spec("slow"), "me")
        request = await question(hub)
        assert request.call_id is None
        assert request.principal is None
        with anyio.fail_after(1):
            assert (await hub.calls.call(spec("other"), "me")).state is CallState.COMPLETED
        await anyio.sleep(120)
        await hub.inbox.answer(request.id, YES, "me", answer_id=None, claim_id=None)
        await until(lambda: hub.calls.get(asked.id).state.ended and hub.calls.get(slow.id).state.ended)
        assert hub.calls.get(asked.id).state is CallState.COMPLETED
        assert hub.calls.get(slow.id).state is CallState.COMPLETED


async def test_a_call_that_times_out_says_what_its_server_did_instead(world: World) -> None:
    world.peer.behaviour, world.peer.hint = never, "it answered id 0, which nobody asked"
    async with world.hub(server(call_timeout_s=5, ping_interval_s=0)) as hub:
        call = await hub.calls.call(spec(), "me")
    assert call.fault.message.endswith("waiting for the server: it answered id 0, which nobody asked")


async def test_who_watches_a_server_is_told_each_change_of_its_counts(
    world: World, watching: Callable[[AsyncGenerator[WatchEvent[Any]]], Watching]
) -> None:
    async with world.hub(server()) as hub:
        seen = watching(hub.servers.watch(ServerFilter()))
        for number in (1, 2, 3):
            await hub.calls.call(spec(), "me")
            await settle(2)
            assert seen.events[-1].record.counts.completed == number
