"""What hosts receive beside results, over HTTP: with the SDK's client in both revisions, and by raw requests."""

import json
import warnings
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

from hubbubd.config import HubSettings
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import PeerError
from hubbubd.rpc.mcp import transport
from hubbubd.rpc.mcp.application import serve_mcp
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.upstream.ports import Era

from ..downstream.conftest import state_keys
from ..runtime.conftest import server
from ..runtime.peer import Outcome, Peer, Peers, Sent, never
from .conftest import LIMIT_S, TOKEN, gate, settled, until

OLD, NEW = "2025-11-25", "2026-07-28"
MODES = {OLD: "legacy", NEW: NEW}
LISTS: dict[str, dict[str, Any]] = {
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": [{"name": "r", "uri": "x://a"}]},
    "resources/templates/list": {"resourceTemplates": []},
}
CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Script:
    """What the server does: all that it can, once."""

    def __init__(self, peer: Peer, era: Era) -> None:
        self.stamp = {"resultType": "complete"} if era is Era.STATELESS else {}
        self.cached = {"ttlMs": 0, "cacheScope": "public"} if self.stamp else {}
        peer.era, peer.capabilities, peer.instructions = era, CAPABILITIES, "Be kind."
        peer.listing, peer.behaviour = self.listing, self.behaviour

    async def listing(self, sent: Sent) -> Outcome:
        if sent.method == "logging/setLevel":
            return {}
        return LISTS[sent.method] | self.stamp | self.cached

    async def behaviour(self, sent: Sent) -> Outcome:
        match sent.method:
            case "completion/complete":
                return {"completion": {"values": ["paris"]}} | self.stamp
            case "resources/read" if sent.params["uri"] == "x://none":
                raise PeerError(-32602 if self.stamp else -32002, "Resource not found", {"uri": "x://none"})
            case "resources/read":
                return {"contents": [{"uri": "x://a", "text": "a"}]} | self.stamp | self.cached
            case "tools/call":
                for step, level in enumerate(("debug", "error"), 1):
                    sent.link.tell("notifications/message", {"level": level, "data": level})
                    sent.progress(step, 2)
                result: Outcome = {"content": [], "structuredContent": {"big": 2**70}}
                return result | self.stamp
            case _:
                return dict(self.stamp)


@dataclass
class Stage:
    """A hub with the server `one`, and where its endpoint is."""

    hub: Hub
    peer: Peer
    url: str
    http: httpx2.AsyncClient

    @asynccontextmanager
    async def client(self, revision: str, **options: Any) -> AsyncGenerator[Client]:
        """The SDK's client of a revision."""
        transport = streamable_http_client(self.url, http_client=self.http)
        async with Client(transport, mode=MODES[revision], **options) as client:
            yield client

    async def post(self, message: dict[str, Any], **headers: str) -> httpx2.Response:
        """The response to a message."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return await self.http.post(self.url, content=json.dumps(message), headers=JSON | named)

    async def new(self, method: str, **params: Any) -> httpx2.Response:
        """The response to a request of 2026-07-28."""
        return await self.post(modern(method, **params), **routing(method, params))

    async def session(self) -> dict[str, str]:
        """The headers of a new session."""
        hello = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        response = await self.post(message("initialize", **hello))
        return {"mcp_session_id": response.headers["mcp-session-id"], "mcp_protocol_version": OLD}

    @asynccontextmanager
    async def stream(self, method: str, content: Any = None, **headers: str) -> AsyncGenerator[AsyncIterator[Any]]:
        """The messages of a response that goes on; leaving closes its connection."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        body = None if content is None else json.dumps(content)
        async with self.http.stream(method, self.url, content=body, headers=JSON | named) as response:
            assert response.status_code == 200
            yield (json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: "))


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def modern(method: str, **params: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return message(method, **{**params, "_meta": own | params.get("_meta", {})})


def routing(method: str, params: dict[str, Any]) -> dict[str, str]:
    named = params.get("name") or params.get("uri")
    return {"mcp_protocol_version": NEW, "mcp_method": method} | ({"mcp_name": named} if named else {})


@pytest.fixture(params=[OLD, NEW])
def protocol(request: pytest.FixtureRequest) -> str:
    """What the server speaks."""
    return request.param


@pytest.fixture
async def stage(tmp_path: Path, protocol: str) -> AsyncIterator[Stage]:
    """A hub with a scripted server, served to hosts."""
    store, peers = await SqliteStore.open(":memory:"), Peers()
    Script(peers["one"], Era.STATELESS if protocol == NEW else Era.HANDSHAKE)
    settings = HubSettings(data_dir=tmp_path)
    async with settled(), Hub.open(store, peers, {"one": server()}, settings) as hub:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        await until(lambda: len(hub.catalog.entries("one/resource")) == 1 == len(hub.catalog.entries("one/tool")))
        async with serve_mcp(hub, listen="127.0.0.1:0", gate=gate(hub), state_keys=state_keys(hub)) as url:
            headers = {"authorization": f"Bearer {TOKEN}"}
            async with httpx2.AsyncClient(headers=headers, timeout=LIMIT_S, trust_env=False) as http:
                yield Stage(hub, peers["one"], f"{url}/s/one", http)
    await store.close()


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_the_sdks_client_gets_all_that_a_server_says(stage: Stage, revision: str) -> None:
    logged: list[str] = []
    told: list[float] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.level)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    level: Any = "error" if revision == NEW else None
    with warnings.catch_warnings(action="ignore"):  # logging is deprecated, and still served
        async with stage.client(revision, logging_callback=on_log, log_level=level) as client:
            assert client.protocol_version == revision
            if revision == OLD:
                assert client.instructions == "Be kind."
                await client.set_logging_level("error")  # pyright: ignore[reportDeprecated]
            reference = types.PromptReference(name="p")
            completed = await client.complete(reference, {"name": "city", "value": "pa"})
            assert completed.completion.values == ["paris"]
            result = await client.call_tool("t", progress_callback=on_progress)
            assert result.structured_content == {"big": 2**70}
            await until(lambda: logged)
    assert (logged, told) == (["error"], [1, 2])


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_the_sdks_client_is_told_of_changes(stage: Stage, revision: str) -> None:
    told: list[str] = []

    async def on_message(said: Any) -> None:
        told.append(said.method)

    changed, updated = "notifications/tools/list_changed", "notifications/resources/updated"
    with warnings.catch_warnings(action="ignore"):  # subscribing is deprecated, and still served
        async with stage.client(revision, message_handler=on_message) as client:
            if revision == OLD:
                await client.subscribe_resource("x://a")  # pyright: ignore[reportDeprecated]
                stage.peer.link.tell(updated, {"uri": "x://a"})
                stage.peer.link.tell(changed)
                await until(lambda: sorted(told) == [updated, changed])
                await client.unsubscribe_resource("x://a")  # pyright: ignore[reportDeprecated]
            else:
                async with client.listen(tools_list_changed=True, resource_subscriptions=["x://a"]) as events:
                    assert events.honored.tools_list_changed
                    assert events.honored.resource_subscriptions == ["x://a"]
                    stage.peer.link.tell(updated, {"uri": "x://a"})
                    with anyio.fail_after(LIMIT_S):
                        assert await anext(aiter(events)) == ResourceUpdated("x://a")
                        stage.peer.link.tell(changed)
                        assert await anext(aiter(events)) == ToolsListChanged()


async def test_errors_of_a_request_without_a_session_have_a_status(stage: Stage) -> None:
    for method, params, status, code in (
        ("resources/read", {"uri": "x://none"}, 400, -32602),
        ("completion/complete", {"ref": 1}, 400, -32602),
        ("logging/setLevel", {"level": "info"}, 404, -32601),
        ("resources/subscribe", {"uri": "x://a"}, 404, -32601),
        ("ping", {}, 404, -32601),
        ("initialize", {}, 404, -32601),
        ("tools/none", {}, 404, -32601),
    ):
        response = await stage.new(method, **params)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code), method


@pytest.mark.parametrize(
    ("accept", "taken"),
    [
        ("application/json, text/event-stream", True),
        ("text/event-stream;q=0.5,application/*", True),
        ("*/*", True),
        ("application/json", False),
        ("text/event-stream", False),
        ("text/html", False),
    ],
)
async def test_a_host_must_accept_both_kinds_of_response(stage: Stage, accept: str, taken: bool) -> None:
    response = await stage.post(modern("tools/list"), **routing("tools/list", {}), accept=accept)
    assert response.status_code == (200 if taken else 406)
    hello = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    response = await stage.post(message("initialize", **hello), accept=accept)
    assert response.status_code == (200 if taken else 406)


async def test_log_messages_of_no_call_and_changes_come_over_the_sessions_own_stream(stage: Stage) -> None:
    session = await stage.session()
    async with stage.stream("GET", **session) as told:
        stage.peer.link.tell("notifications/message", {"level": "info", "data": 1})
        stage.peer.link.tell("notifications/prompts/list_changed")
        with anyio.fail_after(LIMIT_S):
            assert (await anext(told))["params"] == {"level": "info", "data": 1}
            assert (await anext(told))["method"] == "notifications/prompts/list_changed"


async def test_a_closed_stream_of_a_listening_host_ends_its_subscription(stage: Stage, protocol: str) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["x://a"]}}
    asked = modern("subscriptions/listen", **wanted)
    async with stage.stream("POST", asked, **routing("subscriptions/listen", wanted)) as told:
        with anyio.fail_after(LIMIT_S):
            assert (await anext(told))["method"] == "notifications/subscriptions/acknowledged"
    if protocol == OLD:
        await until(lambda: stage.peer.sent[-1].method == "resources/unsubscribe")


async def test_a_host_that_closes_its_stream_cancels_the_call(stage: Stage) -> None:
    stage.peer.behaviour = never
    called = modern("tools/call", name="t", _meta={"progressToken": 1})
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            async with stage.stream("POST", called, **routing("tools/call", {"name": "t"})) as told:
                await anext(told)

        tasks.start_soon(call)
        await until(lambda: stage.peer.sent)
        stage.peer.sent[0].progress(1)
    await until(lambda: stage.peer.sent[0].cancelled)


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_cancelled_request_of_a_session_ends_without_a_response(
    stage: Stage, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "PRIME_S", 10 * LIMIT_S)  # before that no stream begins, however slow the machine is
    stage.peer.behaviour = never
    session = await stage.session()
    answered: list[httpx2.Response] = []

    async def call() -> None:
        answered.append(await stage.post(message("tools/call", name="t"), **session))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await until(lambda: stage.peer.sent)
        if how == "cancel":
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            assert (await stage.post(note, **session)).status_code == 202
        else:
            headers = {key.replace("_", "-"): value for key, value in session.items()}
            assert (await stage.http.delete(stage.url, headers=headers)).status_code == 200
        await until(lambda: stage.peer.sent[0].cancelled)
    assert answered[0].content == b""
