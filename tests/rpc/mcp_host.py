"""A host of the hub's MCP endpoint that sends what no client does, and hears what it gets; over a scripted server."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
from anyio.abc import SocketStream

from hubbubd.config import HubSettings, LoadedSettings, ServerConfig
from hubbubd.core.access import Grant, Role
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.mcp.application import serve_mcp
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.telemetry.meter import OFF as UNMEASURED
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.tracer import OFF as UNTRACED
from hubbubd.telemetry.tracer import Tracer

from ..downstream.conftest import state_keys
from ..runtime.conftest import server
from ..runtime.peer import Peers, Sent
from .conftest import LIMIT_S, TOKEN, gate, settled, until

OLD, NEW = "2025-11-25", "2026-07-28"
ONE = "/mcp/s/one"
RIGHT = {"authorization": f"Bearer {TOKEN}"}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def request(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    """A request in JSON-RPC."""
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def tool(id_: Any, name: str = "t", **meta: Any) -> dict[str, Any]:
    """A request to call a tool."""
    return request(id_, "tools/call", name=name, arguments={}, **({"_meta": meta} if meta else {}))


def envelope(message: dict[str, Any]) -> dict[str, Any]:
    """The same request in a revision without a handshake."""
    own: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {**message, "params": {**message["params"], "_meta": {**own, **message["params"].get("_meta", {})}}}


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    id: str | None
    data: Any
    retry: str | None = None


class Events:
    """The events of a response that goes on."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> Event | None:
        """The next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        with anyio.fail_after(LIMIT_S):
            async for line in self._lines:
                if not line and fields:
                    data = fields.get("data", "")
                    return Event(fields.get("id"), json.loads(data) if data else None, fields.get("retry"))
                if line and not line.startswith(":"):
                    key, _, value = line.partition(":")
                    fields[key] = value.strip()
        return None

    async def rest(self) -> list[Event]:
        """All events up to the end of the stream."""
        found: list[Event] = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


@dataclass
class Host:
    """A caller of one endpoint, with the right token unless told otherwise."""

    http: httpx2.AsyncClient
    path: str = ONE
    headers: dict[str, str] = field(default_factory=lambda: dict(RIGHT))

    async def send(self, method: str, body: Any = None, **headers: str) -> httpx2.Response:
        """The whole response."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return await self.http.request(method, self.path, content=content, headers=ACCEPT | self.headers | named)

    async def post(self, body: Any, **headers: str) -> httpx2.Response:
        """The whole response to a message."""
        return await self.send("POST", body, **headers)

    async def new(self, message: dict[str, Any], **headers: str) -> httpx2.Response:
        """The same for a request in a revision without a handshake."""
        about = {"mcp_protocol_version": NEW, "mcp_method": message["method"]}
        if isinstance(name := message["params"].get("name"), str):
            about["mcp_name"] = name
        return await self.post(envelope(message), **{**about, **headers})

    @asynccontextmanager
    async def stream(self, method: str, body: Any = None, **headers: str) -> AsyncGenerator[Events]:
        """A response that goes on; leaving closes its connection."""
        content = json.dumps(body).encode() if body is not None else None
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        asked = self.http.build_request(method, self.path, content=content, headers=ACCEPT | self.headers | named)
        response = await self.http.send(asked, stream=True)
        try:
            yield Events(response)
        finally:
            await response.aclose()

    async def begin(self, revision: str = OLD, **capabilities: Any) -> "Host":
        """The same host in a session of its own."""
        client = {"name": "raw", "version": "1"}
        hello = request(0, "initialize", protocolVersion=revision, capabilities=capabilities, clientInfo=client)
        response = await self.post(hello)
        assert response.status_code == 200, response.text
        session = {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": revision}
        return Host(self.http, self.path, self.headers | session)


@dataclass
class Stage:
    """A hub with scripted servers, and where hosts reach it."""

    hub: Hub
    peers: Peers
    url: str
    gate: Gate
    http: httpx2.AsyncClient
    files: list[LoadedSettings]
    """What the hub's files say; the last one counts."""

    async def reload(self, **settings: Any) -> None:
        """Has the hub read other settings."""
        last = self.files[-1]
        self.files.append(replace(last, hub=last.hub.model_copy(update=settings)))
        await self.hub.configuration.reload()

    @property
    def base(self) -> str:
        """The URL without a path."""
        return self.url.removesuffix("/mcp")

    def host(self, path: str = ONE, **headers: str) -> Host:
        """A host with the hub's own token, or with these headers instead."""
        return Host(self.http, path, headers or dict(RIGHT))

    async def named(self, name: str, *roles: Role, servers: tuple[str, ...] = ("*",), path: str = ONE) -> Host:
        """A host with a token of its own."""
        grants = [Grant(role, servers) for role in roles or (Role.CALLER,)]
        _, text = await self.hub.tokens.create(name, grants, by="test", ttl_s=None, may_name_others=False)
        return Host(self.http, path, {"authorization": f"Bearer {text}"})

    async def arrived(self, count: int = 1, name: str = "one") -> Sent:
        """The last of so many calls that have reached a server."""
        await until(lambda: len(self.peers[name].sent) >= count)
        return self.peers[name].sent[count - 1]

    @asynccontextmanager
    async def raw(self) -> AsyncGenerator[SocketStream]:
        """A connection over which nothing has been said."""
        where, _, port = self.base.removeprefix("http://").rpartition(":")
        async with await anyio.connect_tcp(where, int(port)) as stream:
            yield stream


@asynccontextmanager
async def stage(
    directory: Path,
    *names: str,
    tracer: Tracer = UNTRACED,
    meter: Meter = UNMEASURED,
    store_file: Path | None = None,
    **settings: Any,
) -> AsyncGenerator[Stage]:
    """A hub with these servers (`one` and `two`), and these settings."""
    store, peers = await SqliteStore.open(store_file or ":memory:"), Peers()
    servers: dict[str, ServerConfig] = {
        name: server(name, max_in_flight=100, backoff_s=(0.01,)) for name in names or ("one", "two")
    }
    given = HubSettings(data_dir=directory, **settings)
    files = [LoadedSettings(hub=given, servers=tuple(servers.values()))]
    opened = Hub.open(store, peers, servers, given, tracer=tracer, meter=meter, load=lambda: files[-1])
    async with settled(), opened as hub:
        admitting = gate(hub)
        serving = serve_mcp(hub, listen="127.0.0.1:0", gate=admitting, state_keys=state_keys(hub))
        await until(lambda: {hub.servers.get(name).connection.state for name in servers} == {ConnectionState.CONNECTED})
        async with serving as url:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
            client = httpx2.AsyncClient(
                base_url=url.removesuffix("/mcp"), trust_env=False, timeout=LIMIT_S, limits=limits
            )
            async with client:
                yield Stage(hub, peers, url, admitting, client, files)
    await store.close()
