"""Calls that wait for answers when the hub ends, and come to their end with the next one."""

import anyio
import pytest

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.inbox.forms import Decline, Reject
from hubbubd.core.inbox.request_states import Delivery, RequestState
from hubbubd.errors import FailedPrecondition, PeerError
from hubbubd.store import Write
from hubbubd.upstream.ports import Era

from .conftest import World, open_requests, question, server, settle, spec, until
from .mortal import ELICIT, REQUIRED, SAMPLE, MortalStore, answer, asked, ended, killed, needs, script
from .peer import REFUSED, UpstreamError


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


async def test_a_resumed_call_whose_server_never_comes_back_runs_out_of_time_after_its_answers(world: World) -> None:
    script(world, needs(a=ELICIT))
    await asked(world)
    world.peer.always = UpstreamError(REFUSED)
    async with world.hub(server(retries=-1, call_timeout_s=60)) as hub:
        await settle(250)
        await answer(hub, await question(hub))
        assert (await ended(hub)).fault.code == "CALL_TIMEOUT"


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
