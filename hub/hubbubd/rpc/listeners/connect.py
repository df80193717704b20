"""The API over Connect and gRPC-Web, for browsers and for languages where gRPC is heavy (docs/connect.md).

A request becomes the bytes that gRPC would have brought, and passes the same gate, servicers and statuses. RPCs whose
requests stream need gRPC.

Connect: https://connectrpc.com/docs/protocol. gRPC-Web: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md.
"""

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Any

import anyio
import grpc
import structlog
from anyio import to_thread
from connectrpc.code import Code
from connectrpc.codec import Codec
from connectrpc.errors import ConnectError, ErrorDetail
from connectrpc.interceptor import MetadataInterceptor
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.request import RequestContext
from connectrpc.server import ConnectASGIApplication, Endpoint
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2 as details_pb2
from protobuf.wkt import Any as ConnectAny
from protobuf.wkt import Struct
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from hubbub.v1 import server_pb2
from hubbub_http import CERTIFICATE, MARK_AUTHENTICATED, make_connection_class
from hubbubd.config.sections.network import is_loopback
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.core.access import Principal
from hubbubd.errors import HubError, InvalidArgument
from hubbubd.rpc import status
from hubbubd.rpc.auth import gate as auth
from hubbubd.rpc.auth.permissions import RULES, RpcReach
from hubbubd.rpc.auth.unauthenticated import REQUEST_BYTES
from hubbubd.rpc.context import ANONYMOUS, Peer, amend_context, current, principal
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.listeners.grpc_server import MAX_RPCS, make_servicers, wait_for_open_rpcs
from hubbubd.rpc.listeners.host_check import wrap_with_host_check
from hubbubd.rpc.listeners.http_server import serve_application
from hubbubd.rpc.messages import json_codec
from hubbubd.rpc.methods import STALL_S, Middleware, Rpc, RpcSettings, list_rpcs
from hubbubd.rpc.tracing import trace_rpcs
from hubbubd.runtime.hub import Hub

log = structlog.get_logger(__name__)

# Headers of the two protocols beyond those that CORS always allows (https://connectrpc.com/docs/cors).
_REQUEST_HEADERS = (
    "authorization",
    auth.NAME_METADATA,
    auth.BINARY_NAME_METADATA,
    "traceparent",
    "tracestate",
    "content-type",
    "connect-protocol-version",
    "connect-timeout-ms",
    "grpc-timeout",
    "x-grpc-web",
    "x-user-agent",
)
_RESPONSE_HEADERS = ("grpc-status", "grpc-message", "grpc-status-details-bin")
_PREFLIGHT_S = 7200
"""Seconds for which a browser remembers a preflight: two hours are the most that Chromium takes."""

MAX_INLINE_JSON_BYTES = 16 * 1024
"""Longer JSON is parsed in a worker thread, one request at a time."""

OPENAPI_PATH = "/openapi.json"
"""Where the API is described (https://spec.openapis.org/oas/v3.1.1.html)."""

REQUEST_S = 60.0
"""Seconds a caller may take to send a request."""

_DETAILS = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        details_pb2.ErrorInfo,
        details_pb2.RetryInfo,
        details_pb2.BadRequest,
        details_pb2.Help,
        server_pb2.RevisionConflict,
    )
}


@asynccontextmanager
async def serve_connect(
    hub: Hub,
    *,
    listen: str,
    gate: auth.Gate,
    tls: TlsFiles | None = None,
    origins: Callable[[], Sequence[str]] = tuple,
    hosts: Callable[[], Sequence[str]] = tuple,
    max_message_bytes: int = 16 * 1024 * 1024,
    middleware: tuple[Middleware, ...] = (),
) -> AsyncGenerator[str, None]:
    """Serve a hub over HTTP/1.1 and yield the base URL. Pages of the current `origins` may use it (CORS), no others.

    It is reached under names of loopback, and under the current `hosts`.

    On leaving, open RPCs have the time of `grpc_server.wait_for_open_rpcs`; the hub must have been drained before.
    `middleware` goes around each RPC, inside its span, audit entry and quotas. Raises ConfigError, OSError.
    """
    app = make_application(hub, gate=gate, origins=origins, max_message_bytes=max_message_bytes, middleware=middleware)
    async with serve_application(
        wrap_with_host_check(app, origins, hosts, secure=tls is not None),
        listen,
        connections=make_connection_class(),
        tls=tls,
        max_requests=MAX_RPCS,
        closing=partial(wait_for_open_rpcs, hub),
    ) as url:
        yield url


def make_application(
    hub: Hub,
    *,
    gate: auth.Gate,
    origins: Callable[[], Sequence[str]],
    max_message_bytes: int,
    middleware: tuple[Middleware, ...] = (),
) -> ASGIApp:
    """Return an ASGI application with all services of a hub; `middleware` goes around each RPC, inside its quotas."""

    def make_endpoints(rpcs: Sequence[Rpc]) -> dict[str, Any]:
        return {
            rpc.path: _make_endpoint(rpc, gate, oversight, parse_limiter)
            for rpc in rpcs
            if not rpc.method.client_streaming
        }

    def make_services(rpcs: Sequence[Rpc], read_max_bytes: int) -> _Services:
        return _Services(
            service=rpcs,
            endpoints=make_endpoints,
            interceptors=[_AuthenticationInterceptor(gate, oversight)],
            read_max_bytes=read_max_bytes,
            compressions=(),  # most callers are on this machine
            codecs=[_Binary(), _Json()],
        )

    parse_limiter = anyio.CapacityLimiter(1)
    oversight = Oversight(hub.audit, hub.quotas)
    interceptors = (trace_rpcs(hub.tracer, "connectrpc"), oversight.wrap, *middleware)
    servicers = make_servicers(hub, RpcSettings(max_message_bytes, interceptors))
    all_rpcs = [rpc for each in servicers for rpc in list_rpcs(*each, max_message_bytes, *interceptors)]
    open_rpcs = [rpc for rpc in all_rpcs if RULES[rpc.path].reach is RpcReach.OPEN]
    open_paths = {rpc.path for rpc in open_rpcs}
    open_services = make_services(open_rpcs, REQUEST_BYTES)
    # Above our own limit, as in gRPC, which is checked on the parsed request; its JSON is longer.
    gated_services = make_services([rpc for rpc in all_rpcs if rpc.path not in open_paths], 2 * max_message_bytes)

    async def serve_by_path(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == OPENAPI_PATH:
            await _serve_openapi(scope, receive, send)
            return
        await (open_services if scope["path"] in open_paths else gated_services)(scope, receive, send)  # type: ignore[arg-type]

    return _Cors(_limit_time(serve_by_path, hub.count_dropped_watch), origins)


async def _serve_openapi(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the description of the API without a credential: it is the same for every hub of this version."""
    if scope["method"] in ("GET", "HEAD"):
        response = Response(_read_openapi(), media_type="application/json")
    else:
        response = PlainTextResponse("Only GET.\n", 405, {"allow": "GET, HEAD"})
    await response(scope, receive, send)


@cache
def _read_openapi() -> bytes:
    return (resources.files("hubbub.v1") / "openapi.json").read_bytes()


class _Cors(CORSMiddleware):
    """CORS for origins that may change while the hub runs."""

    def __init__(self, app: ASGIApp, origins: Callable[[], Sequence[str]]) -> None:
        super().__init__(
            app,
            allow_methods=["POST"],
            allow_headers=_REQUEST_HEADERS,
            allow_private_network=True,
            expose_headers=_RESPONSE_HEADERS,
            max_age=_PREFLIGHT_S,
        )
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Without origins, answer as if CORS did not exist."""
        await (super().__call__ if self._origins() else self._app)(scope, receive, send)

    def is_allowed_origin(self, origin: str) -> bool:
        """Return whether an origin's pages may read the responses."""
        return origin in self._origins()


class _Services(ConnectASGIApplication[Sequence[Rpc]]):
    """All services in one application; the RPC's path tells them apart."""

    @property
    def path(self) -> str:
        """The mount point: the root."""
        return ""


def _limit_time(app: Callable[..., Any], on_dropped: Callable[[], None]) -> ASGIApp:
    """Return the application with limits of time; `on_dropped` is called when a client that reads nothing is dropped.

    The peer is noted in the RPC's context; plain gRPC is refused.
    """

    async def serve_in_time(scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request: it must come within REQUEST_S, and each send be taken within STALL_S."""
        deadline = anyio.current_time() + REQUEST_S
        is_read = False

        async def receive_in_time() -> Event:
            """Return the next event; no deadline holds after the last part of the request."""
            nonlocal is_read
            with anyio.CancelScope(deadline=math.inf if is_read else deadline):
                event = await receive()
                is_read = is_read or not event.get("more_body", False)
                return event
            # Reached when the scope was cancelled: the deadline has passed.
            raise _connect_error(InvalidArgument(f"no request came within {REQUEST_S:g} s", reason="MALFORMED_REQUEST"))

        async def send_in_time(event: Event) -> None:
            with anyio.fail_after(STALL_S):
                await send(event)

        if _is_grpc(dict(scope.get("headers", ())).get(b"content-type", b"")):
            refusal = PlainTextResponse("gRPC is spoken at another address; here it is Connect and gRPC-Web.\n", 415)
            await refusal(scope, receive, send)
            return
        host, _ = scope.get("client") or ("", 0)
        peer = Peer(local=is_loopback(host), certificate=scope.get(CERTIFICATE))
        # MARK_AUTHENTICATED is the function that ends the limits of an unauthenticated connection.
        amend_context(peer=peer, on_admitted=scope.get(MARK_AUTHENTICATED, lambda: None))
        try:
            headers = [(key, _to_utf8(value)) for key, value in scope.get("headers", ())]
            await app({**scope, "headers": headers}, receive_in_time, send_in_time)
        except TimeoutError:  # of `send_in_time`
            on_dropped()
            log.warning("caller read nothing; stream ended", path=scope["path"], seconds=STALL_S)

    return serve_in_time


def _is_grpc(content_type: bytes) -> bool:
    """Return whether the request is plain gRPC, which needs HTTP/2 and would fail in the layer below."""
    return content_type.partition(b";")[0].strip().lower().partition(b"+")[0] == b"application/grpc"


def _to_utf8(value: bytes) -> bytes:
    """Return a header's value as UTF-8, which the layer below requires; HTTP itself allows any bytes."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()
    return value


class _AuthenticationInterceptor(MetadataInterceptor[None]):
    """Authenticates an RPC before its request is read."""

    def __init__(self, gate: auth.Gate, oversight: Oversight) -> None:
        self._gate = gate
        self._oversight = oversight

    async def on_start(self, ctx: RequestContext[Any, Any]) -> None:
        """Authenticate the caller of an RPC, and lift the limits of its connection. Raises ConnectError."""
        path = f"/{ctx.method.service_name}/{ctx.method.name}"
        amend_context(address=ctx.client_address or "")
        context, headers = current(), ctx.request_headers.allitems()
        assert context.peer is not None, "noted when the request came"
        if RULES[path].reach is RpcReach.OPEN:
            if await self._gate.recognise(path, headers, self._oversight, context.peer) is not None:
                context.on_admitted()
            return
        try:
            await self._gate.admit(path, headers, self._oversight, context.peer)
        except HubError as exc:
            raise _connect_error(self._oversight.record_refusal(path, exc, principal())) from None
        context.on_admitted()


def _current_caller() -> Principal | None:
    """Return the caller of the RPC being served; None where no credential is needed or shown."""
    caller = principal()
    return None if caller is ANONYMOUS else caller


@dataclass(frozen=True, slots=True)
class _Response:
    """A response of a servicer: a message, or for a watch the serialized bytes that all its watchers share."""

    kind: type[Message]
    content: Message | bytes


class _Binary(Codec[_Response, Any]):
    """Codec for protocol buffers: bytes are passed through."""

    def name(self) -> str:
        """Return the codec's part of the content type."""
        return "proto"

    def encode(self, message: _Response) -> bytes:
        """Return the serialized response."""
        return message.content if isinstance(message.content, bytes) else message.content.SerializeToString()

    def decode(self, data: bytes | bytearray, message_class: type[Message]) -> bytes:
        """Return the request's bytes, which are parsed later."""
        return bytes(data)


class _Json(Codec[_Response, Any]):
    """Codec for JSON in which documents are embedded as JSON, not as text (`json_codec`)."""

    def name(self) -> str:
        """Return the codec's part of the content type."""
        return "json"

    def encode(self, message: _Response) -> bytes:
        """Return a response as JSON. Raises ConnectError."""
        content = message.content
        try:
            return json_codec.dumps(message.kind.FromString(content) if isinstance(content, bytes) else content)
        except Exception as exc:  # noqa: BLE001 - a fault of the hub, reported as any other
            raise _connect_error(exc) from None

    def decode(self, data: bytes | bytearray, message_class: type[Message]) -> "_JsonRequest":
        """Return the request, not parsed yet: `_read_request` parses it without blocking other requests."""
        return _JsonRequest(bytes(data), message_class)


@dataclass(frozen=True, slots=True)
class _JsonRequest:
    """A request in JSON, not parsed yet."""

    raw: bytes
    kind: type[Message]

    def read(self) -> bytes:
        """Return the request as protocol buffer bytes. Raises InvalidArgument, ResourceExhausted for many values."""
        return json_codec.loads(self.raw, self.kind).SerializeToString()


async def _read_request(request: "bytes | _JsonRequest", parse_limiter: anyio.CapacityLimiter) -> bytes:
    """Return a request as protocol buffer bytes; long JSON is parsed in a thread, one request at a time."""
    if isinstance(request, bytes):
        return request
    if len(request.raw) <= MAX_INLINE_JSON_BYTES:
        return request.read()
    return await to_thread.run_sync(request.read, limiter=parse_limiter)


def _make_endpoint(rpc: Rpc, gate: auth.Gate, oversight: Oversight, parse_limiter: anyio.CapacityLimiter) -> Any:
    """Return the Connect endpoint of an RPC; `parse_limiter` admits one long JSON request at a time to parsing."""
    streams = rpc.method.server_streaming
    info = MethodInfo(
        name=rpc.method.name,
        service_name=rpc.method.containing_service.full_name,
        input=GetMessageClass(rpc.method.input_type),
        output=rpc.response_type,
        idempotency_level=IdempotencyLevel.UNKNOWN,
        stream_type=StreamType.SERVER_STREAM if streams else StreamType.UNARY,
    )
    if streams:
        return Endpoint.server_stream(info, _make_stream_handler(rpc, gate, oversight, parse_limiter))
    return Endpoint.unary(info, _make_unary_handler(rpc, gate, oversight, parse_limiter))


def _make_unary_handler(rpc: Rpc, gate: auth.Gate, oversight: Oversight, parse_limiter: anyio.CapacityLimiter) -> Any:
    """Return a coroutine function that serves an RPC with one response."""

    async def serve_unary(request: bytes | _JsonRequest, _context: object) -> _Response:
        """Serve the RPC while the credential of its caller is valid. Raises ConnectError."""
        try:
            raw = await _read_request(request, parse_limiter)
            with gate.while_valid(_current_caller(), rpc.path, oversight):
                return _Response(rpc.response_type, await rpc.serve(rpc.parse(raw)))
        except Exception as exc:  # noqa: BLE001 - every error gets a status; cancellation is not an Exception
            raise _connect_error(exc) from None

    return serve_unary


def _make_stream_handler(rpc: Rpc, gate: auth.Gate, oversight: Oversight, parse_limiter: anyio.CapacityLimiter) -> Any:
    """Return an async generator function that serves an RPC with many responses."""

    async def serve_stream(request: bytes | _JsonRequest, _context: object) -> AsyncGenerator[_Response, None]:
        """Yield the responses while the credential of the caller is valid. Raises ConnectError."""
        try:
            raw = await _read_request(request, parse_limiter)
            async with aclosing(rpc.serve(rpc.parse(raw))) as responses:
                while True:
                    # Not around `yield`: another task may resume it.
                    with gate.while_valid(_current_caller(), rpc.path, oversight):
                        response = await anext(responses, None)
                    if response is None:
                        break
                    yield _Response(rpc.response_type, response)
        except Exception as exc:  # noqa: BLE001
            raise _connect_error(exc) from None

    return serve_stream


def _connect_error(exc: Exception) -> ConnectError:
    """Return the error's status with the same details that gRPC callers get."""
    rpc_status = status.status_of(exc)
    code = status.code_of(exc)
    connect_code = Code.CANCELED if code is grpc.StatusCode.CANCELLED else Code[code.name]  # Connect has it with one L
    return ConnectError(connect_code, rpc_status.message, [_Detail(detail) for detail in rpc_status.details])


class _Detail(ErrorDetail):
    """An error detail that carries its plain JSON beside the bytes, for people and scripts."""

    def __init__(self, packed: AnyMessage) -> None:
        super().__init__(ConnectAny(type_url=packed.type_url, value=packed.value))
        plain = json_codec.dumps(_DETAILS[packed.TypeName()].FromString(packed.value))
        try:
            self._plain = Struct.from_json(plain)
        except (ValueError, RecursionError):  # a document in it does not fit a Struct: half of a surrogate pair, depth
            self._plain = None

    def value(self, *_known: object) -> Any:
        """Return the JSON that Connect puts into `debug`, for reading: numbers in it are doubles."""
        return self._plain
