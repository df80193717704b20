"""The hub as an MCP server over streamable HTTP, for hosts of every revision (docs/mcp.md).

    POST    one message of a host; the response is JSON, or a stream of events once there is more to say than the result
    GET     up to 2025-11-25: the stream of what belongs to no request
    DELETE  up to 2025-11-25: ends a session

A request passes the same gate as an RPC. MCP 2025-11-25 and 2026-07-28, basic/transports, streamable HTTP.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import anyio
import structlog
from starlette.types import Receive, Scope, Send

from hubbub_http import make_connection_class
from hubbubd.config import HubSettings
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.core.access import Principal
from hubbubd.core.hosts import endpoint_paths
from hubbubd.core.hosts.endpoint_paths import PATH
from hubbubd.core.jsonrpc import HEADER_MISMATCH, HUB_FAILED, INVALID_REQUEST
from hubbubd.core.servers.catalog import CatalogKind
from hubbubd.downstream import (
    HANDSHAKE_REVISIONS,
    STATELESS_REVISIONS,
    EndpointSession,
    EndpointSessions,
    HostLimits,
    HostOutbox,
    HostProcesses,
    HostRequest,
    McpEndpoint,
    McpEndpoints,
    ReplayStream,
    Serve,
    StateTokens,
    UnreadBytes,
)
from hubbubd.downstream.endpoint import CALL_METHODS
from hubbubd.downstream.hosts import introductions
from hubbubd.downstream.protocol import messages
from hubbubd.downstream.protocol.messages import (
    Id,
    Message,
    NotificationMessage,
    Refusal,
    RequestMessage,
    ResponseMessage,
)
from hubbubd.errors import HubError, Unavailable
from hubbubd.rpc.auth import gate as auth
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.listeners.grpc_server import CLOSE_GRACE_S, MAX_RPCS
from hubbubd.rpc.listeners.http_server import serve_application
from hubbubd.rpc.login import metadata as login
from hubbubd.rpc.mcp.admission import RPC, Admission, http_status, note_peer, preflight_headers
from hubbubd.rpc.mcp.headers import check_arguments, check_repeated
from hubbubd.rpc.mcp.transport import (
    SESSION_HEADER,
    STALL_S,
    STATUS,
    VERSION_HEADER,
    HostEventStream,
    HostHttpRequest,
    HttpRefusal,
    read_message,
    reply,
    reply_resumably,
    resume_stream,
)
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import Quota
from hubbubd.store.vault.state_keys import StateKeyRing
from hubbubd.telemetry import metrics

if TYPE_CHECKING:
    from hubbubd.rpc.login.routes import LoginRoutes

log = structlog.get_logger(__name__)

HTTP_TRANSPORT: Final = "http"
"""The name of this transport in the list of hosts."""

RESUMED_METHOD: Final = "resumed"
"""Stands for the method of a request that an earlier process has started, until its call is found."""

LISTEN_METHOD: Final = "subscriptions/listen"
"""The method whose stream stays open (from 2026-07-28 on)."""


@asynccontextmanager
async def serve_mcp(
    hub: Hub, *, listen: str, gate: auth.Gate, state_keys: StateKeyRing, tls: TlsFiles | None = None
) -> AsyncGenerator[str, None]:
    """Serve a hub's endpoints for hosts and yield their URL. The hub must have been drained when the block ends.

    `state_keys` seal the state that hosts send back with an answer. Raises ConfigError, OSError.
    """
    app = McpApplication(hub, gate=gate, state_keys=state_keys, secure=tls is not None)
    serving = serve_application(
        app,
        listen,
        connections=make_connection_class(),
        tls=tls,
        max_requests=MAX_RPCS,
        grace_s=round(CLOSE_GRACE_S),
    )
    try:
        async with serving as url, anyio.create_task_group() as tasks:
            tasks.start_soon(app.refuse_once_draining)
            hub.meter.observe_number(metrics.HOST_SESSIONS, lambda: len(app.sessions))
            app.publish_login_address(url)
            yield f"{url}{PATH}"
            tasks.cancel_scope.cancel()
    finally:
        app.close()


class McpApplication:
    """The ASGI application of all endpoints."""

    def __init__(self, hub: Hub, *, gate: auth.Gate, state_keys: StateKeyRing, secure: bool) -> None:
        settings = hub.configuration.settings
        self._hub = hub
        self.sessions = EndpointSessions(hub, self._host_limits)
        self._gate = gate
        self._max_message_bytes = settings.max_message_bytes
        self._oversight = Oversight(hub.audit, hub.quotas)
        self._admission = Admission(
            gate=gate,
            oversight=self._oversight,
            origins=lambda: hub.configuration.settings.mcp_origins,
            hosts=lambda: hub.configuration.settings.mcp_hosts,
            issuer=settings.oidc_issuer,
            audience=settings.oidc_audience,
            secure=secure,
            has_login=lambda: hub.configuration.settings.has_login,
            public_url=settings.mcp_public_url,
        )
        self._login_routes: LoginRoutes | None = None
        self._endpoints = McpEndpoints(hub, StateTokens(state_keys, hub.clock))
        self._processes = HostProcesses()
        self._stream_quota = Quota(
            "open streams of hosts", HostLimits.from_settings(settings).streams_per_principal, reason="TOO_MANY_STREAMS"
        )
        self._unread_bytes = UnreadBytes()
        self._draining = asyncio.Event()
        self._parse_limiter = anyio.CapacityLimiter(1)

    def _host_limits(self) -> HostLimits:
        return HostLimits.from_settings(self._hub.configuration.settings)

    async def refuse_once_draining(self) -> None:
        """Wait until the hub is drained; then refuse new requests, and end the streams of sessions."""
        async for _ in self._hub.health.watch():  # ends once the hub shuts down
            pass
        self._draining.set()
        for session in self.sessions:
            session.outlet.close()

    def publish_login_address(self, url: str) -> None:
        """Publish the address at which people log in, and keep it current; `url` is this port's own address."""
        configuration, visitors = self._hub.configuration, self._hub.visitors

        def set_address(settings: HubSettings) -> None:
            """Set the address at which people log in; None while there is no log-in."""
            visitors.address = (self._admission.public_url or url) if settings.has_login else None

        set_address(configuration.settings)
        configuration.on_adopted(set_address)

    def close(self) -> None:
        """End all sessions."""
        self.sessions.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        request = HostHttpRequest.of(scope, receive, send)
        try:
            self._admission.check_host_and_origin(request)
            if await self._serve_unauthenticated(request):
                return
            caller = await self._admission.authenticate(request)
            request.hold_bytes = partial(self._unread_bytes.count_response, caller.name)
            await self._serve(request, caller, self._find_endpoint(scope["path"], caller))
        except HttpRefusal as refused:
            await request.answer(refused.status, messages.make_error_response(None, refused.refusal), refused.headers)
        except HubError as exc:
            await self._refuse(request, exc)
        except ConnectionError:
            await request.cut()
        except TimeoutError:
            log.warning("host read nothing; its connection is closed", path=scope["path"][:100], seconds=STALL_S)
            await request.cut()

    async def _serve_unauthenticated(self, request: HostHttpRequest) -> bool:
        """Serve a request that needs no credential and return True; False for others. Raises HttpRefusal."""
        method, path = request.scope["method"], request.scope["path"]
        if method == "OPTIONS" and request.headers.get("origin") is not None:
            await request.answer(204, headers=preflight_headers(request))
            return True
        if f"{path}/".startswith(f"{PATH}/"):
            return False
        if method == "GET" and f"{path}/".startswith(f"{login.RESOURCE}/"):
            await request.answer(200, self._admission.resource_metadata(request))
            return True
        if login.is_login_path(path) and (path in login.PAGES or self._hub.configuration.settings.has_login):
            note_peer(request)
            await self._get_login_routes().serve(request, self._admission.base_url(request))
            return True
        # Hosts try paths such as `/register` to log in. A 401 would have them try again after a log-in.
        raise HttpRefusal(404, Refusal(INVALID_REQUEST, f"there is nothing here; hosts use {PATH}"))

    def _get_login_routes(self) -> "LoginRoutes":
        """Return the routes of the log-in, made at the first use."""
        if self._login_routes is None:
            from hubbubd.rpc.login.routes import LoginRoutes  # lazy: most hubs never need it

            secure = self._admission.is_seen_secure
            self._login_routes = LoginRoutes(self._hub, gate=self._gate, oversight=self._oversight, secure=secure)
        return self._login_routes

    def _find_endpoint(self, path: str, caller: Principal) -> McpEndpoint:
        """Return the endpoint at a path. Raises NotFound, Unauthenticated and HttpRefusal."""
        endpoint_name = endpoint_paths.parse(unquote(path))
        if endpoint_name is None:
            raise HttpRefusal(404, Refusal(INVALID_REQUEST, endpoint_paths.NONE_HERE))
        return self._endpoints.find(endpoint_name, caller)

    async def _serve(self, request: HostHttpRequest, caller: Principal, endpoint: McpEndpoint) -> None:
        """Serve a request at an endpoint, by its method. Raises HttpRefusal, HubError."""
        is_stateless = request.headers.get(VERSION_HEADER) in STATELESS_REVISIONS
        match request.scope["method"]:
            case "POST":
                await self._serve_post(request, caller, endpoint)
            case "GET" if not is_stateless:
                with self._gate.while_valid(caller, RPC, self._oversight):
                    await self._serve_own_stream(request, await self._find_session(request, caller, endpoint), caller)
            case "DELETE" if not is_stateless:
                await self.sessions.end(await self._find_session(request, caller, endpoint))
                await request.answer(200)
            case _:
                allowed = b"POST" if is_stateless else b"GET, POST, DELETE"
                raise HttpRefusal(405, Refusal(INVALID_REQUEST, "this method is not served"), [(b"allow", allowed)])

    async def _serve_post(self, request: HostHttpRequest, caller: Principal, endpoint: McpEndpoint) -> None:
        """Serve one message of a host, without a session or with one, as its revision has it."""
        request.require_accept("application/json", "text/event-stream")
        if (message := await read_message(request, self._max_message_bytes, self._parse_limiter)) is None:
            return  # no valid message; `read_message` has sent the refusal
        id_ = message.id if isinstance(message, RequestMessage) else None
        try:
            if isinstance(message, RequestMessage):
                self._require_not_shutting_down(message.params)
            request_is_stateless = isinstance(message, RequestMessage) and message.is_stateless
            if request.headers.get(VERSION_HEADER) in STATELESS_REVISIONS or request_is_stateless:
                await self._serve_stateless(request, message, caller, endpoint)
            else:
                await self._serve_with_session(request, message, caller, endpoint)
        except Refusal as refusal:
            await request.answer(STATUS.get(refusal.code, 200), messages.make_error_response(id_, refusal))
        except HubError as exc:
            await self._refuse(request, exc, id_)

    async def _refuse(self, request: HostHttpRequest, exc: HubError, id_: Id | None = None) -> None:
        """Answer with a JSON-RPC error for a HubError, in the HTTP status that fits."""
        refusal = Refusal(HUB_FAILED, exc.message, {"reason": exc.reason, **exc.metadata})
        await request.answer(
            http_status(exc), messages.make_error_response(id_, refusal), self._admission.refusal_headers(request, exc)
        )

    async def _serve_while_valid(self, caller: Principal, serve: Serve, host_request: HostRequest) -> bytes:
        """Serve a request, and return its response. Raises Unauthenticated if the credential ends before that."""
        with self._gate.while_valid(caller, RPC, self._oversight):
            return await serve(host_request)
        raise AssertionError("it raises when the credential has ended")

    def _require_not_shutting_down(self, params: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Raise Unavailable once the hub shuts down, unless the request has answers that an open call waits for."""
        if self._draining.is_set() and "inputResponses" not in params:
            raise Unavailable("the hub is shutting down", reason="SHUTTING_DOWN", retry_after_s=1)

    def _count_stream(self, caller: Principal) -> AbstractContextManager[None]:
        """Count a stream against the caller's limit during the block. Raises ResourceExhausted (TOO_MANY_STREAMS)."""
        self._stream_quota.limit = self._host_limits().streams_per_principal
        return self._stream_quota.hold(caller.name)

    # Revisions with a handshake

    async def _serve_with_session(
        self, request: HostHttpRequest, message: Message, caller: Principal, endpoint: McpEndpoint
    ) -> None:
        """Serve a message of a host with a session (up to 2025-11-25). Raises Refusal, HttpRefusal, HubError."""
        version = request.headers.get(VERSION_HEADER)
        if isinstance(message, RequestMessage) and message.method == "initialize":
            await self._initialize(request, message, caller, endpoint)
            return
        if version is not None and version not in HANDSHAKE_REVISIONS:
            raise introductions.refusal_for_revision(version)
        session = await self._find_session(request, caller, endpoint)
        if not isinstance(message, RequestMessage):
            session.receive(message)
            await request.answer(202)
            return
        call_key = f"call_{secrets.token_hex(8)}" if message.method in CALL_METHODS else None
        hold_s = request.hold_s
        replay = session.replays.open(message.id, call_key)
        serve = partial(self._serve_while_valid, caller, endpoint.serve)
        task = _start_request(session, message, replay, call_key, serve, hold_s=hold_s)
        await reply_resumably(request, task, replay, session.host.revision)

    async def _initialize(
        self, request: HostHttpRequest, message: RequestMessage, caller: Principal, endpoint: McpEndpoint
    ) -> None:
        """Begin a session, and answer with its id in a header. Raises Refusal, HubError."""
        host = introductions.parse_handshake_host(message, caller, HTTP_TRANSPORT)
        session = await self.sessions.begin(host, endpoint)
        response = await session.begin(
            message, HostOutbox(), serve=partial(self._serve_while_valid, caller, endpoint.serve)
        )
        await request.answer(200, response, [(SESSION_HEADER.encode(), session.id.encode())])

    async def _find_session(
        self, request: HostHttpRequest, caller: Principal, endpoint: McpEndpoint
    ) -> EndpointSession:
        """Return the session that the request names. Raises HttpRefusal."""
        if request.duplicate_header is not None:
            raise HttpRefusal(400, Refusal(HEADER_MISMATCH, f"the header {request.duplicate_header} is there twice"))
        id_ = request.headers.get(SESSION_HEADER)
        if id_ is None:
            raise HttpRefusal(400, Refusal(INVALID_REQUEST, "Mcp-Session-Id is missing: initialize first"))
        session = await self.sessions.find(id_, caller, endpoint)
        if session is None:
            raise HttpRefusal(404, Refusal(INVALID_REQUEST, "there is no such session: initialize again"))
        return session

    async def _serve_own_stream(self, request: HostHttpRequest, session: EndpointSession, caller: Principal) -> None:
        """Serve a GET: the stream of messages that belong to no request, or the stream that the host resumes."""
        request.require_accept("text/event-stream")
        last_event_id = request.headers.get("last-event-id")
        with self._count_stream(caller):
            if last_event_id is not None:
                await self._resume_stream(request, session, caller, last_event_id)
                return
            self._require_not_shutting_down()
            stream, outlet = HostEventStream(request), session.listen()
            host_closed = request.watch_connection()
            removed = asyncio.create_task(session.endpoint.wait_until_removed())
            removed.add_done_callback(lambda _: outlet.close())
            try:
                await stream.begin()
                await stream.send_outbox(outlet, until=host_closed)
                await request.end()
            finally:
                host_closed.cancel()
                removed.cancel()
                session.end_listening(outlet)

    async def _resume_stream(
        self, request: HostHttpRequest, session: EndpointSession, caller: Principal, last_event_id: str
    ) -> None:
        """Resume a stream after an event; the stream may be of an earlier process of the hub. Raises HttpRefusal."""
        replays = session.replays
        position = replays.find(last_event_id)
        if position is None and (former := replays.parse_lost_stream(last_event_id)) is not None:
            position = replays.reopen_lost(former), former.last_event
            message = RequestMessage(former.request_id, RESUMED_METHOD, {})
            serve = partial(self._serve_while_valid, caller, session.endpoint.resume)
            try:
                position[0].end_with(_start_request(session, message, position[0], former.call_key, serve, hold_s=None))
            except Refusal as refusal:
                raise HttpRefusal(400, refusal) from None
            position[0].is_known_to_host = True
        if position is None:
            error = Refusal(INVALID_REQUEST, "what came after this event is not kept", {"reason": "EVENT_NOT_KEPT"})
            raise HttpRefusal(400, error)
        await resume_stream(request, *position)

    # From 2026-07-28 on

    async def _serve_stateless(
        self, request: HostHttpRequest, message: Message, caller: Principal, endpoint: McpEndpoint
    ) -> None:
        """Serve a message of a host without a session (from 2026-07-28 on). Raises Refusal, HubError."""
        version = request.headers.get(VERSION_HEADER)
        if isinstance(message, ResponseMessage):
            raise Refusal(INVALID_REQUEST, "in this revision a host sends requests only")
        if isinstance(message, NotificationMessage):
            if version not in STATELESS_REVISIONS:
                raise introductions.refusal_for_revision(version or "")
            await request.answer(202)
            return
        check_repeated(request.headers, request.duplicate_header, message)
        host, name, peer = (
            introductions.parse_stateless_host(message, caller, HTTP_TRANSPORT),
            endpoint.view.name,
            request.peer,
        )
        self._processes.recognise(host, name, peer)
        if message.method == "tools/call":
            await endpoint.view.settle(CatalogKind.TOOL)  # computes the names that `find_entry` looks up
            tool = endpoint.view.find_entry(CatalogKind.TOOL, str(message.params.get("name")), caller)
            check_arguments(tool, message.params.get("arguments"), request.headers)
        outlet = HostOutbox()
        host_request = HostRequest(
            id=message.id,
            method=message.method,
            params=message.params,
            host=host,
            send=outlet.send,
            leaving=self._draining,
            own_hold_s=request.hold_s,
        )
        with ExitStack() as streams:
            if message.method == LISTEN_METHOD:
                streams.enter_context(self._count_stream(caller))
                streams.enter_context(self._processes.note_stream(host, name, peer))
            task = asyncio.create_task(self._serve_while_valid(caller, endpoint.serve, host_request))
            await reply(request, task, outlet, message.id)


def _start_request(
    session: EndpointSession,
    message: RequestMessage,
    replay: ReplayStream,
    call_key: str | None,
    serve: Serve,
    *,
    hold_s: float | None,
) -> asyncio.Task[bytes]:
    """Start to serve a request of a session; return a task with the response.

    A refused request leaves no stream to resume. Raises Refusal, ResourceExhausted.
    """
    try:
        return session.begin(message, replay, call_key, serve, hold_s=hold_s, presence=replay.presence)
    except (Refusal, HubError):
        replay.forget()
        raise
