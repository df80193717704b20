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
from hubbubd.telemetry.trace import Attributes, Span, SpanKind, with_place
from hubbubd.telemetry.tracer import Tracer
from hubbubd.upstream.messages.exchange import SPAN_SCOPE, SpanScope

CANCELLED = "cancelled"
"""`error.type` of a request whose caller stopped waiting."""


Send = Callable[[dict[str, Any] | None], Awaitable[dict[str, Any]]]
"""Sends a request with these params and returns its result."""


class LinkInstrumentation:
    """The instrumentation of one connection. `version` is the protocol revision, once negotiated."""

    def __init__(self, config: ServerConfig, tracer: Tracer, meter: Meter) -> None:
        self.on = tracer.on or meter.on
        self.version: str | None = None
        self._tracer = tracer
        self._meter = meter
        self._transport = config.transport
        self._always: Attributes = {"hubbub.server": config.name, **_network(config)} if tracer.on else {}

    @contextmanager
    def attempt(self) -> Generator[None]:
        """Export the block as the span of an attempt to connect."""
        trace = self._tracer.begin(None, "connect", SpanKind.INTERNAL) if self._tracer.on else None
        if trace is None:
            yield
            return
        span = Span(name="connect", kind=SpanKind.INTERNAL, trace=trace, start=self._tracer.now())
        error: str | None = CANCELLED
        before = SPAN_SCOPE.set(SpanScope(trace))
        try:
            yield
            error = None
        except Exception as exc:
            error = _type_of(exc)
            raise
        finally:
            SPAN_SCOPE.reset(before)
            self._tracer.tell(span, self._tracer.now(), attributes=self._about(), error=error)

    async def exchange(
        self, method: str, params: dict[str, Any] | None, span: Span | None, send: Send
    ) -> dict[str, Any]:
        """Send a request with its span in `_meta`, and record span and duration. Raises what `send` raises."""
        span = span or self._span(method, params)
        if self._meter.on:
            send = self._timed(method, params, send)
        return await send(params) if span is None else await self._traced(params, span, send)

    def _timed(self, method: str, params: dict[str, Any] | None, send: Send) -> Send:
        async def timed(told: dict[str, Any] | None) -> dict[str, Any]:
            begun, error = time.perf_counter(), CANCELLED
            answered: Attributes = {}
            try:
                result = await send(told)
                error = mcp.TOOL_ERROR if result.get("isError") is True else ""
            except Exception as exc:
                error = _type_of(exc)
                if isinstance(exc, PeerError):
                    answered["rpc.response.status_code"] = error
                raise
            else:
                return result
            finally:
                about = mcp.operation(method, params) | mcp.connection(self._transport, self.version) | answered
                if error:
                    about["error.type"] = error
                self._meter.record(metrics.OPERATION, time.perf_counter() - begun, about)

        return timed

    async def _traced(self, params: dict[str, Any] | None, span: Span, send: Send) -> dict[str, Any]:
        place = SpanScope(span.trace)
        before = SPAN_SCOPE.set(place)
        error: str | None = CANCELLED
        about: Attributes = {}
        try:
            result = await send(with_place(params, span.trace))
            error = mcp.TOOL_ERROR if result.get("isError") is True else None
        except Exception as exc:
            error = _type_of(exc)
            if isinstance(exc, PeerError):
                about["rpc.response.status_code"] = error
            raise
        else:
            return result
        finally:
            SPAN_SCOPE.reset(before)
            if span.trace.own:
                about = {**self._about(), **_about(place), **about}
                self._tracer.tell(span, self._tracer.now(), attributes=about, error=error)

    def _span(self, method: str, params: dict[str, Any] | None) -> Span | None:
        if not self._tracer.on:
            return None
        name, attributes = mcp.about(method, params)
        around = SPAN_SCOPE.get()
        trace = self._tracer.begin(around.trace if around else None, name, SpanKind.CLIENT)
        start = self._tracer.now()
        return trace and Span(name=name, kind=SpanKind.CLIENT, trace=trace, start=start, attributes=attributes)

    def _about(self) -> Attributes:
        return self._always if self.version is None else {**self._always, "mcp.protocol.version": self.version}


def _network(config: ServerConfig) -> Attributes:
    if config.url is None:
        return {"network.transport": "pipe"}
    network: Attributes = {"network.transport": "tcp", "network.protocol.name": "http"}
    with suppress(ValueError):  # an invalid url is reported by the connection itself
        url = urlsplit(config.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        network |= {"server.address": url.hostname or "", "server.port": port}
    return network


def _about(place: SpanScope) -> Attributes:
    exchange, known = place.exchange, Attributes()
    if exchange is not None and exchange.request_id is not None:
        known["jsonrpc.request.id"] = str(exchange.request_id)
    if exchange is not None and exchange.session_id is not None:
        known["mcp.session.id"] = mcp.text(exchange.session_id)
    return known


def _type_of(exc: Exception) -> str:
    if isinstance(exc, PeerError):
        return str(exc.code)
    return exc.fault.code if isinstance(exc, UpstreamError) else type(exc).__name__
