"""Calls: their turns and their clocks."""

import itertools
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import CauseSource

from .conftest import FORM, World, open_requests, question, server, settle, spec, until
from .peer import Outcome, Sent, at_once, never

YES = Accept({"name": "x"})


def after(seconds: float) -> Callable[[Sent], Any]:
    """A server that takes its time."""

    async def behaviour(sent: Sent) -> Outcome:
        await anyio.sleep(seconds)
        return await at_once(sent)

    return behaviour


def names(world: World) -> list[str]:
    """The tools called so far."""
    return [sent.params["name"] for sent in world.peer.sent]


async def test_calls_of_a_server_run_one_after_the_other_in_the_order_they_came(world: World) -> None:
    world.peer.behaviour = after(1)
    async with world.hub(server()) as hub:
        calls = [await hub.calls.start(spec(f"t{n}"), "me") for n in range(5)]
        await until(lambda: hub.calls.counts("one").completed == 5)
        assert names(world) == [f"t{n}" for n in range(5)]
        starts = [sent.at for sent in world.peer.sent]
        assert all(later - earlier > 0.99 for earlier, later in itertools.pairwise(starts))
        assert payload.loads(hub.calls.get(calls[0].id).result) == {"echo": {"name": "t0"}}


async def test_no_more_calls_are_in_flight_than_configured(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub(server(max_in_flight=3)) as hub:
        for n in range(5):
            await hub.calls.start(spec(f"t{n}"), "me")
        await settle()
        counts = hub.calls.counts("one")
        assert (counts.in_progress, counts.queued) == (3, 2)
        assert names(world) == ["t0", "t1", "t2"]


async def test_a_call_without_progress_times_out_and_the_server_is_told(world: World) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "CALL_TIMEOUT"
        assert anyio.current_time() == pytest.approx(300, abs=0.1)
        assert world.peer.sent[0].cancelled


async def test_progress_gives_a_call_its_whole_time_again_up_to_the_absolute_maximum(world: World) -> None:
    async def progressing(sent: Sent) -> Outcome:
        for step in range(100):
            await anyio.sleep(50)
            sent.progress(step)
        raise AssertionError

    world.peer.behaviour = progressing
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "CALL_MAX_EXCEEDED"
        assert anyio.current_time() == pytest.approx(3600, abs=0.1)
        call = await hub.calls.call(spec(timeout_s=20, max_s=1000), "me")
        assert call.fault.code == "CALL_TIMEOUT"


async def test_progress_does_not_help_where_it_is_configured_not_to(world: World) -> None:
    async def progressing(sent: Sent) -> Outcome:
        for step in range(100):
            await anyio.sleep(10)
            sent.progress(step)
        raise AssertionError

    world.peer.behaviour = progressing
    async with world.hub(server(progress_resets_timeout=False)) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "CALL_TIMEOUT"
        assert anyio.current_time() == pytest.approx(300, abs=0.1)


async def test_a_queued_call_times_out_while_the_server_cannot_be_reached(world: World) -> None:
    world.peer.always = 25.0
    async with world.hub(server(connect_timeout_s=20, retries=-1)) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "CALL_TIMEOUT"
        assert call.fault.details["queued"]
        assert not world.peer.sent


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


async def test_a_call_that_waits_for_two_answers_goes_on_with_the_second(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        if sent.params["name"] == "ask":
            for asked in [sent.ask("elicitation/create", FORM, on_wire=True) for _ in range(2)]:
                await asked.answered()
        return await at_once(sent)

    world.peer.behaviour = behaviour
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec("ask"), "me")
        await until(lambda: len(open_requests(hub)) == 2)
        first, second = open_requests(hub)
        await hub.inbox.answer(first.id, YES, "me", answer_id=None, claim_id=None)
        await settle()
        assert hub.calls.get(call.id).state is CallState.WAITING_INPUT
        assert (await hub.calls.call(spec("other"), "me")).state is CallState.COMPLETED
        await hub.inbox.answer(second.id, YES, "me", answer_id=None, claim_id=None)
        await until(lambda: hub.calls.get(call.id).state is CallState.COMPLETED)


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


async def test_after_the_answer_the_clock_goes_on_where_it_stopped(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        await anyio.sleep(40)
        await sent.ask("elicitation/create", FORM).answered()
        await anyio.sleep_forever()
        raise AssertionError

    world.peer.behaviour = behaviour
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        request = await question(hub)
        await anyio.sleep(100)
        await hub.inbox.answer(request.id, YES, "me", answer_id=None, claim_id=None)
        answered_at = anyio.current_time()
        await until(lambda: hub.calls.get(call.id).state.ended)
        assert hub.calls.get(call.id).fault.code == "CALL_TIMEOUT"
        assert anyio.current_time() - answered_at == pytest.approx(260, abs=0.5)


async def test_a_parked_call_that_goes_on_may_exceed_the_limit(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        if sent.params["name"] == "ask":
            await sent.ask("elicitation/create", FORM, on_wire=True).answered()
        return await never(sent)

    world.peer.behaviour = behaviour
    async with world.hub(server()) as hub:
        asked = await hub.calls.start(spec("ask"), "me")
        request = await question(hub)
        await hub.calls.start(spec("second"), "me")
        await hub.calls.start(spec("third"), "me")
        await settle()
        await hub.inbox.answer(request.id, YES, "me", answer_id=None, claim_id=None)
        await settle()
        assert hub.calls.get(asked.id).state is CallState.IN_PROGRESS
        counts = hub.calls.counts("one")
        assert (counts.in_progress, counts.queued, counts.waiting_input) == (2, 1, 0)


async def test_a_question_that_the_server_takes_back_lets_its_call_go_on(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        asked = sent.ask("elicitation/create", FORM)
        await anyio.sleep(100)
        asked.withdraw()
        return await never(sent)

    world.peer.behaviour = behaviour
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        request = await question(hub)
        await until(lambda: hub.inbox.get(request.id).state == "withdrawn")
        assert hub.inbox.get(request.id).reason == "the server withdrew it"
        assert hub.calls.get(call.id).state is CallState.IN_PROGRESS
        await until(lambda: hub.calls.get(call.id).state.ended)
        assert anyio.current_time() == pytest.approx(400, abs=1)


async def test_a_call_that_times_out_says_what_its_server_did_instead(world: World) -> None:
    world.peer.behaviour, world.peer.hint = never, "it answered id 0, which nobody asked"
    async with world.hub(server(call_timeout_s=5, ping_interval_s=0)) as hub:
        call = await hub.calls.call(spec(), "me")
    assert call.fault is not None
    assert call.fault.message.endswith("waiting for the server: it answered id 0, which nobody asked")
