"""Requests that are held while people are asked: for how long, what the host hears meanwhile, and what ends that."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.downstream import QuestionPolicy
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, World, open_requests, question, server, settle, until
from ..runtime.peer import Outcome, Sent, gives
from .scripted import ScriptedHost, answering, asks, connected, host_at

ASKED = ("elicitation/create", FORM)
DONE = [{"type": "text", "text": "done"}]
CALL: dict[str, Any] = {"name": "t", "_meta": {"progressToken": "p"}}
UNTOLD = {"name": "t"}
ERROR = QuestionPolicy(form="inbox", on_hold_end="error")
PATIENT = server(answer_timeout_s=100_000)


async def answer(hub: Hub) -> None:
    """Somebody answers what is open, in the inbox."""
    for request in open_requests(hub):
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "alice", answer_id=None, claim_id=None)


def progress(host: ScriptedHost) -> list[dict[str, Any]]:
    """The progress that a host received."""
    return [params for method, params in host.told if method == "notifications/progress"]


async def held_for(hub: Hub, host: ScriptedHost, params: dict[str, Any]) -> int:
    """Makes a call that ends in an error because it is waited for; returns after how many whole seconds."""
    begun = hub.clock.steady()
    response = await host.call(**params)
    assert response["error"]["data"]["reason"] == "ANSWER_AWAITED"
    return round(hub.clock.steady() - begun)


KNOWN = [
    ("some-host", "http", CALL, 45),
    ("some-host", "stdio", CALL, 45),
    (None, "http", CALL, 45),
    ("claude-ai", "stdio", CALL, 45),
    ("mcp", "http", CALL, 45),
    ("claude-code", "http", UNTOLD, 285),
    ("claude-code", "stdio", UNTOLD, 1085),
    ("claude-codex", "http", CALL, 45),
    ("codex-mcp-client", "http", CALL, 285),
    ("codex-mcp-client", "stdio", UNTOLD, 285),
    ("gemini-cli-mcp-client", "http", UNTOLD, 585),
    ("gemini-cli-mcp-client", "stdio", CALL, 585),
    ("opencode", "http", UNTOLD, 54),
    ("qwen-cli-mcp-client-hubbub", "http", UNTOLD, 285),
    ("qwen-cli-mcp-client-hubbub", "stdio", CALL, 585),
    ("copilot-cli", "http", CALL, 685),
    ("copilot-cli", "stdio", UNTOLD, 165),
    ("continue-cli-client", "stdio", UNTOLD, 54),
]


@pytest.mark.parametrize(("name", "via", "params", "seconds"), KNOWN)
@pytest.mark.parametrize("era", Era)
async def test_a_request_is_held_as_long_as_its_host_is_known_to_wait(
    world: World, era: Era, name: str | None, via: str, params: dict[str, Any], seconds: float
) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        host = host_at(hub, era, policy=ERROR)
        host.host.info, host.host.via = {"name": name}, via
        assert await held_for(hub, host, params) == seconds


@pytest.mark.parametrize(
    ("name", "via"), [("claude-code", "stdio"), ("claude-code", "http"), ("opencode", "stdio"), ("opencode", "http")]
)
async def test_a_host_that_waits_for_ever_as_long_as_it_is_told_is_held_for_ever(
    world: World, name: str, via: str
) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        host = host_at(hub, policy=ERROR)
        host.host.info, host.host.via = {"name": name}, via
        call = asyncio.create_task(host.call(**CALL))
        await settle(20_000)
        await answer(hub)
        assert (await call)["result"]["content"] == DONE


@pytest.mark.parametrize(("by_token", "by_request", "seconds"), [(9, None, 9), (9, 4, 4), (None, 4, 4), (0, None, 1)])
@pytest.mark.parametrize("era", Era)
async def test_a_token_can_say_how_long_and_a_request_has_the_last_word(
    world: World, era: Era, by_token: float | None, by_request: float | None, seconds: float
) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        host = host_at(hub, era, policy=QuestionPolicy(form="inbox", hold_s=7, on_hold_end="error"))
        host.host.principal = replace(host.host.principal, hold_s=by_token)
        host.hold_s = by_request
        assert await held_for(hub, host, CALL) == seconds


@pytest.mark.parametrize("era", Era)
async def test_a_host_that_can_be_asked_is_asked_even_where_nothing_is_held(world: World, era: Era) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        policy = QuestionPolicy(hold_s=0, on_hold_end="error", unattended_s=0)
        host = host_at(hub, era, answering({"action": "accept", "content": {"name": "x"}}, 0.1), policy=policy)
        assert (await host.call(**CALL))["result"]["content"] == DONE
        assert len(host.asked) == 1


async def test_what_waits_for_nobody_is_not_ended(world: World) -> None:
    world.peer.behaviour = gives({"content": DONE}, after_s=500)
    async with connected(world, server(call_timeout_s=1000, call_max_s=1000)) as hub:
        host = host_at(hub, policy=ERROR)
        assert (await host.call(**CALL))["result"]["content"] == DONE
        assert progress(host) == []


# What the host hears


async def test_progress_says_every_ten_seconds_where_to_answer(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        host = host_at(hub, policy=ERROR)
        call = asyncio.create_task(host.call(**CALL))
        asked = await question(hub)
        await settle(32)
        assert [each["message"] for each in progress(host)] == [
            f"waiting for an answer: hubbub inbox show {asked.id}"
        ] * 4
        await answer(hub)
        await call
        assert len(progress(host)) == 4


# The host's own dialog


async def test_as_long_as_the_dialog_of_the_host_is_open_the_request_is_held(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        person = answering({"action": "accept", "content": {"name": "x"}}, 5000)
        host = host_at(hub, handler=person, policy=QuestionPolicy(on_hold_end="error"))
        assert (await host.call(**CALL))["result"]["content"] == DONE


async def test_a_dialog_that_is_closed_without_an_answer_ends_what_was_held_long_enough(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        host = host_at(hub, handler=answering({"action": "cancel"}, 300), policy=QuestionPolicy(on_hold_end="error"))
        assert await held_for(hub, host, CALL) == 300
        assert len(open_requests(hub)) == 1


async def test_a_time_that_the_profile_gives_counts_for_dialogs_too_which_are_taken_back(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        host = host_at(hub, policy=QuestionPolicy(hold_s=30, on_hold_end="error"))
        assert await held_for(hub, host, CALL) == 30
        assert host.told[-1][0] == "notifications/cancelled"
        assert len(open_requests(hub)) == 1


# The call goes on


async def test_a_question_that_one_of_two_calls_has_caused_holds_both(world: World) -> None:
    async def behaviour(sent: Sent) -> Outcome:
        if sent.params["name"] == "asks":
            await asyncio.sleep(1)
            await sent.ask(*ASKED).answered()
        else:
            await asyncio.sleep(30)
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world, server(max_in_flight=2, answer_timeout_s=100_000)) as hub:
        host = host_at(hub, policy=ERROR)
        both = [asyncio.create_task(host.call(**{**CALL, "name": name})) for name in ("asks", "works")]
        asked = await question(hub)
        await settle(15)
        told = progress(host)
        assert len(told) == 4
        assert {each["message"] for each in told} == {"waiting for an answer: hubbub inbox list"}
        asking, working = await asyncio.gather(*both)
        assert (asking["error"]["data"]["requests"], asked.id in asking["error"]["message"]) == ([], False)
        assert "result" in working


async def test_a_request_is_held_until_its_call_can_be_kept(world: World) -> None:
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        call = asyncio.create_task(held_for(hub, host_at(hub, policy=ERROR), CALL))
        await question(hub)
        await settle(40)
        world.store.failures = 1
        assert await call == 55
        await answer(hub)
        (record,) = hub.calls.select(CallFilter())
        await until(lambda: hub.calls.get(record.id).state is CallState.COMPLETED)
