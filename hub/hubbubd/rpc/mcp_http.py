"""The hub as an MCP server over streamable HTTP, for hosts of every revision (docs/mcp.md).

    POST    one message of a host; the response is JSON, or a stream of events once there is more to say than the result
    GET     up to 2025-11-25: the stream of what belongs to no request
    DELETE  up to 2025-11-25: ends a session

A request passes the same gate as an RPC. MCP 2025-11-25 and 2026-07-28, basic/transports, streamable HTTP.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast
from urllib.parse import unquote

import uvicorn
from starlette.types import Receive, Scope, Send

from hubbubd.config.mcp import DEFAULT
from hubbubd.config.network import is_loopback
from hubbubd.config.tls import TlsFiles
from hubbubd.core.access import Principal
from hubbubd.core.catalog import Kind
from hubbubd.core.jsonrpc import (
    HEADER_MISMATCH,
    HUB_FAILED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
)
from hubbubd.downstream import (
    HANDSHAKE_REVISIONS,
    STATELESS_REVISIONS,
    Endpoint,
    Endpoints,
    Exchange,
    Handles,
    Host,
    Outlet,
    Session,
    Sessions,
    messages,
)
from hubbubd.downstream.messages import Message, Notification, Refusal, Request, Response
from hubbubd.errors import HubError, NotFound, PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable
from hubbubd.rpc import auth
from hubbubd.rpc.context import Peer, amend, principal
from hubbubd.rpc.http import CERTIFICATE, LET_IN, connection, serving
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.mcp_headers import ArgumentHeaders, decoded
from hubbubd.rpc.mcp_wire import SESSION, STATUS, VERSION, Answered, Received, Stream, reply
from hubbubd.rpc.server import LAST_WORDS_S, MAX_RPCS
from hubbubd.rpc.tls import ssl_context
from hubbubd.runtime.hub import Hub

PATH: Final = "/mcp"
RPC: Final = "/hubbub.v1.McpService/Serve"
"""What a request of a host is called in the table of permissions and in the audit log."""


@asynccontextmanager
async def serve_mcp(
    hub: Hub,
    *,
    listen: str,
    gate: auth.Gate,
    handles: Handles,
    tls: TlsFiles | None = None,
    origins: Callable[[], Sequence[str]] = tuple,
    hosts: Callable[[], Sequence[str]] = tuple,
    max_message_bytes: int = 16 * 1024 * 1024,
) -> AsyncGenerator[str, None]:
    """Serve a hub's endpoints for hosts and yield their URL. Raises as `server.serve`."""
    context = ssl_context(tls) if tls else None
    app = McpApplication(
        hub, gate=gate, handles=handles, origins=origins, hosts=hosts, max_message_bytes=max_message_bytes
    )
    config = uvicorn.Config(
        app,
        http=connection(),
        ssl_context_factory=(lambda _config, _default: context) if context else None,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_RPCS,
        timeout_graceful_shutdown=round(LAST_WORDS_S),
    )
    async with serving(config, listen, secure=tls is not None) as url:
        try:
            yield f"{url}{PATH}"
        finally:
            app.close()


class McpApplication:
    """The ASGI application of all endpoints."""

    def __init__(
        self,
        hub: Hub,
        *,
        gate: auth.Gate,
        handles: Handles,
        origins: Callable[[], Sequence[str]],
        hosts: Callable[[], Sequence[str]],
        max_message_bytes: int,
    ) -> None:
        self.sessions = Sessions(hub.clock.steady)
        self._hub = hub
        self._gate = gate
        self._origins = origins
        self._hosts = hosts
        self._most = max_message_bytes
        self._oversight = Oversight(hub.audit, hub.quotas)
        self._endpoints = Endpoints(hub, handles)
        self._argument_headers: dict[str, ArgumentHeaders] = {}

    def close(self) -> None:
        """End all sessions."""
        for session in list(self.sessions):
            self.sessions.end(session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        request = Received.of(scope, receive, send)
        try:
            self._check_where_from(request)
            caller = await self._caller(request)
            endpoint = self._endpoint(scope["path"], caller)
            with self._gate.inside(caller, RPC, self._oversight):
                await self._serve(request, caller, endpoint)
        except Answered as answered:
            await request.answer(answered.status, messages.error(None, answered.refusal), answered.headers)
        except HubError as exc:
            refusal = Refusal(HUB_FAILED, exc.message, {"reason": exc.reason})
            await request.answer(_status_of(exc), messages.error(None, refusal), _headers_of(exc))
        except (ConnectionError, TimeoutError):
            pass  # nobody is left to be told

    def _check_where_from(self, request: Received) -> None:
        """Refuse what comes by DNS rebinding: another Host than this machine's, another Origin than the allowed."""
        host = (request.text(b"host") or "").rpartition(":")[0] or request.text(b"host") or ""
        local = is_loopback((request.scope.get("server") or ("", 0))[0])
        if host not in self._hosts() and local and not _is_loopback_name(host):
            raise Answered(421, Refusal(INVALID_REQUEST, "this Host is not served here; mcp_hosts allows more"))
        origin = request.text(b"origin")
        if origin is not None and origin not in self._origins() and not _is_loopback_name(_host_of(origin)):
            raise Answered(
                403, Refusal(INVALID_REQUEST, "pages of this Origin may not use it; mcp_origins allows more")
            )

    async def _caller(self, request: Received) -> Principal:
        host, _ = request.scope.get("client") or ("", 0)
        peer = Peer(local=is_loopback(host), certificate=request.scope.get(CERTIFICATE))
        let_in: Callable[[], None] = request.scope.get(LET_IN, lambda: None)
        amend(peer=peer, let_in=let_in, address=lambda: f"{host}:0")
        shown = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in request.scope["headers"]]
        try:
            caller = await self._gate.admit(RPC, shown, self._oversight, peer)
        except HubError as exc:
            raise self._oversight.refused(RPC, exc, principal()) from None
        assert caller is not None, "the peer was given"
        let_in()
        return caller

    def _endpoint(self, path: str, caller: Principal) -> Endpoint:
        """Return what is at a path. Raises NotFound and Answered."""
        match unquote(path).removeprefix(PATH).split("/"):
            case [""] | ["", ""]:
                return self._endpoints.profile(DEFAULT)
            case ["", "p", name]:
                return self._endpoints.profile(name)
            case ["", "s", name]:
                return self._endpoints.server(name, caller)
            case _:
                there = f"{PATH}, {PATH}/p/PROFILE and {PATH}/s/SERVER"
                raise Answered(404, Refusal(INVALID_REQUEST, f"there is no endpoint here; there are {there}"))

    async def _serve(self, request: Received, caller: Principal, endpoint: Endpoint) -> None:
        stateless = request.text(VERSION) in STATELESS_REVISIONS
        match request.scope["method"]:
            case "POST":
                await self._post(request, caller, endpoint)
            case "GET" if not stateless:
                await self._listen(request, self._session(request, caller, endpoint))
            case "DELETE" if not stateless:
                self.sessions.end(self._session(request, caller, endpoint))
                await request.answer(200)
            case _:
                allowed = b"POST" if stateless else b"GET, POST, DELETE"
                raise Answered(405, Refusal(INVALID_REQUEST, "this method is not served"), [(b"allow", allowed)])

    async def _post(self, request: Received, caller: Principal, endpoint: Endpoint) -> None:
        request.require_accept("application/json", "text/event-stream")
        body = await request.body(self._most)
        try:
            message = messages.read(body)
        except Refusal as refusal:
            await request.answer(400, messages.error(messages.asked_id(body), refusal))
            return
        version = request.text(VERSION)
        try:
            if _is_stateless(version, message):
                await self._stateless(request, message, caller, endpoint)
            else:
                await self._handshake(request, message, caller, endpoint)
        except Refusal as refusal:
            id_ = message.id if isinstance(message, Request) else None
            await request.answer(STATUS.get(refusal.code, 200), messages.error(id_, refusal))

    # Revisions with a handshake

    async def _handshake(self, request: Received, message: Message, caller: Principal, endpoint: Endpoint) -> None:
        version = request.text(VERSION)
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(request, message, caller, endpoint)
            return
        if version is not None and version not in HANDSHAKE_REVISIONS:
            raise _unsupported(version)
        session = self._session(request, caller, endpoint)
        if not isinstance(message, Request):
            session.take(message)
            await request.answer(202)
            return
        outlet = Outlet()
        await reply(request, session.begin(message, outlet), outlet, stateless=False)

    async def _initialize(self, request: Received, message: Request, caller: Principal, endpoint: Endpoint) -> None:
        asked = message.params.get("protocolVersion")
        if not isinstance(asked, str):
            raise Refusal(INVALID_PARAMS, "params.protocolVersion must be a string")
        host = Host(
            principal=caller,
            revision=asked if asked in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0],
            info=_object(message.params.get("clientInfo")),
            capabilities=_object(message.params.get("capabilities")),
        )
        session = self.sessions.open(host, endpoint)
        response = await session.begin(message, Outlet())
        await request.answer(200, response, [(SESSION, session.id.encode())])

    def _session(self, request: Received, caller: Principal, endpoint: Endpoint) -> Session:
        id_ = request.text(SESSION)
        if id_ is None:
            raise Answered(400, Refusal(INVALID_REQUEST, "Mcp-Session-Id is missing: initialize first"))
        session = self.sessions.find(id_, caller, endpoint)
        if session is None:
            raise Answered(404, Refusal(INVALID_REQUEST, "there is no such session: initialize again"))
        return session

    async def _listen(self, request: Received, session: Session) -> None:
        request.require_accept("text/event-stream")
        stream = Stream(request)
        await stream.begin()
        gone = asyncio.create_task(request.gone())
        try:
            await stream.pass_on(session.outlet, until=gone)
            await stream.end()
        finally:
            gone.cancel()

    # From 2026-07-28 on

    async def _stateless(self, request: Received, message: Message, caller: Principal, endpoint: Endpoint) -> None:
        version = request.text(VERSION)
        if isinstance(message, Response):
            raise Refusal(INVALID_REQUEST, "in this revision a host sends requests only")
        if isinstance(message, Notification):
            if version not in STATELESS_REVISIONS:
                raise _unsupported(version or "")
            await request.answer(202)
            return
        host = _host_of_request(request, message, caller)
        if message.method == "tools/call":
            listed = endpoint.view.entries(Kind.TOOL, caller)
            self._argument_headers.setdefault(endpoint.view.name, ArgumentHeaders()).check(
                listed, message.params, request.headers
            )
        outlet = Outlet()
        exchange = Exchange(id=message.id, method=message.method, params=message.params, host=host, tell=outlet.tell)
        task = asyncio.create_task(endpoint.serve(exchange))
        await reply(request, task, outlet, stateless=True)


def _is_stateless(version: str | None, message: Message) -> bool:
    """Return whether a message is of a revision without a handshake: its header says so, or its envelope."""
    if version in STATELESS_REVISIONS:
        return True
    if not isinstance(message, Request) or message.method == "initialize":
        return False
    meta: dict[str, Any] = message.params.get("_meta") or {}
    return _ENVELOPE_VERSION in meta or message.method == "server/discover"


_ENVELOPE_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_ENVELOPE_INFO: Final = "io.modelcontextprotocol/clientInfo"
_ENVELOPE_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"

_NAMES: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
"""The param that Mcp-Name repeats. With tasks it may be missing: SEP-2663 wants it, but FastMCP's client has none."""


def _host_of_request(request: Received, message: Request, caller: Principal) -> Host:
    """Return who asks, from the request's own envelope. Raises Refusal."""
    if request.doubled is not None:
        raise Refusal(HEADER_MISMATCH, f"the header {request.doubled.decode()} is there twice")
    meta: dict[str, Any] = message.params.get("_meta") or {}
    missing = [key for key in (_ENVELOPE_VERSION, _ENVELOPE_CAPABILITIES) if key not in meta]
    if missing:
        raise Refusal(INVALID_PARAMS, f"params._meta must have {' and '.join(missing)}")
    version = meta[_ENVELOPE_VERSION]
    if not isinstance(version, str) or not isinstance(meta[_ENVELOPE_CAPABILITIES], dict):
        raise Refusal(INVALID_PARAMS, f"params._meta: {_ENVELOPE_VERSION} is a string, the capabilities an object")
    _check_header(request, VERSION, version)
    _check_header(request, b"mcp-method", message.method)
    params: dict[str, Any] = message.params
    named: object = params.get(_NAMES.get(message.method, ""))
    unsaid = message.method.startswith("tasks/") and request.text(b"mcp-name") is None
    if isinstance(named, str) and not unsaid:
        _check_header(request, b"mcp-name", named)
    if version not in STATELESS_REVISIONS:
        raise _unsupported(version)
    return Host(
        principal=caller,
        revision=version,
        info=_object(meta.get(_ENVELOPE_INFO)),
        capabilities=_object(meta[_ENVELOPE_CAPABILITIES]),
    )


def _check_header(request: Received, key: bytes, said: str) -> None:
    """Raise Refusal unless a header repeats what the body says."""
    sent = request.headers.get(key)
    if sent is None or decoded(sent) != said:
        raise Refusal(HEADER_MISMATCH, f"the header {key.decode()} must repeat what the body says")


def _unsupported(version: str) -> Refusal:
    data = {"supported": [*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS], "requested": version[:100]}
    return Refusal(UNSUPPORTED_VERSION, "this revision of the protocol is not served", data)


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_loopback_name(host: str) -> bool:
    return host == "localhost" or is_loopback(host.strip("[]"))


def _host_of(origin: str) -> str:
    return origin.partition("://")[2].rsplit(":", 1)[0]


def _status_of(exc: HubError) -> int:
    match exc:
        case Unauthenticated():
            return 401
        case PermissionDenied():
            return 403
        case NotFound():
            return 404
        case ResourceExhausted():
            return 429
        case Unavailable():
            return 503
        case _:
            return 400


def _headers_of(exc: HubError) -> list[tuple[bytes, bytes]]:
    return [(b"www-authenticate", b"Bearer")] if isinstance(exc, Unauthenticated) else []
