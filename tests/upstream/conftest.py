"""A runtime's part of a link, and HTTP servers that do as a test says."""

import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hubbubd.config import Confinement, ServerConfig
from hubbubd.errors import FailedPrecondition
from hubbubd.upstream.connector import McpConnector
from hubbubd.upstream.ports import Era, InboundReply, InboundRequest, McpLink

from ..idle_time import IdleTimeLoop

LIMIT_S = 60
"""Bound of every wait of these tests."""

CALL = ("tools/call", {"name": "any", "arguments": {}})
"""A request for a `Scripted` server."""


class Pocket:
    """Implements `ports.Vault`, for as long as a test."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    def get(self, server: str) -> dict[str, Any] | None:
        """As `ports.Vault`."""
        return self.kept.get(server)

    async def put(self, server: str, secrets: dict[str, Any] | None) -> None:
        """As `ports.Vault`."""
        self.kept[server] = secrets or {}

    async def refresh(self, *servers: str) -> None:
        """As `ports.Vault`: nobody else has it."""


class Recorder:
    """Implements `ports.Inbound`: keeps what comes and answers as `answer` says."""

    def __init__(self, answer: Callable[[InboundRequest], Awaitable[InboundReply]] | None = None) -> None:
        self.requests: list[InboundRequest] = []
        self.notifications: list[tuple[str, dict[str, Any], str | None]] = []
        self.stderr: list[str] = []
        self.throttled: list[tuple[float, str]] = []
        self.sent: list[str | None] = []
        self.notes: dict[str, str] = {}
        self.answer = answer or self.accept
        self._changed = anyio.Event()

    async def accept(self, request: InboundRequest) -> InboundReply:
        """Accepts a question with a name."""
        return InboundReply(result={"action": "accept", "content": {"name": "Ada"}}, on_sent=self.tell)

    def tell(self, reason: str | None) -> None:
        """Takes the news of an answer's delivery."""
        self.sent.append(reason)
        self._change()

    async def on_request(self, request: InboundRequest) -> InboundReply:
        """As `ports.Inbound`."""
        self.requests.append(request)
        self._change()
        return await self.answer(request)

    def on_notification(self, method: str, params: dict[str, Any], call_id: str | None) -> None:
        """As `ports.Inbound`."""
        self.notifications.append((method, params, call_id))
        self._change()

    def on_throttled(self, rate: float, unit: str) -> None:
        """As `ports.Inbound`."""
        self.throttled.append((rate, unit))

    def note(self, kind: str, text: str | None, *, lasting: bool = False) -> None:
        """As `ports.Inbound`."""
        self.notes.pop(kind, None)
        if text is not None:
            self.notes[kind] = text
        self._change()

    def on_stderr(self, line: str) -> None:
        """As `ports.Inbound`."""
        self.stderr.append(line)
        self._change()

    async def authorize(self, url: str, redirect_uri: str, call_id: str | None) -> str:
        """As `ports.Inbound`."""
        raise FailedPrecondition("nobody is here to agree")

    def pause_clock(self, call_id: str | None) -> AbstractContextManager[None]:
        """As `ports.Inbound`."""
        return nullcontext()

    async def until(self, condition: Callable[[], object]) -> None:
        """Returns once the condition holds; looked at after everything that comes in."""
        with anyio.fail_after(LIMIT_S):
            while not condition():
                await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, Any]]:
    """Time passes faster while nothing happens, where all that happens is in the loop: in tests without processes."""
    if request.node.get_closest_marker("quick") is None:
        return "asyncio"
    return "asyncio", {"loop_factory": IdleTimeLoop}


@pytest.fixture
def recorder() -> Recorder:
    """What a server asks and tells; it accepts every question."""
    return Recorder()


Connect = Callable[..., AbstractAsyncContextManager[McpLink]]


@pytest.fixture
def connect(recorder: Recorder) -> Connect:
    """Opens a link: `connect(era=None, confinement=None, **server configuration)`."""

    @asynccontextmanager
    async def open_link(
        era: Era | None = None, confinement: Confinement | None = None, **options: Any
    ) -> AsyncIterator[McpLink]:
        config = ServerConfig.model_validate({"name": "peer", **options})
        async with McpConnector(Pocket()).open(config, recorder, era, confinement) as link:
            with anyio.fail_after(LIMIT_S):
                yield link

    return open_link


@pytest.fixture
def stdio(peer_scripts: Path) -> Callable[..., dict[str, Any]]:
    """The configuration of a peer script over stdio: `stdio("name.py", *arguments)`."""

    def options(script: str, *arguments: str) -> dict[str, Any]:
        return {"command": sys.executable, "args": (str(peer_scripts / script), *arguments)}

    return options


async def open_once(link: AbstractAsyncContextManager[McpLink]) -> None:
    """Opens a link and closes it again."""
    async with link:
        pass


Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class Scripted:
    """A small correct MCP server over HTTP whose answers a test replaces by JSON-RPC method, or by HTTP method."""

    replaced: dict[str, Endpoint] = field(default_factory=dict)
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    async def serve(self, request: Request) -> Response:
        message: dict[str, Any] = json.loads(await request.body() or b"{}")
        method = message.get("method")
        self.seen.append((request.method, method))
        self.messages.append(message)
        self.headers.append(dict(request.headers))
        key = method or ("answer" if message else request.method)
        if key in self.replaced:
            return await self.replaced[key](request)
        if request.method != "POST":
            return Response(status_code=405)
        if "id" not in message or method is None:
            return Response(status_code=202)
        return self.respond(message)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What the hub has answered."""
        return [message for message in self.messages if message and "method" not in message]

    def respond(self, message: dict[str, Any]) -> Response:
        """The right response."""
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
            },
            "ping": {},
            "tools/list": {"tools": []},
            "tools/call": {"content": [{"type": "text", "text": "hi"}]},
        }
        envelope = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] not in results:
            return JSONResponse({**envelope, "error": {"code": -32601, "message": "Method not found"}})
        session = {"mcp-session-id": "s1"} if message["method"] == "initialize" else None
        return JSONResponse({**envelope, "result": results[message["method"]]}, headers=session)


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """A `Scripted` server that listens at its `url`."""
    script = Scripted()
    methods = ["GET", "POST", "DELETE"]
    async with served(Starlette(routes=[Route("/mcp", script.serve, methods=methods)])) as origin:
        script.url = f"{origin}/mcp"
        yield script


@asynccontextmanager
async def served(app: Starlette, **options: Any) -> AsyncIterator[str]:
    """Serves an application on loopback until the end of the block, with options of uvicorn; its origin."""
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        usual: dict[str, Any] = {"log_level": "error", "lifespan": "off", "ws": "none", "timeout_graceful_shutdown": 1}
        config = uvicorn.Config(app, **(usual | options))
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True
                server.force_exit = True


def says(status: int, body: str = "", content_type: str = "text/plain", **headers: str) -> Endpoint:
    """Always this response."""

    async def respond(_: Request) -> Response:
        return Response(body, status, {name.replace("_", "-"): value for name, value in headers.items()}, content_type)

    return respond


def parks(arrived: anyio.Event | None = None) -> Endpoint:
    """Says that a request has come, and never answers it."""

    async def respond(_: Request) -> Response:
        if arrived is not None:
            arrived.set()
        await anyio.sleep_forever()
        raise AssertionError

    return respond


def event(message: dict[str, Any]) -> str:
    """A message as an event of a stream."""
    return f"event: message\ndata: {json.dumps(message)}\n\n"
