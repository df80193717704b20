"""Calls that the server answers with questions, until it has all it needs (MRTR)."""

from typing import Any

import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.inbox.forms import Accept, Decline, Reject, Text
from hubbubd.core.inbox.request_states import CauseSource, Delivery, RequestState

from .conftest import World, open_requests, question, server, settle, spec, until
from .mortal import DONE, ELICIT, SAMPLE, STATE, ended, script
from .peer import SESSION_LOST, Outcome, Sent, gives, never


def needs(**result: Any) -> Outcome:
    """An `input_required` result."""
    return {"resultType": "input_required", **result}


async def test_a_call_goes_through_several_rounds_with_the_exact_state(world: World) -> None:
    script(
        world,
        needs(inputRequests={"first": ELICIT}, requestState=STATE),
        needs(inputRequests={"second": SAMPLE}),
        DONE,
    )
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "alice")
        first = await question(hub)
        assert (first.call_id, first.principal, first.cause_source) == (call.id, "alice", CauseSource.WIRE)
        assert hub.calls.get(call.id).state is CallState.WAITING_INPUT
        await hub.inbox.answer(first.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
        await until(lambda: len(world.peer.sent) == 2)
        second = await question(hub)
        await hub.inbox.answer(second.id, Text("hi"), "me", answer_id=None, claim_id=None)
        assert (await ended(hub, call.id)).state is CallState.COMPLETED
        sent = [each.params for each in world.peer.sent]
        assert sent[0] == {"name": "t"}
        accepted = {"action": "accept", "content": {"name": "x"}}
        assert sent[1] == {"name": "t", "inputResponses": {"first": accepted}, "requestState": STATE}
        assert set(sent[2]) == {"name", "inputResponses"}  # no state came, so none goes back
        assert list(sent[2]["inputResponses"]) == ["second"]
        await settle()
        assert {hub.inbox.get(each.id).delivery for each in (first, second)} == {Delivery.DELIVERED}


async def test_three_questions_at_once_are_asked_together_and_sent_back_together(world: World) -> None:
    script(world, needs(inputRequests={"a": ELICIT, "b": SAMPLE, "c": {"method": "roots/list"}}), DONE)
    async with world.hub(server(roots=({"uri": "file:///srv"},))) as hub:
        call = await hub.calls.start(spec(), "me")
        await until(lambda: len(open_requests(hub)) == 2)
        form, sampling = sorted(open_requests(hub), key=lambda r: r.kind)
        await hub.inbox.answer(sampling.id, Text("hi"), "me", answer_id=None, claim_id=None)
        await settle(5)
        assert len(world.peer.sent) == 1
        await hub.inbox.answer(form.id, Decline(), "me", answer_id=None, claim_id=None)
        await ended(hub, call.id)
        responses = world.peer.sent[1].params["inputResponses"]
        assert responses["a"] == {"action": "decline"}
        assert responses["c"] == {"roots": [{"uri": "file:///srv"}]}
        assert set(responses) == {"a", "b", "c"}
        assert "requestState" not in world.peer.sent[1].params


async def test_a_result_with_only_a_state_is_sent_again_without_asking_anybody(world: World) -> None:
    script(world, needs(requestState="s1"), needs(requestState="s2"), DONE)
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.state is CallState.COMPLETED
        assert [each.params.get("requestState") for each in world.peer.sent] == [None, "s1", "s2"]
        assert all("inputResponses" not in each.params for each in world.peer.sent)
        assert not open_requests(hub)


async def test_a_refused_sampling_ends_the_call_and_takes_the_other_questions_back(world: World) -> None:
    script(world, needs(inputRequests={"a": ELICIT, "b": SAMPLE}))
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        await until(lambda: len(open_requests(hub)) == 2)
        form, sampling = sorted(open_requests(hub), key=lambda r: r.kind)
        await hub.inbox.answer(sampling.id, Reject("no"), "me", answer_id=None, claim_id=None)
        assert (await ended(hub, call.id)).fault.code == "INPUT_REFUSED"
        await until(lambda: hub.inbox.get(form.id).state is RequestState.WITHDRAWN)
        assert len(world.peer.sent) == 1
        await until(lambda: hub.inbox.get(sampling.id).delivery is Delivery.FAILED)


async def test_a_server_that_never_has_enough_is_given_up(world: World) -> None:
    world.peer.behaviour = gives(needs(requestState="more"))
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "TOO_MANY_ROUNDS"
        assert len(world.peer.sent) == 11


@pytest.mark.parametrize(
    "asked",
    [
        ["not an object"],
        {"a": "not a request"},
        {"a": {"method": "tools/call", "params": {}}},
        {"a": {"params": {}}},
        {"good": ELICIT, "bad": {"method": 7}},
    ],
)
async def test_questions_that_make_no_sense_fail_the_call_and_ask_nobody(world: World, asked: Any) -> None:
    script(world, needs(inputRequests=asked))
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "INVALID_RESPONSE"
        assert not open_requests(hub)


async def test_a_lost_session_in_the_second_round_sends_the_answers_once_more(world: World) -> None:
    async def lose(sent: Sent) -> Outcome:
        sent.link.lose(SESSION_LOST)
        return await never(sent)

    script(world, needs(inputRequests={"a": ELICIT}, requestState="s"), lose, DONE)
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        request = await question(hub)
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)
        assert (await ended(hub, call.id)).state is CallState.COMPLETED
        assert world.peer.sent[1].params == world.peer.sent[2].params


async def test_a_call_with_rounds_is_durable_with_its_questions_in_one_commit(world: World) -> None:
    script(world, needs(inputRequests={"a": ELICIT}, requestState=STATE))
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        request = await question(hub)
        commit = next(c for c in world.store.commits if any(w.key == f"request/{request.id}" for w in c))
        stored = {write.key: payload.loads(write.value) for write in commit if write.value}
        assert stored[f"call/{call.id}"]["rounds"]["state"] == STATE


async def test_when_the_store_does_not_take_the_questions_the_call_fails(world: World) -> None:
    async def failing_store(sent: Sent) -> Outcome:
        world.store.failures = 1
        return needs(inputRequests={"a": ELICIT})

    script(world, failing_store)
    async with world.hub(server()) as hub:
        await settle()  # it has nothing else to write by then
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "STORE_UNAVAILABLE"
        assert not open_requests(hub)
