"""Which revision is found, and what a stateless server gets with each request."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hubbubd.errors import Category, InvalidArgument, PeerError, UpstreamError
from hubbubd.upstream.ports import Era, LostDuringProbe
from hubbubd.upstream.protocol.capabilities import SKILLS_EXTENSION

from ..raising import raising
from .conftest import Connect, Recorder, Scripted, open_once, parks

Options = dict[str, Any]
Stdio = Callable[..., Options]

DISCOVERED = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "ttlMs": -5,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "2"}},
}


def answers(**parts: Any) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        message = await request.json()
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **parts})

    return respond


async def test_a_server_that_answers_discover_is_stateless(stdio: Stdio, connect: Connect) -> None:
    async with connect(**stdio("mrtr_server.py", "stdio")) as link:
        assert (link.hello.era, link.hello.protocol_version) == (Era.STATELESS, "2026-07-28")
        assert link.hello.server_info["name"] == "mrtr"
        assert link.hello.pid is not None
        await link.probe()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_input_required_result_is_returned_as_it_is_and_resumed_by_the_caller(
    transport: str, stdio: Stdio, http_peer: Any, peer_scripts: Path, connect: Connect, recorder: Recorder
) -> None:
    options = stdio("mrtr_server.py", "stdio")
    if transport == "http":
        peer = http_peer([sys.executable, str(peer_scripts / "mrtr_server.py"), "http"])
        options = {"url": f"{peer.url}/mcp"}
    params: dict[str, Any] = {"name": "two_rounds", "arguments": {}}
    async with connect(**options) as link:
        first = await link.request("tools/call", params, call_id="c")
        assert first["resultType"] == "input_required"
        assert first["inputRequests"]["name"]["params"]["message"] == "Name?"
        answer = {"name": {"action": "accept", "content": {"name": "Ada"}}}
        resumed = {**params, "inputResponses": answer, "requestState": first["requestState"]}
        second = await link.request("tools/call", resumed, call_id="c")
        answer = {"age": {"action": "accept", "content": {"age": 36}}}
        resumed = {**params, "inputResponses": answer, "requestState": second["requestState"]}
        done = await link.request("tools/call", resumed, call_id="c")
    said = json.loads(done["content"][0]["text"])
    assert said["name"]["content"] == {"name": "Ada"}
    assert said["age"]["content"] == {"age": 36}
    assert recorder.requests == []
    assert params == {"name": "two_rounds", "arguments": {}}


async def test_a_server_that_ignores_the_probe_gets_the_handshake(stdio: Stdio, connect: Connect) -> None:
    async with connect(**stdio("old_server.py", "ignores"), connect_timeout_s=9) as link:
        assert (link.hello.era, link.hello.protocol_version) == (Era.HANDSHAKE, "2024-11-05")
        await link.probe()


async def test_a_server_that_dies_of_the_probe_is_known_by_it_and_connects_with_the_hint(
    stdio: Stdio, connect: Connect
) -> None:
    options = stdio("old_server.py", "dies")
    with pytest.raises(LostDuringProbe) as caught:
        await open_once(connect(**options))
    fault = caught.value.fault
    assert (fault.code, fault.details["during"], fault.details["exit_code"]) == ("CONNECTION_LOST", "probe", 1)
    assert fault.details["stderr"] == ["unexpected request"]
    async with connect(Era.HANDSHAKE, **options) as link:
        assert link.hello.protocol_version == "2024-11-05"


@pytest.mark.parametrize("hint", [None, Era.HANDSHAKE, Era.STATELESS])
@pytest.mark.parametrize(("script", "era"), [("mrtr_server.py", Era.STATELESS), ("asking_server.py", Era.STATELESS)])
async def test_a_wrong_hint_costs_a_question_and_no_connection(
    hint: Era | None, script: str, era: Era, stdio: Stdio, connect: Connect
) -> None:
    async with connect(hint, **stdio(script, "stdio")) as link:
        assert link.hello.era in (era, hint)


async def test_a_hint_of_the_newer_family_falls_back_to_the_handshake(scripted: Scripted, connect: Connect) -> None:
    async with connect(Era.STATELESS, url=scripted.url) as link:
        assert link.hello.era is Era.HANDSHAKE


@pytest.mark.parametrize(
    "refusal",
    [
        {"code": -32022, "message": "newer", "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"}},
        {"code": -32020, "message": "no MCP-Protocol-Version"},
        {"code": -32601, "message": "no such method"},
    ],
)
async def test_a_handshake_refused_for_the_newer_family_leads_there(
    refusal: dict[str, Any], scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = {"initialize": answers(error=refusal), "server/discover": answers(result=DISCOVERED)}
    async with connect(Era.HANDSHAKE, url=scripted.url) as link:
        assert link.hello.era is Era.STATELESS
        assert link.hello.server_info == {"name": "modern", "version": "2"}


@pytest.mark.parametrize("refusals", [1, 2])
async def test_a_revision_refused_but_offered_is_asked_for_once_more(
    refusals: int, scripted: Scripted, connect: Connect
) -> None:
    refusal = {"code": -32022, "message": "not so", "data": {"supported": ["2026-07-28"], "requested": "2026-07-28"}}
    left = [answers(error=refusal)] * refusals + [answers(result=DISCOVERED)]

    async def take(request: Request) -> Response:
        return await left.pop(0)(request)

    scripted.replaced = {"server/discover": take}
    if refusals == 1:
        async with connect(url=scripted.url) as link:
            assert link.hello.era is Era.STATELESS
    else:
        with raising(UpstreamError, "PROTOCOL_VERSION_MISMATCH"):
            await open_once(connect(url=scripted.url))
    assert [method for _, method in scripted.seen] == ["server/discover"] * 2


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_pinned_revision_is_the_one_asked_for(revision: str, stdio: Stdio, connect: Connect) -> None:
    async with connect(**stdio("bad.py", "good"), protocol=revision) as link:
        assert link.hello.protocol_version == revision


async def test_a_server_that_chooses_another_revision_than_the_pinned_one_does_not_match(
    scripted: Scripted, connect: Connect
) -> None:
    with pytest.raises(UpstreamError, match="2025-11-25") as caught:
        await open_once(connect(url=scripted.url, protocol="2025-06-18"))
    assert (caught.value.reason, caught.value.fault.category) == ("PROTOCOL_VERSION_MISMATCH", Category.PROTOCOL)


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"initialize": answers(result={"protocolVersion": 7})}, "INVALID_RESPONSE"),
        ({"initialize": answers(result={"capabilities": {}})}, "INVALID_RESPONSE"),
        ({"initialize": answers(error={"code": 7, "message": "go away"})}, "INVALID_RESPONSE"),
        (
            {
                "initialize": answers(
                    result={
                        "protocolVersion": "1999-01-01",
                        "capabilities": {},
                        "serverInfo": {"name": "x", "version": "1"},
                    }
                )
            },
            "PROTOCOL_VERSION_MISMATCH",
        ),
        (
            {
                "server/discover": answers(
                    error={
                        "code": -32022,
                        "message": "?",
                        "data": {"supported": ["2027-01-01"], "requested": "2026-07-28"},
                    }
                )
            },
            "PROTOCOL_VERSION_MISMATCH",
        ),
    ],
)
async def test_a_failed_negotiation_has_its_name(
    replaced: dict[str, Any], reason: str, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = replaced
    with raising(UpstreamError, reason):
        await open_once(connect(url=scripted.url))


def modern(scripted: Scripted, *tools: dict[str, Any]) -> None:
    listing = {"tools": list(tools), "ttlMs": 0, "cacheScope": "private"}
    scripted.replaced = {
        "server/discover": answers(result=DISCOVERED),
        "tools/list": answers(result=listing),
        "prompts/list": answers(result={"prompts": [], "ttlMs": 0, "cacheScope": "private"}),
        "tools/call": answers(result={"content": []}),
    }


TOOL = {
    "name": "query",
    "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}
BROKEN_TOOL = {
    "name": "broken",
    "inputSchema": {"type": "object", "properties": {"region": {"type": "object", "x-mcp-header": "Region"}}},
}


async def test_every_stateless_request_says_who_asks_and_what_it_can_do(scripted: Scripted, connect: Connect) -> None:
    modern(scripted, TOOL)
    params = {"name": "query", "arguments": {"region": "eu", "nothing": None}, "_meta": {"mine": 1}}
    async with connect(url=scripted.url) as link:
        result = await link.request("tools/call", params)
    assert result["resultType"] == "complete"
    sent = scripted.messages[-1]["params"]
    assert sent["arguments"] == {"region": "eu", "nothing": None}
    meta = sent["_meta"]
    assert meta["mine"] == 1
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "hubbub"
    able = meta["io.modelcontextprotocol/clientCapabilities"]
    assert "tasks" not in able
    assert able["extensions"]["io.modelcontextprotocol/tasks"] == {}
    headers = scripted.headers[-1]
    assert headers["mcp-method"] == "tools/call"
    assert headers["mcp-name"] == "query"
    assert headers["mcp-param-region"] == "eu"
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert [method for _, method in scripted.seen] == ["server/discover", "tools/list", "tools/call"]


@pytest.mark.parametrize("extensions", [{}, {"extensions": {"io.modelcontextprotocol/tasks": {}}}])
async def test_a_call_may_become_a_task_only_if_its_caller_follows_tasks(
    scripted: Scripted, connect: Connect, extensions: dict[str, Any]
) -> None:
    modern(scripted, TOOL)
    able = "io.modelcontextprotocol/clientCapabilities"
    async with connect(url=scripted.url) as link:
        await link.request("tools/call", {"name": "query", "_meta": {able: {"unknown": {}, **extensions}}})
    sent = scripted.messages[-1]["params"]["_meta"][able]
    declared = sent.pop("extensions")
    assert declared == {SKILLS_EXTENSION: {}, **extensions.get("extensions", {})}  # of skills, nothing is asked
    assert sent == {}


async def test_tools_are_listed_once_and_again_when_a_header_does_not_match(
    scripted: Scripted, connect: Connect
) -> None:
    modern(scripted, TOOL)
    async with connect(url=scripted.url) as link:
        for _ in range(3):
            await link.request("tools/call", {"name": "query"})
        assert scripted.seen.count(("POST", "tools/list")) == 1
        refused = answers(error={"code": -32020, "message": "headers"})
        scripted.replaced["tools/call"] = refused
        with pytest.raises(PeerError):
            await link.request("tools/call", {"name": "query"})
        assert scripted.seen.count(("POST", "tools/list")) == 2
        assert scripted.seen.count(("POST", "tools/call")) == 5


async def test_a_call_that_is_cancelled_as_the_tools_come_is_not_sent(
    scripted: Scripted, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    modern(scripted, TOOL)
    async with connect(url=scripted.url) as link:
        request, call = link.request, anyio.CancelScope()

        async def listed(method: str, *params: Any) -> Any:
            result = await request(method, *params)
            call.cancel()
            return result

        monkeypatch.setattr(link, "request", listed)
        with call:
            await request("tools/call", {"name": "query"})
        await request("prompts/list", None)
    assert call.cancelled_caught
    assert [method for _, method in scripted.seen] == ["server/discover", "tools/list", "prompts/list"]


async def test_a_tool_with_a_wrong_header_annotation_is_left_out(scripted: Scripted, connect: Connect) -> None:
    modern(scripted, TOOL, BROKEN_TOOL)
    async with connect(url=scripted.url) as link:
        listing = await link.request("tools/list", None)
    assert [tool["name"] for tool in listing["tools"]] == ["query"]


async def test_cancelling_a_stateless_call_closes_its_stream_and_sends_nothing(
    scripted: Scripted, connect: Connect
) -> None:
    arrived, closed = anyio.Event(), anyio.Event()

    async def park(request: Request) -> Response:
        arrived.set()
        while not await request.is_disconnected():
            await anyio.sleep(0.01)
        closed.set()
        return Response(status_code=202)

    modern(scripted)
    scripted.replaced["tools/call"] = park
    async with connect(url=scripted.url) as link:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.request, "tools/call", {"name": "any"})
            await arrived.wait()
            tasks.cancel_scope.cancel()
        await closed.wait()
    assert ("POST", "notifications/cancelled") not in scripted.seen


async def test_cancelling_a_stateless_call_over_stdio_tells_the_server(stdio: Stdio, connect: Connect) -> None:
    async def call(tool: str, **arguments: Any) -> str:
        result = await link.request("tools/call", {"name": tool, "arguments": arguments})
        return result["content"][0]["text"]

    async with connect(**stdio("asking_server.py", "stdio"), protocol="2026-07-28") as link:
        assert link.hello.era is Era.STATELESS
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call("sleep", name="first"))
            while await call("sleeping_calls") != "first":
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
        while await call("cancelled_calls") != "first":
            await anyio.sleep(0.02)


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/list"])
async def test_what_the_newer_revision_no_longer_has_is_not_sent(
    method: str, scripted: Scripted, connect: Connect
) -> None:
    modern(scripted)
    async with connect(url=scripted.url) as link:
        with raising(UpstreamError, "METHOD_NOT_IN_REVISION"):
            await link.request(method, {})
    assert ("POST", method) not in scripted.seen
    assert "GET" not in [verb for verb, _ in scripted.seen]


async def test_a_handshake_that_takes_too_long_is_given_up_and_not_cancelled(
    scripted: Scripted, connect: Connect
) -> None:
    arrived = anyio.Event()

    scripted.replaced = {"initialize": parks(arrived)}
    with raising(UpstreamError, "CONNECTION_TIMEOUT"):
        await open_once(connect(url=scripted.url, connect_timeout_s=1))
    assert arrived.is_set()
    assert ("POST", "notifications/cancelled") not in scripted.seen


@pytest.mark.parametrize("name", ["\ud800", "x\udfff"])
async def test_a_name_that_no_header_can_express_fails_its_call_alone(
    stdio: Stdio, connect: Connect, name: str
) -> None:
    async with connect(**stdio("mrtr_server.py", "stdio")) as link:
        with pytest.raises(InvalidArgument, match="surrogate"):
            await link.request("tools/call", {"name": name})
        assert (await link.request("tools/list", None))["tools"]


Said = Callable[..., dict[str, Callable[[Request], Any]]]


def introduced(**about: Any) -> dict[str, Callable[[Request], Any]]:
    said = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    return {"initialize": answers(result={**said, **about})}


def discovered(serverInfo: Any = None, **about: Any) -> dict[str, Callable[[Request], Any]]:  # noqa: N803 - MCP's name
    meta = {"io.modelcontextprotocol/serverInfo": serverInfo or {"name": "x", "version": "1"}}
    return {"server/discover": answers(result={**DISCOVERED, "_meta": meta, **about})}


INTRODUCTIONS = pytest.mark.parametrize(
    ("said", "protocol"), [(introduced, "2025-11-25"), (discovered, "2026-07-28")], ids=["initialize", "discover"]
)


@INTRODUCTIONS
async def test_a_server_that_says_too_much_of_itself_is_shown_by_its_name(
    said: Said, protocol: str, scripted: Scripted, connect: Connect
) -> None:
    icons = [{"src": "data:image/png;base64," + "x" * 100_000}]
    info = {"name": "x" * 5000, "version": "1", "icons": icons}
    scripted.replaced = said(serverInfo=info, instructions="x" * 100_000)
    async with connect(url=scripted.url, protocol=protocol) as link:
        assert link.hello.server_info == {"name": "x" * 1000, "version": "1"}
        assert len(link.hello.instructions or "") == 64 * 1024


@INTRODUCTIONS
async def test_capabilities_without_end_are_refused(
    said: Said, protocol: str, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = said(capabilities={"experimental": {f"e{at}": {} for at in range(10_000)}})
    with raising(UpstreamError, "INVALID_RESPONSE", match="capabilities take"):
        await open_once(connect(url=scripted.url, protocol=protocol))
