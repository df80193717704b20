"""Calls that need pages to be visited first (error -32042), and questions that are refused before anybody sees them."""

from typing import Any

import anyio
import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept, ClientAnswer, Decline, Dismiss
from hubbubd.core.inbox.request_states import CauseSource, Delivery, PendingRequest, RequestKind
from hubbubd.errors import PeerError
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era, ReplyError

from .conftest import SAMPLING, World, open_requests, question, server, settle, spec, until
from .peer import Outcome, Sent

COMPLETE = "notifications/elicitation/complete"


def page(name: str = "e1", **more: Any) -> dict[str, Any]:
    return {
        "mode": "url",
        "elicitationId": name,
        "message": "Please sign in",
        "url": f"https://example.org/{name}",
        **more,
    }


def required(*pages: Any) -> PeerError:
    return PeerError(-32042, "Sign in first", {"elicitations": list(pages)})


def script(world: World, *steps: Outcome | PeerError) -> None:
    """Has the server `one` answer so, one after the other; the last again and again."""
    following = list(steps)

    async def behaviour(sent: Sent) -> Outcome:
        step = following.pop(0) if len(following) > 1 else following[0]
        if isinstance(step, PeerError):
            raise step
        return step

    world.peer.behaviour = behaviour


async def answer(hub: Hub, request: PendingRequest, given: ClientAnswer | None = None) -> None:
    await hub.inbox.answer(request.id, given or Accept(), "me", answer_id=None, claim_id=None)


async def test_a_call_is_sent_again_once_all_pages_are_agreed_to(world: World) -> None:
    script(world, required(page("e1"), page("e2")), {"content": []})
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "alice")
        await until(lambda: len(open_requests(hub)) == 2)
        first, second = sorted(open_requests(hub), key=lambda r: r.request)
        assert (first.kind, first.call_id, first.principal) == (RequestKind.ELICITATION_URL, call.id, "alice")
        assert first.cause_source is CauseSource.WIRE
        assert payload.loads(first.request) == page("e1")
        waiting = hub.calls.get(call.id)
        assert (waiting.state, set(waiting.pending_ids)) == (CallState.WAITING_INPUT, {first.id, second.id})
        await answer(hub, first)
        await settle(10)
        assert len(world.peer.sent) == 1
        await answer(hub, second)
        await until(lambda: hub.calls.get(call.id).state is CallState.COMPLETED)
        assert [each.params for each in world.peer.sent] == [{"name": "t"}] * 2
        await until(lambda: {hub.inbox.get(r.id).delivery for r in (first, second)} == {Delivery.DELIVERED})


async def test_the_call_waits_a_moment_for_the_server_to_be_done_with_the_page(world: World) -> None:
    script(world, required(page()), {"content": []})
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        await answer(hub, await question(hub))
        agreed = anyio.current_time()
        await until(lambda: hub.calls.get(call.id).state.ended)
        assert world.peer.sent[1].at - agreed == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("early", [True, False])
async def test_a_page_that_is_done_lets_the_call_go_on_at_once(world: World, early: bool) -> None:
    script(world, required(page()), {"content": []})
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        request = await question(hub)
        if early:
            world.peer.link.tell(COMPLETE, {"elicitationId": "e1"})
            await settle(5)
            assert len(world.peer.sent) == 1  # nobody has agreed yet
        await answer(hub, request)
        agreed = anyio.current_time()
        if not early:
            await settle(0.5)
            assert len(world.peer.sent) == 1
            world.peer.link.tell(COMPLETE, {"elicitationId": "e1"})
        await until(lambda: hub.calls.get(call.id).state is CallState.COMPLETED)
        assert world.peer.sent[1].at - agreed < 1


async def test_a_page_that_is_asked_for_again_waits_for_the_server_and_for_nobody_else(world: World) -> None:
    script(world, required(page()), required(page()), {"content": []})
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        await answer(hub, await question(hub))
        await settle(200)
        assert len(world.peer.sent) == 2
        assert not open_requests(hub)
        assert hub.calls.get(call.id).state is CallState.WAITING_INPUT
        world.peer.link.tell(COMPLETE, {"elicitationId": "e1"})
        await until(lambda: hub.calls.get(call.id).state is CallState.COMPLETED)


async def test_a_page_that_the_server_is_never_done_with_ends_the_call_with_its_error(world: World) -> None:
    script(world, required(page()))
    async with world.hub(server(answer_timeout_s=50)) as hub:
        call = await hub.calls.start(spec(), "me")
        await answer(hub, await question(hub))
        agreed = anyio.current_time()
        await until(lambda: hub.calls.get(call.id).state.ended)
        assert anyio.current_time() - agreed == pytest.approx(52, abs=0.2)
        assert hub.calls.get(call.id).fault.details["jsonrpc_code"] == -32042
        assert len(world.peer.sent) == 2


@pytest.mark.parametrize("given", [Decline(), Dismiss(), None])
async def test_without_consent_the_call_ends_with_the_error_of_the_server(
    world: World, given: ClientAnswer | None
) -> None:
    script(world, required(page("e1"), page("e2")))
    async with world.hub(server(answer_timeout_s=300)) as hub:
        call = await hub.calls.start(spec(), "me")
        await until(lambda: len(open_requests(hub)) == 2)
        if given is not None:
            await answer(hub, open_requests(hub)[0], given)
        await until(lambda: hub.calls.get(call.id).state.ended)
        fault = hub.calls.get(call.id).fault
        assert (fault.code, fault.message) == ("SERVER_ERROR", "Sign in first")
        assert fault.details["jsonrpc_data"] == {"elicitations": [page("e1"), page("e2")]}
        assert len(world.peer.sent) == 1
        await until(lambda: not open_requests(hub))


async def test_a_server_that_always_wants_another_page_is_given_up(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        raise required(page(f"e{len(world.peer.sent)}"))

    world.peer.behaviour = behaviour
    async with world.hub(server()) as hub:
        call = await hub.calls.start(spec(), "me")
        for _ in range(10):
            await answer(hub, await question(hub))
            await settle(3)
        assert hub.calls.get(call.id).fault.code == "TOO_MANY_ROUNDS"
        assert len(world.peer.sent) == 11


@pytest.mark.parametrize(
    "error",
    [
        required(),
        required(5),
        required(page(), page()),
        required(page(mode="form")),
        required(page(elicitationId=None)),
        required(page(message=None)),
        required(page(), page("e2", url="javascript:alert(1)")),
        PeerError(-32042, "no"),
        PeerError(-32042, "no", ["elicitations"]),
        PeerError(-32042, "no", {"elicitations": "e1"}),
        PeerError(-32043, "no", {"elicitations": [page()]}),
    ],
)
async def test_an_error_that_names_no_page_to_visit_is_only_an_error(world: World, error: PeerError) -> None:
    script(world, error)
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert (call.fault.code, call.fault.details["jsonrpc_code"]) == ("SERVER_ERROR", error.code)
        assert not hub.inbox.select(RequestFilter())


@pytest.mark.parametrize("params", [{"elicitationId": "unknown"}, {"elicitationId": ["e1"]}, {}])
async def test_the_end_of_an_elicitation_that_nobody_knows_changes_nothing(
    world: World, params: dict[str, Any]
) -> None:
    script(world, required(page()))
    async with world.hub(server()) as hub:
        await hub.calls.start(spec(), "me")
        request = await question(hub)
        world.peer.link.tell(COMPLETE, params)
        await settle()
        assert hub.inbox.get(request.id) == request


HALF_A_PAIR = {
    "message": "m",
    "requestedSchema": {"type": "object", "properties": {"\ud83d": {"type": "string"}}},
}
UNBALANCED = {
    **SAMPLING,
    "messages": [
        {"role": "assistant", "content": {"type": "tool_use", "id": "a", "name": "n", "input": {}}},
        {"role": "user", "content": [{"type": "tool_result", "toolUseId": "b", "content": []}]},
    ],
}


@pytest.mark.parametrize("task", [{}, {"task": {"ttl": 60_000}}])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", page(url="file:///etc/passwd")),
        ("elicitation/create", HALF_A_PAIR),
        ("sampling/createMessage", UNBALANCED),
    ],
)
async def test_what_breaks_the_rules_is_refused_before_anybody_sees_it(
    world: World, method: str, params: dict[str, Any], task: dict[str, Any]
) -> None:
    async with world.linked() as hub:
        with pytest.raises(ReplyError) as refused:
            await world.peer.link.asked(method, {**params, **task})
        assert refused.value.code == -32602
        assert not open_requests(hub)
        tasks = await world.peer.link.asked("tasks/list", {})
        assert tasks["tasks"] == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", page(url="ftp://example.org")),
        ("elicitation/create", HALF_A_PAIR),
        ("sampling/createMessage", UNBALANCED),
    ],
)
async def test_a_round_that_breaks_the_rules_fails_the_call(world: World, method: str, params: dict[str, Any]) -> None:
    result = {"resultType": "input_required", "inputRequests": {"a": {"method": method, "params": params}}}
    script(world, result)
    world.peer.era = Era.STATELESS
    async with world.hub(server()) as hub:
        call = await hub.calls.call(spec(), "me")
        assert call.fault.code == "INVALID_RESPONSE"
        assert "inputRequests.a" in call.fault.message
        assert not open_requests(hub)
