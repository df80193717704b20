"""Calls that wait for answers when the hub ends, and go on with the next one."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.calls import Call, CallState
from hubbubd.core.forms import Accept, Decline, Given, Reject, Text
from hubbubd.core.inbox import Delivery, PendingRequest, RequestState
from hubbubd.errors import FailedPrecondition, PeerError, Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.store import Write
from hubbubd.upstream.ports import Era

from .conftest import FORM, SAMPLING, World, open_requests, question, server, settle, spec, until
from .mortal import MortalStore, killed
from .peer import REFUSED, Outcome, Sent, UpstreamError, never

ELICIT = {"method": "elicitation/create", "params": FORM}
SAMPLE = {"method": "sampling/createMessage", "params": SAMPLING}
ROOTS = {"method": "roots/list"}
STATE = 'opaque "é\\u0000" \U0001f600  '
DONE: Outcome = {"content": []}
YES = Accept({"name": "x"})
ACCEPTED = {"action": "accept", "content": {"name": "x"}}

Step = Outcome | PeerError | Callable[[Sent], Any]


def needs(state: str | None = STATE, **questions: Any) -> Outcome:
    """An `input_required` result."""
    result = {"resultType": "input_required", "inputRequests": questions}
    return result if state is None else {**result, "requestState": state}


def script(world: World, *steps: Step, era: Era = Era.STATELESS) -> None:
    """Has the server `one` answer so, one after the other."""
    following = iter(steps)

    async def behaviour(sent: Sent) -> Outcome:
        step = next(following)
        if isinstance(step, PeerError):
            raise step
        return await step(sent) if callable(step) else step

    world.peer.behaviour = behaviour
    world.peer.era = era


async def answer(hub: Hub, request: PendingRequest, given: Given = YES) -> None:
    await hub.inbox.answer(request.id, given, "me", answer_id=None, claim_id=None)


async def ended(hub: Hub, call_id: str = "c") -> Call:
    await until(lambda: hub.calls.get(call_id).state.ended)
    return hub.calls.get(call_id)


async def asked(world: World, *servers: ServerConfig, count: int = 1) -> list[PendingRequest]:
    """A hub makes the call `c` and is killed when so many questions are open."""
    async with killed(world, *(servers or (server(),))) as hub:
        await hub.calls.start(spec(call_id="c"), "alice")
        await until(lambda: len(open_requests(hub)) == count)
        return open_requests(hub)


async def test_the_questions_stay_open_and_the_call_goes_on_with_the_exact_state(world: World) -> None:
    script(world, needs(a=ELICIT, b=SAMPLE), needs("second", a=ELICIT), DONE)
    before = await asked(world, count=2)
    await anyio.sleep(100)
    async with world.hub(server()) as hub:
        assert sorted(open_requests(hub), key=lambda r: r.id) == sorted(before, key=lambda r: r.id)
        call = hub.calls.get("c")
        assert (call.state, call.detached, call.principal) == (CallState.WAITING_INPUT, True, "alice")
        assert set(call.pending_ids) == {request.id for request in before}
        assert hub.calls.counts("one").waiting_input == 1
        form, sampling = sorted(before, key=lambda r: r.kind)
        await answer(hub, form)
        await settle(10)
        assert len(world.peer.sent) == 1
        await answer(hub, sampling, Text("hi"))
        third = await question(hub)
        assert world.peer.sent[1].params["requestState"] == STATE
        assert world.peer.sent[1].params["inputResponses"]["a"] == ACCEPTED
        assert world.peer.sent[1].params["inputResponses"]["b"]["content"]["text"] == "hi"
        await answer(hub, third)
        assert (await ended(hub)).state is CallState.COMPLETED
        assert world.peer.sent[2].params == {"name": "t", "inputResponses": {"a": ACCEPTED}, "requestState": "second"}
        await settle()
        assert {hub.inbox.get(each.id).delivery for each in (*before, third)} == {Delivery.DELIVERED}
        assert (hub.calls.counts("one").completed, hub.calls.counts("one").waiting_input) == (1, 0)


@pytest.mark.parametrize("detached", [True, False])
async def test_a_hub_that_stops_tells_the_caller_and_leaves_the_call_to_the_next_one(
    world: World, detached: bool
) -> None:
    script(world, needs(a=ELICIT), DONE)
    told: list[Unavailable] = []

    async def call(hub: Hub) -> None:
        with pytest.raises(Unavailable) as stopped:
            await hub.calls.call(spec(call_id="c"), "me", detached=detached)
        told.append(stopped.value)

    async with anyio.create_task_group() as callers, world.hub(server()) as hub:
        callers.start_soon(call, hub)
        request = await question(hub)
        hub.calls.shut_down()
    assert [error.reason for error in told] == ["SHUTTING_DOWN"]
    async with world.hub(server()) as hub:
        assert (await question(hub)).id == request.id
        assert hub.calls.get("c").detached
        await answer(hub, request)
        assert (await hub.calls.call(spec(call_id="c"), "me")).state is CallState.COMPLETED


async def test_a_hub_that_stops_in_a_later_round_has_it_sent_again_by_the_next_one(world: World) -> None:
    script(world, needs(a=ELICIT), never, DONE)
    async with world.hub(server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        request = await question(hub)
        await answer(hub, request)
        await until(lambda: len(world.peer.sent) == 2)
    async with world.hub(server()) as hub:
        assert hub.inbox.get(request.id).delivery in (Delivery.PENDING, Delivery.DELIVERED)
        assert (await ended(hub)).state is CallState.COMPLETED
        assert world.peer.sent[1].params == world.peer.sent[2].params
        await until(lambda: hub.inbox.get(request.id).delivery is Delivery.DELIVERED)


async def test_answers_that_were_given_before_the_kill_are_used_after_it(world: World) -> None:
    script(world, needs(a=ELICIT, b=ELICIT), DONE)
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: len(open_requests(hub)) == 2)
        first, second = open_requests(hub)
        await answer(hub, first, Accept({"name": "first"}))
    async with killed(world, server()) as hub:
        assert (await question(hub)).id == second.id
        assert hub.inbox.get(first.id).delivery is Delivery.PENDING
        await until(lambda: len(world.peer.links) == 2)
        world.peer.always = UpstreamError(REFUSED)
        world.peer.link.lose()
        await answer(hub, second, Accept({"name": "second"}))
        await settle()
    assert len(world.peer.sent) == 1
    world.peer.always = None
    async with world.hub(server()) as hub:
        assert (await ended(hub)).state is CallState.COMPLETED
        given = world.peer.sent[1].params["inputResponses"].values()
        assert sorted(each["content"]["name"] for each in given) == ["first", "second"]


async def test_a_question_that_expired_while_there_was_no_hub_goes_back_as_cancelled(world: World) -> None:
    script(world, needs(a=ELICIT), DONE)
    (request,) = await asked(world)
    await anyio.sleep(400)
    async with world.hub(server()) as hub:
        assert (await ended(hub)).state is CallState.COMPLETED
        assert hub.inbox.get(request.id).state is RequestState.EXPIRED
        assert world.peer.sent[1].params["inputResponses"]["a"]["action"] == "cancel"


async def test_a_refusal_that_was_given_before_the_kill_ends_the_call_after_it(world: World) -> None:
    script(world, needs(a=SAMPLE, b=ELICIT))
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: len(open_requests(hub)) == 2)
        sampling = next(each for each in open_requests(hub) if each.kind == "sampling")
        world.store.delay_s = 1  # the call's end comes later than the kill
        with anyio.move_on_after(1.1):
            await answer(hub, sampling, Reject("no"))
    world.store.delay_s = 0
    async with world.hub(server()) as hub:
        assert (await ended(hub)).fault.code == "INPUT_REFUSED"
        await until(lambda: not open_requests(hub))
        assert len(world.peer.sent) == 1


async def test_roots_that_were_configured_when_they_were_asked_for_are_the_ones_that_are_sent(world: World) -> None:
    script(world, needs(a=ELICIT, r=ROOTS), DONE)
    await asked(world, server(roots=({"uri": "file:///then"},)))
    async with world.hub(server(roots=({"uri": "file:///now"},))) as hub:
        await answer(hub, await question(hub))
        await ended(hub)
        responses = world.peer.sent[1].params["inputResponses"]
        assert responses == {"a": ACCEPTED, "r": {"roots": [{"uri": "file:///then"}]}}


async def test_a_state_alone_is_sent_again_by_the_next_hub(world: World) -> None:
    script(world, needs(), never, needs(None, a=ELICIT), DONE)
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: len(world.peer.sent) == 2)
    async with world.hub(server()) as hub:
        await answer(hub, await question(hub))
        assert (await ended(hub)).state is CallState.COMPLETED
        again = {"name": "t", "requestState": STATE}
        assert [each.params for each in world.peer.sent[1:3]] == [again, again]
        assert world.peer.sent[3].params == {"name": "t", "inputResponses": {"a": ACCEPTED}}


async def test_rounds_are_counted_over_a_restart(world: World) -> None:
    script(world, *[needs(a=ELICIT)] * 11)
    await asked(world)
    for _ in range(9):
        async with killed(world, server()) as hub:
            await answer(hub, await question(hub))
            await question(hub)
    async with world.hub(server()) as hub:
        await answer(hub, await question(hub))
        assert (await ended(hub)).fault.code == "TOO_MANY_ROUNDS"


PAGE = {"mode": "url", "elicitationId": "e", "message": "Sign in", "url": "https://example.org/e"}
REQUIRED = PeerError(-32042, "Sign in first", {"elicitations": [PAGE]})


async def test_a_page_that_is_agreed_to_after_the_restart_lets_the_call_go_on(world: World) -> None:
    script(world, REQUIRED, REQUIRED, DONE, era=Era.HANDSHAKE)
    await asked(world)
    async with world.hub(server()) as hub:
        first = await question(hub)
        await answer(hub, first, Accept())
        agreed = anyio.current_time()
        again = await question(hub)  # the server is not done with it, and that it had been asked for is forgotten
        assert world.peer.sent[1].at - agreed == pytest.approx(2, abs=0.1)
        await answer(hub, again, Accept())
        assert (await ended(hub)).state is CallState.COMPLETED
        assert [each.params for each in world.peer.sent] == [{"name": "t"}] * 3
        await until(lambda: {hub.inbox.get(r.id).delivery for r in (first, again)} == {Delivery.DELIVERED})


async def test_without_consent_after_the_restart_the_call_ends_with_the_error_of_the_server(world: World) -> None:
    script(world, REQUIRED, era=Era.HANDSHAKE)
    await asked(world)
    async with world.hub(server()) as hub:
        await answer(hub, await question(hub), Decline())
        fault = (await ended(hub)).fault
        assert (fault.code, fault.message, fault.details["jsonrpc_code"]) == ("SERVER_ERROR", "Sign in first", -32042)
        assert fault.details["jsonrpc_data"] == REQUIRED.data
        assert len(world.peer.sent) == 1


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ([], "not configured"),
        ([server(args=("--other",))], "another one"),
        ([server(resume=False)], "resume = false"),
    ],
)
async def test_a_call_that_cannot_go_on_fails_with_the_reason_and_its_question_is_closed(
    world: World, after: list[ServerConfig], reason: str
) -> None:
    script(world, needs(a=ELICIT, b=ELICIT))
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: len(open_requests(hub)) == 2)
        given, left = open_requests(hub)
        await answer(hub, given)
    async with world.hub(*after) as hub:
        call = hub.calls.get("c")
        assert (call.state, call.fault.code, call.fault.retryable) == (CallState.FAILED, "HUB_RESTARTED", True)
        assert reason in call.fault.message
        assert (hub.inbox.get(left.id).state, hub.inbox.get(left.id).delivery) == (
            RequestState.WITHDRAWN,
            Delivery.NONE,
        )
        assert (hub.inbox.get(given.id).state, hub.inbox.get(given.id).delivery) == (
            RequestState.ANSWERED,
            Delivery.FAILED,
        )
        await settle(10)
        assert len(world.peer.sent) == 1
        with pytest.raises(FailedPrecondition):
            await answer(hub, left)


async def test_where_nothing_may_be_sent_twice_a_stop_of_the_hub_ends_the_call(world: World) -> None:
    script(world, needs(a=ELICIT))
    async with world.hub(server(resume=False)) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        request = await question(hub)
    async with world.hub(server(resume=False)) as hub:
        assert hub.calls.get("c").fault.code == "SHUTTING_DOWN"
        assert hub.inbox.get(request.id).state is RequestState.WITHDRAWN


async def test_a_call_that_was_in_its_first_round_is_not_sent_again(world: World) -> None:
    script(world, never)
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: world.peer.sent)
    async with world.hub(server()) as hub:
        assert "carried it out" in hub.calls.get("c").fault.message
        await settle(10)
        assert len(world.peer.sent) == 1


async def test_a_disconnect_that_was_acknowledged_holds_for_calls_that_it_had_not_ended_yet(world: World) -> None:
    script(world, needs(a=ELICIT))
    world.store = store = MortalStore(world.store.inner, last_words=False)
    async with killed(world, server()) as hub:
        await hub.calls.start(spec(call_id="c"), "me")
        request = await question(hub)
        await settle()
        store.left = 1
        await hub.servers.disconnect("one")
    store.left = None
    async with world.hub(server()) as hub:
        assert not hub.servers.get("one").wanted
        assert (await ended(hub)).fault.code == "SERVER_DISCONNECTED"
        await until(lambda: hub.inbox.get(request.id).state is RequestState.WITHDRAWN)


@pytest.mark.parametrize(
    ("code", "reason"), [(-32602, "RESUME_REJECTED"), (-32600, "RESUME_REJECTED"), (-32000, "SERVER_ERROR")]
)
async def test_a_server_that_does_not_take_its_state_any_more_ends_the_call_and_says_so(
    world: World, code: int, reason: str
) -> None:
    script(world, needs(a=ELICIT), PeerError(code, "unknown state", {"why": "forgotten"}))
    await asked(world)
    async with world.hub(server()) as hub:
        request = await question(hub)
        await answer(hub, request)
        fault = (await ended(hub)).fault
        assert (fault.code, fault.retryable) == (reason, False)
        assert (fault.details["jsonrpc_code"], fault.details["jsonrpc_data"]) == (code, {"why": "forgotten"})
        assert "unknown state" in fault.message
        await until(lambda: hub.inbox.get(request.id).delivery is Delivery.DELIVERED)


async def test_only_the_first_reply_to_a_resumed_call_can_refuse_the_state(world: World) -> None:
    script(world, needs(a=ELICIT), needs("of this life"), PeerError(-32602, "no"))
    await asked(world)
    async with world.hub(server()) as hub:
        await answer(hub, await question(hub))
        assert (await ended(hub)).fault.code == "SERVER_ERROR"


async def test_a_server_that_came_back_without_rounds_is_not_sent_what_it_cannot_understand(world: World) -> None:
    script(world, needs(a=ELICIT))
    await asked(world)
    world.peer.era = Era.HANDSHAKE
    async with world.hub(server()) as hub:
        request = await question(hub)
        await answer(hub, request)
        assert (await ended(hub)).fault.code == "RESUME_REJECTED"
        assert len(world.peer.sent) == 1
        await until(lambda: hub.inbox.get(request.id).delivery is Delivery.FAILED)


@pytest.mark.parametrize("way", ["cancel", "disconnect"])
async def test_a_resumed_call_can_be_ended_as_any_other(world: World, way: str) -> None:
    script(world, needs(a=ELICIT))
    await asked(world)
    async with world.hub(server()) as hub:
        request = await question(hub)
        if way == "cancel":
            assert (await hub.calls.cancel("c", abort=False)).state is CallState.CANCELLED
        else:
            await hub.servers.disconnect("one")
            assert (await ended(hub)).fault.code == "SERVER_DISCONNECTED"
        await until(lambda: hub.inbox.get(request.id).state is RequestState.WITHDRAWN)
        assert hub.calls.counts("one").cancelled == 1
        assert not hub.calls._lanes["one"].lives


async def test_a_resumed_call_has_no_clock_until_it_is_answered_and_then_its_whole_time(world: World) -> None:
    script(world, needs(a=ELICIT), never)
    config = server(answer_timeout_s=9e6, call_timeout_s=60)
    await asked(world, config)
    async with world.hub(config) as hub:
        await anyio.sleep(86400)
        await answer(hub, await question(hub))
        answered = anyio.current_time()
        assert (await ended(hub)).fault.code == "CALL_TIMEOUT"
        assert anyio.current_time() - answered == pytest.approx(60, abs=1)


async def test_a_resumed_call_whose_server_never_comes_back_runs_out_of_time_after_its_answers(world: World) -> None:
    script(world, needs(a=ELICIT))
    await asked(world)
    world.peer.always = UpstreamError(REFUSED)
    async with world.hub(server(retries=-1, call_timeout_s=60)) as hub:
        await settle(250)
        await answer(hub, await question(hub))
        assert (await ended(hub)).fault.code == "CALL_TIMEOUT"


async def test_resumed_calls_are_not_dropped_by_a_full_queue_and_go_out_oldest_first(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        return DONE if "inputResponses" in sent.params else needs(a=ELICIT)

    world.peer.behaviour, world.peer.era = behaviour, Era.STATELESS
    names = ["first", "second", "third"]
    async with killed(world, server()) as hub:
        for count, name in enumerate(names, 1):
            await hub.calls.start(spec(name, call_id=name), "me")
            await until(lambda count=count: len(open_requests(hub)) == count)
        world.peer.always = UpstreamError(REFUSED)
        world.peer.link.lose()
        for request in open_requests(hub):
            await answer(hub, request)
        await settle()
    async with world.hub(server(max_queued=1, retries=-1)) as hub:
        await settle()
        assert hub.calls.counts("one").queued == 3
        world.peer.always = None
        for name in names:
            assert (await ended(hub, name)).state is CallState.COMPLETED
        assert [each.params["name"] for each in world.peer.sent[3:]] == names


async def test_a_call_whose_answers_have_been_deleted_ends_and_says_so(world: World) -> None:
    script(world, needs(a=ELICIT))
    (request,) = await asked(world)
    await world.store.commit([Write(f"request/{request.id}", None)])
    async with world.hub(server()) as hub:
        assert "deleted" in (await ended(hub)).fault.message


async def test_a_record_of_a_call_from_before_it_named_its_server_can_still_be_read(world: World) -> None:
    script(world, needs(a=ELICIT))
    await asked(world)
    stored = next(e for e in (await world.store.snapshot("call/")).entries if e.key == "call/c")
    record = payload.loads(stored.value)
    record["rounds"] = {name: record["rounds"][name] for name in ("count", "state", "questions")}
    await world.store.commit([Write("call/c", payload.dumps(record))])
    async with world.hub(server()) as hub:
        assert hub.calls.get("c").fault.code == "HUB_RESTARTED"
        await until(lambda: not open_requests(hub))
