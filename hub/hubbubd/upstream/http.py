"""Transports over HTTP: streamable HTTP, and the older HTTP with SSE.

The SDK's transports implement the protocol; the HTTP client below them adds what they drop: statuses and `Retry-After`,
the delivery of answers, the fate of the GET stream, retries, and bounds.
"""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, Final

import anyio
import httpx2
from anyio import to_thread
from mcp.client.sse import sse_client
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp_types import JSONRPCError

from hubbubd.config import ServerConfig
from hubbubd.config.hosts import Hosts
from hubbubd.cookies import NoCookies
from hubbubd.errors import Fault, FaultCode, UpstreamError
from hubbubd.upstream import faults
from hubbubd.upstream.again import IDLE_S, STALE_CONNECTIONS, Pace, Way
from hubbubd.upstream.body import Body, End, Misdirected, decoded
from hubbubd.upstream.exchange import EXCHANGE, Exchange
from hubbubd.upstream.framing import BadMessage, read
from hubbubd.upstream.oauth import authorization_lost
from hubbubd.upstream.pinned_transport import CheckedTransport
from hubbubd.upstream.sdk import replace_parts
from hubbubd.upstream.streams import Lose, Pipe

CLOSE_LIMIT_S: Final = 2.0
"""Seconds to wait for a server to confirm the end of a session."""

ACKNOWLEDGE_LIMIT_S: Final = 30.0
"""Seconds to wait for a server to accept an answer or notification; the SDK sends nothing else meanwhile."""

AGAIN_AFTER_S: Final = (0.1, 0.5)
"""Pauses before the retries of an answer or notification whose connection broke, in seconds."""

GATEWAYS: Final = (502, 503, 504)
"""Statuses that a gateway may have answered in the server's place."""

ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error response's body is read."""

GET_ATTEMPTS: Final = 2
"""Failures of the GET stream after which the SDK silently gives up on it (its MAX_RECONNECTION_ATTEMPTS)."""


replace_parts()


@asynccontextmanager
async def http_transport(
    config: ServerConfig, access: httpx2.Auth | None, hosts: Hosts | None, lose: Lose
) -> AsyncGenerator[Pipe]:
    """Open a streamable HTTP transport to `config.url`; leaving ends its session. `hosts` limits what is reached."""
    assert config.url is not None
    tls = await _tls_for(config)
    async with (
        Client(config, access, lose, tls, hosts, get_stream=GetStream(lose)) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=config.max_message_bytes) as streams,
    ):
        yield Pipe(read=streams[0], write=streams[1], receipts=True, why_ended=_ended)


@asynccontextmanager
async def sse_transport(
    config: ServerConfig, access: httpx2.Auth | None, hosts: Hosts | None, lose: Lose
) -> AsyncGenerator[Pipe]:
    """Open a transport of revision 2024-11-05: one SSE stream in, POSTs out. `hosts` limits what is reached.

    The SDK limits an event here to 1 MiB, whatever `max_message_bytes` is.
    """
    assert config.url is not None
    tls = await _tls_for(config)

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return Client(config, access, lose, tls, hosts, get_stream=None)

    async with sse_client(config.url, httpx_client_factory=client) as (read, write):
        yield Pipe(read=read, write=write, receipts=True, why_ended=_ended)


async def _ended() -> Fault:
    return faults.fault("CONNECTION_LOST", "the server closed the stream")


async def _tls_for(config: ServerConfig) -> ssl.SSLContext:
    """Return a TLS context that verifies certificates by the system's authorities and those in `config.ca`."""
    if config.ca is None:
        return await to_thread.run_sync(_tls)
    try:
        return await to_thread.run_sync(partial(_tls_with, config.ca))
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        raise faults.error("CONFIG_INVALID", f"ca: {config.ca} cannot be used: {exc}") from None


@cache
def _tls() -> ssl.SSLContext:
    # Cached: loading the certificates is nearly all that creating a client costs.
    return httpx2.create_ssl_context()


def _tls_with(ca: str) -> ssl.SSLContext:
    context = httpx2.create_ssl_context()
    context.load_verify_locations(cafile=ca)
    return context


class GetStream:
    """Mirrors the SDK's count of failures of the GET stream (the server's own messages), as it gives up silently.

    The stream is optional: a server that refuses it from the beginning (any 4xx, or another content type) has none.
    """

    def __init__(self, lose: Lose) -> None:
        self.pace = Pace()
        self._lose = lose
        self._failures = 0
        self._worked = False

    def refused(self, fault: Fault, status: int) -> None:
        """Handle a response to the GET that is not the stream."""
        if fault.code == FaultCode.SESSION_LOST and self._worked:
            self._lose(fault)
        elif self._worked or status >= 500:
            self.failed(fault)

    def opened(self) -> None:
        """Note that the stream is open."""
        self._worked = True

    def ended(self, end: End, fault: Fault | None) -> None:
        """Handle the end of the stream: after a regular one the SDK reopens it and resets its count."""
        if end is End.COMPLETE:
            self._failures = 0
        else:
            self.failed(fault or faults.fault("INVALID_RESPONSE", "an event could not be read"))

    def failed(self, fault: Fault) -> None:
        """Count a failed attempt."""
        self._failures += 1
        if self._failures >= GET_ATTEMPTS:
            self._lose(faults.fault("GET_STREAM_LOST", fault.message, cause=fault.code, **fault.details))


class Client(httpx2.AsyncClient):
    """The HTTP client of one connection: for streamable HTTP with a `get_stream`, else for HTTP with SSE.

    Requests have no read timeout, as people take minutes. Connections are unbounded, as each parked call holds one. A
    failed POST becomes a response, since an exception would end the SDK's whole transport.
    """

    def __init__(
        self,
        config: ServerConfig,
        access: httpx2.Auth | None,
        lose: Lose,
        tls: ssl.SSLContext,
        hosts: Hosts | None,
        *,
        get_stream: GetStream | None,
    ) -> None:
        connect_s = config.connect_timeout_s
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE_S)
        super().__init__(
            # A compressed body could grow beyond every bound.
            headers={
                "Accept-Encoding": "identity",
                **{name: value.get_secret_value() for name, value in config.headers.items()},
            },
            timeout=httpx2.Timeout(connect=connect_s, read=None, write=connect_s, pool=None),
            limits=limits,
            verify=tls,
            transport=None if hosts is None else CheckedTransport(hosts, tls, limits),
            auth=access,
            cookies=NoCookies(),
        )
        self._lose = lose
        self._get_stream = get_stream
        self._greeted = False
        self._max_bytes = config.max_message_bytes

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and note its outcome in the exchange. Bodies that the SDK reads whole are bounded."""
        response = await self._noted(request, **options)
        if not response.is_closed and not isinstance(response.stream, Body):
            streams = self._get_stream is None and request.method == "GET" and response.next_request is None
            limit = None if streams else self._max_bytes
            response.stream = Body(response.stream, lambda _end, _fault: None, limit, decoded(response))
        return response

    async def _noted(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":
            with anyio.fail_after(CLOSE_LIMIT_S):
                return await super().send(request, **options)
        exchange = EXCHANGE.get()
        if exchange is not None:
            exchange.session_id = request.headers.get(MCP_SESSION_ID)
        if request.method == "GET" and exchange is None:
            return await self._open_stream(request, **options)
        if exchange is None or not exchange.awaits_result:
            timeouts = request.extensions.get("timeout", {})
            request.extensions = {**request.extensions, "timeout": {**timeouts, "read": ACKNOWLEDGE_LIMIT_S}}
        try:
            response = await self._send(request, exchange, **options)
        except httpx2.TransportError as exc:
            if exc.request.url != request.url:
                return self._failed(request, authorization_lost(exc), exchange, lost=False)
            reached = not isinstance(exc, httpx2.ConnectError | httpx2.ConnectTimeout)
            return self._failed(request, faults.of_exception(exc), exchange, lost=not reached)
        except UpstreamError as exc:
            return self._failed(request, exc.fault, exchange, lost=False)
        except httpx2.StreamError as exc:
            return self._failed(request, faults.fault("INVALID_RESPONSE", str(exc)), exchange, lost=False)
        except BaseException:
            if exchange is not None:
                exchange.settle("the connection closed before the answer was taken")
            raise
        return await self._judge(request, response, exchange)

    async def _send(self, request: httpx2.Request, exchange: Exchange | None, **options: Any) -> httpx2.Response:
        """Send a request. Answers and notifications are idempotent, so they are retried when their connection broke."""
        if exchange is not None and exchange.awaits_result:
            if request.method == "GET":
                await exchange.pace.wait()
            return await self._send_unless_begun(request, exchange.method, **options)
        for pause_s in AGAIN_AFTER_S:
            try:
                response = await super().send(request, **options)
            except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                pass
            else:
                if response.status_code not in GATEWAYS:
                    return response
                await response.aclose()
            await anyio.sleep(pause_s)
        return await super().send(request, **options)

    async def _send_unless_begun(self, request: httpx2.Request, method: str, **options: Any) -> httpx2.Response:
        """Send a request, and again over a new connection where that is safe (`Way.may_go_again`)."""
        for _ in range(STALE_CONNECTIONS):
            way = request.extensions["trace"] = Way()
            try:
                return await super().send(request, **options)
            except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                if not way.may_go_again(method):
                    raise
        return await super().send(request, **options)

    def _failed(
        self, request: httpx2.Request, fault: Fault, exchange: Exchange | None, *, lost: bool
    ) -> httpx2.Response:
        _note(exchange, fault)
        if lost or self._is_vital(exchange):
            self._lose(fault)
        return httpx2.Response(503, request=request)

    def _is_vital(self, exchange: Exchange | None) -> bool:
        """Return whether the connection is lost without this POST.

        A server may wait for the first notification, and the SSE transport sends nothing more after a failed POST.
        """
        return self._get_stream is None or (exchange is None and not self._greeted)

    async def _judge(
        self, request: httpx2.Request, response: httpx2.Response, exchange: Exchange | None
    ) -> httpx2.Response:
        status = response.status_code
        if status >= 400:
            return await self._refused(request, response, exchange)
        if (redirected := response.next_request) is not None:
            if redirected.method != request.method or not _same_origin(redirected.url, request.url):
                note = f"HTTP {status}, a redirect that is not followed"
                _note(exchange, faults.fault("HTTP_ERROR", note, status=status))
            return response
        if decoded(response) is not None:
            await response.aclose()
            return self._failed(request, faults.fault("INVALID_RESPONSE", "it is compressed"), exchange, lost=False)
        self._greeted = self._greeted or exchange is None
        if exchange is None or not exchange.awaits_result or self._get_stream is None:
            _note(exchange, None)
            return response
        self._watch(response, exchange)
        return response

    def _watch(self, response: httpx2.Response, exchange: Exchange) -> None:
        content_type = response.headers.get("content-type", "").lower()
        exchange.fault = None
        if response.status_code == 202:
            exchange.fault = faults.fault("INVALID_RESPONSE", "it accepted the request without a response", status=202)
        elif content_type.startswith("application/json"):

            def read(end: End, fault: Fault | None) -> None:
                if end is not End.COMPLETE:
                    exchange.fault = fault

            response.stream = Body(response.stream, read, limit=self._max_bytes)
        elif content_type.startswith("text/event-stream"):

            def streamed(end: End, fault: Fault | None) -> None:
                # The SDK closes the stream once it has the response, so one that ends has none.
                if end is not End.CLOSED:
                    exchange.fault = fault or faults.fault("CONNECTION_LOST", "the stream ended without the response")

            misdirected = Misdirected(exchange.request_id or 0, self._max_bytes)
            response.stream = Body(response.stream, streamed, check=misdirected.check)
        else:
            exchange.fault = faults.fault("INVALID_RESPONSE", f"its content type is {content_type[:100]!r}")

    async def _refused(
        self, request: httpx2.Request, response: httpx2.Response, exchange: Exchange | None
    ) -> httpx2.Response:
        body = await _beginning(response)
        fault = faults.of_status(
            response.status_code, response.headers, body, session=MCP_SESSION_ID in request.headers
        )
        said = _error_message(response, body) if fault.code == FaultCode.HTTP_ERROR else None
        _note(exchange, fault)
        if exchange is not None and exchange.awaits_result:
            # A JSON-RPC error with an id is about that request; without one it may be about the session.
            names_no_request = said is None or said.id is None
            refused = fault.code == FaultCode.HTTP_ERROR and response.status_code == 400 and names_no_request
            exchange.unknown_session = refused and MCP_SESSION_ID in request.headers
            if exchange.unknown_session and exchange.method == "ping":
                fault = exchange.fault = faults.fault("SESSION_LOST", "HTTP 400", **fault.details)
            elif said is not None:
                exchange.fault = None
        unheard = self._is_vital(exchange) and (self._get_stream is None or response.status_code in GATEWAYS)
        if fault.code == FaultCode.SESSION_LOST or unheard:
            self._lose(fault)
        headers = {name: value for name, value in response.headers.items() if name in ("content-type", "retry-after")}
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    async def _open_stream(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        watched = self._get_stream
        if watched is None:
            return await super().send(request, **options)
        await watched.pace.wait()
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as exc:
            watched.failed(faults.of_exception(exc))
            raise
        except UpstreamError as exc:
            watched.failed(exc.fault)
            raise httpx2.ConnectError(exc.message, request=request) from exc
        status, session = response.status_code, MCP_SESSION_ID in request.headers
        if status >= 400:
            watched.refused(faults.of_status(status, response.headers, b"", session=session), status)
        elif response.headers.get("content-type", "").startswith("text/event-stream"):
            watched.opened()
            response.stream = Body(response.stream, watched.ended, check=decoded(response))
        elif response.next_request is None:
            watched.refused(faults.fault("INVALID_RESPONSE", "the GET stream is no event stream"), status)
        return response


def _note(exchange: Exchange | None, fault: Fault | None) -> None:
    if exchange is not None:
        exchange.fault = fault
        exchange.settle(fault.message if fault else None)


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _error_message(response: httpx2.Response, body: bytes) -> JSONRPCError | None:
    if not response.headers.get("content-type", "").lower().startswith("application/json"):
        return None
    try:
        message = read(body)
    except BadMessage:
        return None
    return message if isinstance(message, JSONRPCError) else None


async def _beginning(response: httpx2.Response) -> bytes:
    body = bytearray()
    try:
        with anyio.move_on_after(ACKNOWLEDGE_LIMIT_S):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) >= ERROR_BODY_BYTES:
                    break
    except httpx2.TransportError:
        pass  # show what arrived until then
    finally:
        await response.aclose()
    return bytes(body)
