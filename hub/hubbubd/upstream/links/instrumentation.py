"""Spans and durations of a connection: of the attempt to connect, and of each request sent.

Not of what lasts as long as the connection (subscriptions), nor of keep-alives (pings).
"""

import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from hubbubd.config import ServerConfig
from hubbubd.errors import PeerError, UpstreamError
from hubbubd.telemetry import mcp, metrics
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.trace import Attributes, Span, SpanKind, inject_trace
from hubbubd.telemetry.tracer import Tracer
from hubbubd.upstream.messages.exchange import SPAN_SCOPE, OutgoingMessage, SpanScope

CANCELLED = "cancelled"
"""`error.type` of a request whose caller stopped waiting."""


Send = Callable[[dict[str, Any] | None], Awaitable[dict[str, Any]]]
"""Sends a request with these params and returns its result."""


class LinkInstrumentation:
    """The instrumentation of one connection.

    `on` says whether anything is traced or measured. `version` is the protocol revision, None until it is negotiated.
    """

    def __init__(self, config: ServerConfig, tracer: Tracer, meter: Meter) -> None:
        self.on = tracer.on or meter.on
        self.version: str | None = None
        self._tracer = tracer
        self._meter = meter
        self._transport = config.transport
        self._fixed_attributes: Attributes = (
            {"hubbub.server": config.name, **_network_attributes(config)} if tracer.on else {}
        )

    @contextmanager
    def trace_connect(self) -> Generator[None]:
        """Export the block as the span of an attempt to connect; the spans of requests in it are below that span."""
        trace = self._tracer.begin(None, "connect", SpanKind.INTERNAL) if self._tracer.on else None
        if trace is None:
            yield
            return
        span = Span(name="connect", kind=SpanKind.INTERNAL, trace=trace, start=self._tracer.now())
        error: str | None = CANCELLED
        previous_scope = SPAN_SCOPE.set(SpanScope(trace))
        try:
            yield
            error = None
        except Exception as exc:
            error = _error_type(exc)
            raise
        finally:
            SPAN_SCOPE.reset(previous_scope)
            self._tracer.export_span(span, self._tracer.now(), attributes=self._connection_attributes(), error=error)

    async def send_instrumented(
        self, method: str, params: dict[str, Any] | None, span: Span | None, send: Send
    ) -> dict[str, Any]:
        """Send a request with its span in `_meta`, and record span and duration. Raises what `send` raises."""
        span = span or self._begin_span(method, params)
        if self._meter.on:
            send = self._with_duration(method, params, send)
        return await send(params) if span is None else await self._send_in_span(params, span, send)

    def _with_duration(self, method: str, params: dict[str, Any] | None, send: Send) -> Send:
        """Return `send` extended so that the duration of the request is recorded."""

        async def send_timed(sent_params: dict[str, Any] | None) -> dict[str, Any]:
            """Send the request as `send` does, and record how long it took and how it ended."""
            started_at = time.perf_counter()
            error = CANCELLED
            response_attributes: Attributes = {}
            try:
                result = await send(sent_params)
                error = mcp.TOOL_ERROR if result.get("isError") is True else ""
            except Exception as exc:
                error = _error_type(exc)
                if isinstance(exc, PeerError):
                    response_attributes["rpc.response.status_code"] = error
                raise
            else:
                return result
            finally:
                attributes = (
                    mcp.metric_attributes(method, params)
                    | mcp.connection_attributes(self._transport, self.version)
                    | response_attributes
                )
                if error:
                    attributes["error.type"] = error
                self._meter.record(metrics.OPERATION, time.perf_counter() - started_at, attributes)

        return send_timed

    async def _send_in_span(self, params: dict[str, Any] | None, span: Span, send: Send) -> dict[str, Any]:
        """Send a request with the span's ids in its `_meta`, and export the span once the request has ended."""
        scope = SpanScope(span.trace)
        previous_scope = SPAN_SCOPE.set(scope)
        error: str | None = CANCELLED
        attributes: Attributes = {}
        try:
            result = await send(inject_trace(params, span.trace))
            error = mcp.TOOL_ERROR if result.get("isError") is True else None
        except Exception as exc:
            error = _error_type(exc)
            if isinstance(exc, PeerError):
                attributes["rpc.response.status_code"] = error
            raise
        else:
            return result
        finally:
            SPAN_SCOPE.reset(previous_scope)
            if span.trace.own:
                attributes = {**self._connection_attributes(), **_outgoing_attributes(scope.outgoing), **attributes}
                self._tracer.export_span(span, self._tracer.now(), attributes=attributes, error=error)

    def _begin_span(self, method: str, params: dict[str, Any] | None) -> Span | None:
        """Begin a span below the one in SPAN_SCOPE; return None for a request that is not traced."""
        if not self._tracer.on:
            return None
        name, attributes = mcp.describe_request(method, params)
        outer_scope = SPAN_SCOPE.get()
        trace = self._tracer.begin(outer_scope.trace if outer_scope else None, name, SpanKind.CLIENT)
        start = self._tracer.now()
        return trace and Span(name=name, kind=SpanKind.CLIENT, trace=trace, start=start, attributes=attributes)

    def _connection_attributes(self) -> Attributes:
        """Return the attributes that all spans of the connection have."""
        if self.version is None:
            return self._fixed_attributes
        return {**self._fixed_attributes, "mcp.protocol.version": self.version}


def _network_attributes(config: ServerConfig) -> Attributes:
    """Return the attributes of where the server is: a pipe, or host and port."""
    if config.url is None:
        return {"network.transport": "pipe"}
    network: Attributes = {"network.transport": "tcp", "network.protocol.name": "http"}
    with suppress(ValueError):  # an invalid url is reported by the connection itself
        url = urlsplit(config.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        network |= {"server.address": url.hostname or "", "server.port": port}
    return network


def _outgoing_attributes(outgoing: OutgoingMessage | None) -> Attributes:
    """Return the attributes of the message that was sent: the ids of its request and of the session."""
    attributes: Attributes = {}
    if outgoing is not None and outgoing.request_id is not None:
        attributes["jsonrpc.request.id"] = str(outgoing.request_id)
    if outgoing is not None and outgoing.session_id is not None:
        attributes["mcp.session.id"] = mcp.bounded_text(outgoing.session_id)
    return attributes


def _error_type(exc: Exception) -> str:
    """Return the `error.type` of an exception: the code of an error or a fault, else the name of its class."""
    if isinstance(exc, PeerError):
        return str(exc.code)
    return exc.fault.code if isinstance(exc, UpstreamError) else type(exc).__name__
