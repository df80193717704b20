"""Calls that take longer than their host waits: the ticket it gets, and the result that it fetches with it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.core.access import Grant, Principal, Role
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.downstream import McpEndpoint, McpHost, ProfileView
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, World, open_requests, question, server, settle, until
from ..runtime.peer import Outcome, Sent, gives
from .scripted import ABLE, ME, REVISIONS, Handler, ScriptedHost, answering, asks, connected, handles, never, principal

ASKED = ("elicitation/create", FORM)
VISIT = ("elicitation/create", {"mode": "url", "url": "https://x.example/", "message": "Visit", "elicitationId": "1"})
GIVEN = {"action": "accept", "content": {"name": "x"}}
PATIENT = server(answer_timeout_s=100_000)
DONE = [{"type": "text", "text": "done"}]

TOOLS = [
    {"name": "t", "inputSchema": {"type": "object"}},
    {"name": "typed", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}},
]
FAITHFUL: dict[str, Any] = {
    "content": [{"type": "text", "text": "done"}, {"type": "text", "text": "odd", "n": 12345678901234567890123}],
    "structuredContent": {"half": 0.5, "none": None, "list": [1, 2.0, "é"]},
    "_meta": {"one/of-theirs": {"deep": [[]]}},
    "unknown": True,
}


def offers(world: World) -> None:
    """Has the server list TOOLS."""

    world.peer.capabilities = {"tools": {}}
    world.peer.listing = gives({"tools": TOOLS})


def host_of(
    hub: Hub,
    era: Era = Era.HANDSHAKE,
    *,
    capabilities: dict[str, Any] | None = None,
    handler: Handler = never,
    who: Principal | None = None,
    **settings: Any,
) -> ScriptedHost:
    """A host of a profile; one that nobody can ask anything, if nothing else is said."""
    kept = ProfileSettings(**settings)
    endpoint = McpEndpoint(hub, ProfileView(hub, "p", lambda: kept), handles(hub))
    host = McpHost(principal=who or principal(), revision=REVISIONS[era], capabilities=capabilities or {})
    return ScriptedHost(endpoint, host, handler, clock=hub.clock.steady)


async def answer(hub: Hub) -> None:
    """Somebody answers what is open, in the inbox."""
    for request in open_requests(hub):
        await hub.inbox.answer(request.id, Accept({"name": "x"}), "alice", answer_id=None, claim_id=None)


async def ticket_of(host: ScriptedHost, name: str = "one__t", **arguments: Any) -> str:
    """Makes a call that gets a ticket; returns its call's id."""
    result = (await host.call(name=name, arguments=arguments))["result"]
    return result["_meta"]["hubbub/callId"]


async def fetch(host: ScriptedHost, call_id: Any, **more: Any) -> dict[str, Any]:
    """The response to a call of `hubbub_result`."""
    return await host.call(name="hubbub_result", arguments={"call_id": call_id, **more})


async def ended(hub: Hub, call_id: str) -> None:
    """Waits for the end of a call."""
    await until(lambda: hub.calls.get(call_id).state.ended)


def faithful(world: World) -> None:
    """Has the server ask something, and then return FAITHFUL."""

    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*ASKED).answered()
        return FAITHFUL

    world.peer.behaviour = behaviour


@pytest.fixture(params=Era)
def era(request: pytest.FixtureRequest) -> Era:
    """The kind of revision that the host has."""
    return request.param


@pytest.mark.parametrize("of_server", Era)
async def test_a_ticket_says_who_waits_for_what_and_how_to_get_the_result(
    world: World, era: Era, of_server: Era
) -> None:
    offers(world)
    asks(world, of_server, ASKED)
    async with connected(world, PATIENT) as hub:
        result = (await host_of(hub, era).call(name="one__t"))["result"]
        (asked,), (call,) = open_requests(hub), hub.calls.select(CallFilter())
        text = result["content"][0]["text"]
        assert text.startswith(f"one waits for an answer ({asked.id}).")
        assert f"hubbub_result with call_id {call.id}" in text
        assert result["_meta"] == {"hubbub/callId": call.id}
        assert "isError" not in result
        assert result.get("resultType") == (None if era is Era.HANDSHAKE else "complete")


async def test_a_ticket_is_an_error_only_where_the_host_would_check_a_result(world: World) -> None:
    offers(world)
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, server(answer_timeout_s=100_000, max_in_flight=9)) as hub:
        wrapped: dict[str, Any] = {"name": "one__typed", "arguments": {}}
        listing, searching = host_of(hub), host_of(hub, tools="search")
        assert (await listing.call(name="one__typed"))["result"]["isError"]
        assert "isError" not in (await searching.call(name="hubbub_call_tool", arguments=wrapped))["result"]


async def test_the_result_is_the_one_of_the_server_again_and_again(world: World, era: Era) -> None:
    offers(world)
    faithful(world)
    async with connected(world, PATIENT) as hub:
        host = host_of(hub, era)
        call_id = await ticket_of(host)
        await answer(hub)
        await ended(hub, call_id)
        own = {} if era is Era.HANDSHAKE else {"resultType": "complete"}
        for _ in range(2):
            assert (await fetch(host, call_id))["result"] == {**own, **FAITHFUL}
        assert len(world.peer.sent) == 1


async def test_uris_of_the_result_are_those_of_the_profile(world: World) -> None:
    offers(world)

    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*ASKED).answered()
        return {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]}

    world.peer.behaviour = behaviour
    async with connected(world, PATIENT) as hub:
        host = host_of(hub)
        call_id = await ticket_of(host)
        await answer(hub)
        assert (await fetch(host, call_id))["result"]["content"][0]["uri"] == "hubbub://s/one/file:///a"


async def test_a_result_is_waited_for(world: World, era: Era) -> None:
    offers(world)
    faithful(world)
    async with connected(world, PATIENT) as hub:
        host = host_of(hub, era)
        call_id = await ticket_of(host)
        fetching = asyncio.create_task(fetch(host, call_id))
        await settle(30)
        await answer(hub)
        assert (await fetching)["result"]["structuredContent"] == FAITHFUL["structuredContent"]


@pytest.mark.parametrize(("wait_s", "seconds"), [(None, 45), (20, 20), (1e300, 45), (-1, 1), (0, 1)])
async def test_what_is_still_waited_for_is_another_ticket(
    world: World, era: Era, wait_s: float | None, seconds: float
) -> None:
    offers(world)
    faithful(world)
    async with connected(world, PATIENT) as hub:
        host = host_of(hub, era)
        call_id, begun = await ticket_of(host), hub.clock.steady()
        result = (await fetch(host, call_id, **({} if wait_s is None else {"wait_s": wait_s})))["result"]
        assert round(hub.clock.steady() - begun) == seconds
        assert result["_meta"] == {"hubbub/callId": call_id}
        assert open_requests(hub)[0].id in result["content"][0]["text"]


async def test_a_fetch_of_what_is_at_work_says_so_and_is_told_of_progress(world: World, era: Era) -> None:
    offers(world)

    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*ASKED).answered()
        await asyncio.sleep(20)
        sent.progress(7, 10)
        await asyncio.sleep(100)
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world, server(answer_timeout_s=1000, call_timeout_s=1000)) as hub:
        host = host_of(hub, era)
        call_id = await ticket_of(host)
        await answer(hub)
        params: dict[str, Any] = {
            "name": "hubbub_result",
            "arguments": {"call_id": call_id},
            "_meta": {"progressToken": 1},
        }
        still = (await host.call(**params))["result"]
        assert "one is still at work." in still["content"][0]["text"]
        told = [params for method, params in host.told if method == "notifications/progress"]
        assert [each.get("message") for each in told] == [
            *["the call is under way"] * 2,
            None,
            *[told[0]["message"]] * 3,
        ]
        assert [each["progress"] for each in told] == sorted({each["progress"] for each in told})
        assert (await fetch(host, call_id))["result"]["_meta"] == {"hubbub/callId": call_id}
        assert (await fetch(host, call_id))["result"]["content"] == DONE


# Whose results


OTHERS: dict[str, Callable[[Hub, str], tuple[ScriptedHost, str]]] = {
    "of somebody else": lambda hub, call_id: (host_of(hub, who=principal("somebody")), call_id),
    "of a server that the profile does not show": lambda hub, call_id: (host_of(hub, servers=["two"]), call_id),
    "of a server that it may not call any more": lambda hub, call_id: (
        host_of(hub, who=replace(principal(), grants=(Grant(Role.CALLER, ("two",)),))),
        call_id,
    ),
    "that never was": lambda hub, _call_id: (host_of(hub), "call_0"),
    "with a name that is too long": lambda hub, _call_id: (host_of(hub), "x" * 100_000),
    "with a name that is no text": lambda hub, _call_id: (host_of(hub), "\ud800"),
}


@pytest.mark.parametrize("how", OTHERS)
async def test_a_call_that_is_not_for_the_host_does_not_exist(world: World, how: str) -> None:
    offers(world)
    faithful(world)
    async with connected(world, PATIENT) as hub:
        call_id = await ticket_of(host_of(hub))
        host, asked_for = OTHERS[how](hub, call_id)
        for _ in range(2):
            error = (await fetch(host, asked_for))["error"]
            assert error["code"] == -32602
            assert error["data"]["reason"] == "CALL_NOT_FOUND"
            assert error["data"]["help"].endswith("call_not_found.html")
            assert error["message"] == f"there is no call {asked_for[:100]!r} of yours here, or it has been deleted"
            await answer(hub)
            await ended(hub, call_id)


async def test_what_is_no_call_of_a_tool_is_not_fetched(world: World) -> None:
    offers(world)
    async with connected(world, PATIENT) as hub:
        read = await hub.calls.call(CallSpec(server="one", method="prompts/get", params=b'{"name":"p"}'), ME)
        assert (await fetch(host_of(hub), read.id))["error"]["data"]["reason"] == "CALL_NOT_FOUND"


@pytest.mark.parametrize("arguments", [None, [], "x", {}, {"call_id": 7}, {"call_id": "c", "wait_s": "5"}])
async def test_wrong_arguments_are_an_error_that_says_so(world: World, arguments: Any) -> None:
    async with connected(world, PATIENT) as hub:
        error = (await host_of(hub).call(name="hubbub_result", arguments=arguments))["error"]
        assert error["code"] == -32602
        assert error["message"].startswith("hubbub_result: ")


# Where there are tickets


@pytest.mark.parametrize(("end", "listed"), [("ticket", True), ("error", False), ("wait", False)])
@pytest.mark.parametrize("tools", ["all", "search"])
async def test_the_tool_is_there_where_tickets_are(world: World, end: str, listed: bool, tools: str) -> None:
    offers(world)
    async with connected(world, PATIENT) as hub:
        host = host_of(hub, on_hold_end=end, tools=tools)
        names = [tool["name"] for tool in (await host.call("tools/list", cursor=None))["result"]["tools"]]
        assert ("hubbub_result" in names) == listed
        reason = (await fetch(host, "c"))["error"]["data"]["reason"]
        assert reason == ("CALL_NOT_FOUND" if listed else "TOOL_NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "params"),
    [("prompts/get", {"name": "one__p"}), ("resources/read", {"uri": "hubbub://s/one/file:///a"})],
)
async def test_prompts_and_resources_have_an_error_instead(
    world: World, era: Era, method: str, params: dict[str, Any]
) -> None:
    async def listing(sent: Sent) -> Outcome:
        return {"prompts": [{"name": "p"}]} if sent.method == "prompts/list" else {}

    world.peer.capabilities, world.peer.listing = {"prompts": {}}, listing
    asks(world, Era.HANDSHAKE, ASKED)
    async with connected(world, PATIENT) as hub:
        error = (await host_of(hub, era).call(method, **params))["error"]
        assert error["data"]["reason"] == "ANSWER_AWAITED"
        await answer(hub)
        await ended(hub, error["data"]["call"])
        assert hub.calls.get(error["data"]["call"]).state is CallState.COMPLETED


# Restarts


async def test_the_result_is_there_after_a_restart_between_answer_and_fetch(world: World, era: Era) -> None:
    offers(world)
    faithful(world)
    async with connected(world, PATIENT) as hub:
        call_id = await ticket_of(host_of(hub, era))
        await answer(hub)
        await ended(hub, call_id)
    async with connected(world, PATIENT) as hub:
        assert (await fetch(host_of(hub, era), call_id))["result"]["unknown"]
        assert len(world.peer.sent) == 1


# Hosts that go away, and hosts that are asked later


async def test_a_call_with_a_ticket_outlives_its_host(world: World, era: Era) -> None:
    offers(world)

    async def behaviour(sent: Sent) -> Outcome:
        await sent.ask(*ASKED).answered()
        await asyncio.sleep(50)
        return {"content": DONE}

    world.peer.behaviour = behaviour
    async with connected(world, PATIENT) as hub:
        host = host_of(hub, era)
        call_id = await ticket_of(host)
        host.session.end()
        await settle(10_000)
        await answer(hub)
        gone = asyncio.create_task(fetch(host_of(hub, era), call_id))
        await settle(10)
        gone.cancel()
        await asyncio.wait([gone])
        await ended(hub, call_id)
        assert (await fetch(host_of(hub, era), call_id))["result"]["content"] == DONE


@pytest.mark.parametrize("of_server", Era)
async def test_a_host_that_fetches_a_result_is_asked_what_it_can_answer(world: World, era: Era, of_server: Era) -> None:
    offers(world)
    got = asks(world, of_server, VISIT, ASKED)
    async with connected(world, PATIENT) as hub:
        able: dict[str, Any] = {**ABLE, "elicitation": {"form": {}}}
        host = host_of(hub, era, capabilities=able, handler=answering(GIVEN))
        call_id = await ticket_of(host)
        fetching = asyncio.create_task(fetch(host, call_id))
        await settle(5)
        visited = await question(hub)
        await hub.inbox.answer(visited.id, Accept(None), "alice", answer_id=None, claim_id=None)
        assert (await fetching)["result"]["content"] == DONE
        assert (len(host.asked), got[-1]) == (1, GIVEN)


async def test_a_person_who_takes_long_is_waited_for_at_hosts_of_every_patience(world: World, era: Era) -> None:
    offers(world)
    faithful(world)
    async with connected(world, server(answer_timeout_s=100_000, max_in_flight=20)) as hub:
        names = ["claude-ai", "codex-mcp-client", "claude-code", "another"]
        hosts = [(host_of(hub, era), name, via) for name in names for via in ("http", "stdio")]
        calls: list[asyncio.Task[dict[str, Any]]] = []
        for host, name, via in hosts:
            host.host.info, host.host.via = {"name": name}, via
            calls.append(asyncio.create_task(host.call(name="one__t", _meta={"progressToken": name})))
        await settle(600)
        ready = [call.done() for call in calls]
        await answer(hub)
        assert ready == [name != "claude-code" for _, name, _ in hosts]
        for (host, *_), call in zip(hosts, calls, strict=True):
            result = (await call)["result"]
            if "hubbub/callId" in result["_meta"]:
                result = (await fetch(host, result["_meta"]["hubbub/callId"]))["result"]
            assert json.dumps(result["structuredContent"]) == json.dumps(FAITHFUL["structuredContent"])
