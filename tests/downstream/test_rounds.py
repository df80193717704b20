"""Rounds with hosts of 2026-07-28: states, retries, races, restarts, and hosts that go away."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hubbubd import payload
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter, RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery
from hubbubd.downstream import QuestionPolicy
from hubbubd.downstream.questions.input_rounds import STATE_S
from hubbubd.errors import FailedPrecondition
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, World, open_requests, server, settle, until
from ..runtime.peer import Outcome, Sent
from ..runtime.test_time import System
from .scripted import ScriptedHost, asks, connected, host_at

ASKED = ("elicitation/create", FORM)
GIVEN = {"action": "accept", "content": {"name": "x"}}
DONE = [{"type": "text", "text": "done"}]
CALL = {"name": "t", "arguments": {"a": 1}}


async def asked_by(host: ScriptedHost, **more: Any) -> dict[str, Any]:
    """Makes a call, which asks for input; returns the request with which the host is to come back."""
    result = (await host.send("tools/call", {**CALL, **more}))["result"]
    assert result["resultType"] == "input_required"
    (key,) = result["inputRequests"]
    await settle(3)
    return {**CALL, "requestState": result["requestState"], "inputResponses": {key: GIVEN}}


Spoiling = Callable[[ScriptedHost, dict[str, Any]], tuple[ScriptedHost, str, dict[str, Any]]]


def _somebody_else(host: ScriptedHost, again: dict[str, Any]) -> tuple[ScriptedHost, str, dict[str, Any]]:
    other = ScriptedHost(host.endpoint, host_at_name(host, "somebody else"))
    return other, "tools/call", again


def stepped(world: World) -> System:
    """The system's clock of the next hub, which a test may set."""
    system = System()
    world.clock = system.clock()
    return system


def host_at_name(host: ScriptedHost, name: str) -> Any:
    """The same program, used by somebody else."""
    return replace(host.host, principal=replace(host.host.principal, name=name))


def changed(state: str) -> str:
    """The state with one character changed."""
    return state[:40] + ("A" if state[40] != "A" else "B") + state[41:]


FOREIGN: dict[str, Spoiling] = {
    "of somebody else": _somebody_else,
    "with other arguments": lambda host, again: (host, "tools/call", {**again, "arguments": {"a": 2}}),
    "of another tool": lambda host, again: (host, "tools/call", {**again, "name": "u"}),
    "of another method": lambda host, again: (host, "prompts/get", again),
    "changed": lambda host, again: (host, "tools/call", {**again, "requestState": changed(again["requestState"])}),
    "cut": lambda host, again: (host, "tools/call", {**again, "requestState": again["requestState"][:-4]}),
    "no text": lambda host, again: (host, "tools/call", {**again, "requestState": 12345}),
    "empty": lambda host, again: (host, "tools/call", {**again, "requestState": ""}),
    "with answers that are no object": lambda host, again: (host, "tools/call", {**again, "inputResponses": []}),
}


@pytest.mark.parametrize("how", FOREIGN)
async def test_a_state_that_is_not_of_the_request_is_refused_and_changes_nothing(world: World, how: str) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        again = await asked_by(host)
        who, method, params = FOREIGN[how](host, again)
        assert (await who.send(method, params))["error"]["code"] == -32602
        assert (len(open_requests(hub)), len(world.peer.sent)) == (1, 1)
        assert (await host.send("tools/call", again))["result"]["content"] == DONE
        assert got == [GIVEN]


async def test_a_state_expires(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, server(answer_timeout_s=10 * STATE_S)) as hub:
        host = host_at(hub, Era.STATELESS)
        again = await asked_by(host)
        await settle(STATE_S)
        assert (await host.send("tools/call", again))["error"]["code"] == -32602


async def test_the_same_retry_twice_gets_the_same_result_and_the_tool_runs_once(world: World) -> None:
    got = asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        again = await asked_by(host)
        both = await asyncio.gather(*(host.send("tools/call", again) for _ in range(2)))
        late = await host.send("tools/call", again)
        assert [each["result"]["content"] for each in (*both, late)] == [DONE] * 3
        assert got == [GIVEN]


async def test_a_retry_of_an_earlier_round_does_not_answer_a_later_question(world: World) -> None:
    got = asks(world, Era.STATELESS, ASKED, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        first = await asked_by(host)
        second = (await host.send("tools/call", first))["result"]
        assert second["resultType"] == "input_required"
        repeated = (await host.send("tools/call", first))["result"]
        assert repeated["resultType"] == "input_required"
        assert (got, len(open_requests(hub))) == ([GIVEN], 1)


@pytest.mark.parametrize("step_s", [-8 * 3600.0, 8 * 3600.0])
async def test_how_fast_a_host_answered_does_not_depend_on_the_systems_clock(world: World, step_s: float) -> None:
    system = stepped(world)
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, server(answer_timeout_s=100_000)) as hub:
        host = host_at(hub, Era.STATELESS)
        result = (await host.send("tools/call", CALL))["result"]
        (key,) = result["inputRequests"]
        system.epoch += step_s
        at_once = step_s > 0
        await settle(0 if at_once else 5)
        declined = {
            **CALL,
            "requestState": result["requestState"],
            "inputResponses": {key: {"action": "decline"}},
        }
        call = asyncio.create_task(host.send("tools/call", declined))
        await settle(1)
        assert bool(open_requests(hub)) is at_once
        call.cancel()


async def test_a_retry_without_an_answer_is_asked_again(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        again = await asked_by(host)
        result = (await host.send("tools/call", {**again, "inputResponses": {"other": GIVEN}}))["result"]
        assert (result["resultType"], len(result["inputRequests"])) == ("input_required", 1)


async def test_a_first_call_with_answers_and_no_state_goes_to_the_server_as_it_is(world: World) -> None:
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        await host.send("tools/call", {**CALL, "inputResponses": {"q": GIVEN}})
        assert world.peer.sent[-1].params == {**CALL, "inputResponses": {"q": GIVEN}}


# Answers that come when the host is not there


@pytest.mark.parametrize(
    ("name", "via", "seconds"),
    [
        ("some-host", "http", 45),
        ("codex-mcp-client", "stdio", 285),
        ("claude-code", "http", 300),
        ("claude-code", "stdio", 300),
    ],
)
async def test_what_a_host_was_asked_first_is_everybodys_once_it_would_have_given_up(
    world: World, name: str, via: str, seconds: float
) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, server(answer_timeout_s=100_000)) as hub:
        host = host_at(hub, Era.STATELESS, policy=QuestionPolicy(form="host-first"))
        host.host.info, host.host.via = {"name": name}, via
        await asked_by(host, _meta={"progressToken": "p"})
        (asked,) = open_requests(hub)
        person = Accept({"name": "y"})
        await settle(seconds - 10)
        with pytest.raises(FailedPrecondition):
            await hub.inbox.answer(asked.id, person, "alice", answer_id=None, claim_id=None)
        await settle(10)
        await hub.inbox.answer(asked.id, person, "alice", answer_id=None, claim_id=None)
        await until(lambda: got)


@pytest.mark.parametrize("of_host", Era)
async def test_of_host_and_inbox_exactly_one_answers(world: World, of_host: Era) -> None:
    await race(world, of_host, 50)


async def race(world: World, of_host: Era, races: int) -> None:
    """Answers as many questions, each by host and inbox at nearly the same time."""
    chance = random.Random(7)
    got: list[str] = []

    async def behaviour(sent: Sent) -> Outcome:
        answer = await sent.ask(*ASKED, on_wire=True).answered()
        got.append(answer["content"]["name"])
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world, server(max_in_flight=10)) as hub:

        async def one() -> None:
            seen: list[float] = []

            async def person(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
                seen.append(hub.clock.steady())
                await asyncio.sleep(2 + chance.uniform(0, 0.005))
                return {"action": "accept", "content": {"name": "host"}}

            host = host_at(hub, of_host, person)
            known = {request.id for request in hub.inbox.select(RequestFilter())}
            call = asyncio.create_task(host.call())
            await until(lambda: seen)
            (asked,) = [each for each in open_requests(hub) if each.id not in known]
            await asyncio.sleep(seen[0] + 2 + chance.uniform(0, 0.005) - hub.clock.steady())
            refused = None
            try:
                await hub.inbox.answer(asked.id, Accept({"name": "inbox"}), "alice", answer_id=None, claim_id=None)
            except FailedPrecondition as exc:
                refused = exc.reason
            assert (await call)["result"]["content"] == DONE
            record = hub.inbox.get(asked.id)
            winner = "host" if record.answered_by == "me" else "inbox"
            assert refused == ("ALREADY_ANSWERED" if winner == "host" else None)
            assert payload.loads(record.answer.payload)["content"] == {"name": winner}
            assert got.pop() == winner
            won.append(winner)

        won: list[str] = []
        for _ in range(races):
            await one()
        assert set(won) == {"host", "inbox"}
        await settle()
        assert {each.delivery for each in hub.inbox.select(RequestFilter())} == {Delivery.DELIVERED}


# Hosts that go away


async def gone(host: ScriptedHost, when: Callable[[], object]) -> None:
    """Makes a call, and closes its connection at a moment."""
    call = asyncio.create_task(host.send("tools/call", CALL))
    await until(when)
    await settle(2)
    call.cancel()
    await asyncio.wait([call])


async def test_a_call_that_waits_for_a_person_outlives_its_host(world: World) -> None:
    got = asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        await gone(host_at(hub, Era.STATELESS, policy=QuestionPolicy(form="inbox")), lambda: open_requests(hub))
        await settle(100)
        (open_one,) = open_requests(hub)
        await hub.inbox.answer(open_one.id, Accept({"name": "y"}), "alice", answer_id=None, claim_id=None)
        await until(lambda: got)
        (call,) = hub.calls.select(CallFilter())
        await until(lambda: hub.calls.get(call.id).state is CallState.COMPLETED)


@pytest.mark.parametrize("what", ["host", "endpoint"])
async def test_a_call_whose_answer_was_given_ends_with_its_host_or_endpoint(world: World, what: str) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*ASKED).answered()
        await asyncio.sleep(10_000)
        return {}

    world.peer.behaviour = behaviour
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        again = await asked_by(host)
        call = asyncio.create_task(host.send("tools/call", again))
        await until(lambda: not open_requests(hub))
        await settle(1)
        if what == "host":
            call.cancel()
        else:
            host.endpoint.remove()
        await settle(0.1)
        assert world.peer.sent[0].cancelled


async def test_a_lost_response_does_not_end_the_call_of_a_retry(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*ASKED).answered()
        await asyncio.sleep(30)
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS)
        again = await asked_by(host)
        first, second = (asyncio.create_task(host.send("tools/call", again)) for _ in range(2))
        await settle(2)
        first.cancel()
        assert (await second)["result"]["content"] == DONE


async def test_a_lost_response_leaves_what_is_asked_later_to_the_host_first(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*ASKED).answered()
        await asyncio.sleep(30)
        await sent.ask(*ASKED).answered()
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world) as hub:
        host = host_at(hub, Era.STATELESS, policy=QuestionPolicy(form="host-first"))
        again = await asked_by(host)
        first, second = (asyncio.create_task(host.send("tools/call", again)) for _ in range(2))
        await settle(2)
        first.cancel()
        assert (await second)["result"]["resultType"] == "input_required"
        (later,) = open_requests(hub)
        assert later.claim is not None


# Restarts


async def test_a_retry_finds_its_call_after_a_restart(world: World) -> None:
    got = asks(world, Era.STATELESS, ASKED)
    async with connected(world) as hub:
        again = await asked_by(host_at(hub, Era.STATELESS))
    async with connected(world) as hub:
        response = await host_at(hub, Era.STATELESS).send("tools/call", again)
        assert response["result"]["content"] == DONE
        assert got == [GIVEN]
        assert len(world.peer.sent) == 2


async def test_the_retry_of_a_call_that_a_restart_ended_says_so(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        again = await asked_by(host_at(hub, Era.STATELESS))
    async with connected(world) as hub:
        result = (await host_at(hub, Era.STATELESS).send("tools/call", again))["result"]
        assert result["isError"]
        assert "restarted" in result["content"][0]["text"]
        assert len(world.peer.sent) == 1


async def test_prompts_have_no_result_that_says_so(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world) as hub:
        result = (await host_at(hub, Era.STATELESS).send("prompts/get", {"name": "p"}))["result"]
        again = {"name": "p", "requestState": result["requestState"]}
    async with connected(world) as hub:
        error = (await host_at(hub, Era.STATELESS).send("prompts/get", again))["error"]
        assert (error["code"], error["data"]["reason"]) == (-32000, "HUB_RESTARTED")


# Sessions that end
