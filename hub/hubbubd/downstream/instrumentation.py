"""A span and a duration for each request of a host, in the trace that the host names."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from hubbubd.downstream.hosts.host import RequestToHost
from hubbubd.telemetry import mcp, metrics
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.trace import CURRENT_TRACE, Attributes, Span, SpanKind, of_params
from hubbubd.telemetry.tracer import Tracer

CANCELLED: Final = "CANCELLED"
"""`error.type` of a request that its host has cancelled."""


@dataclass(slots=True)
class RequestOutcome:
    """Why a request failed: an `error.type`; empty if it did not."""

    error: str = CANCELLED


class RequestInstrumentation:
    """What is measured of the requests of hosts."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._meter = meter

    @contextmanager
    def request(self, exchange: RequestToHost) -> Generator[RequestOutcome]:
        """Measure a request for the block, which says how it ended. What it causes is below it in the trace."""
        parent = of_params(exchange.params) or CURRENT_TRACE.get()
        if not self._tracer.on and not self._meter.on:
            CURRENT_TRACE.set(parent)
            yield RequestOutcome()
            return
        name, attributes = mcp.about(exchange.method, exchange.params)
        trace = self._tracer.begin(parent, name, SpanKind.SERVER)
        CURRENT_TRACE.set(trace)
        begun, start, outcome = time.perf_counter(), self._tracer.now(), RequestOutcome()
        try:
            yield outcome
        finally:
            self._record(exchange, time.perf_counter() - begun, outcome)
            if trace is not None and self._tracer.on:
                about = {**attributes, **_about(exchange), "jsonrpc.request.id": mcp.text(exchange.id)}
                span = Span(name=name, kind=SpanKind.SERVER, trace=trace, start=start, attributes=about)
                self._tracer.tell(span, self._tracer.now(), error=outcome.error or None)

    def _record(self, exchange: RequestToHost, seconds: float, outcome: RequestOutcome) -> None:
        if not self._meter.on:
            return
        about = mcp.operation(exchange.method, exchange.params) | _connection(exchange)
        if outcome.error:
            about["error.type"] = outcome.error
        self._meter.record(metrics.SERVED, seconds, about)


def _connection(exchange: RequestToHost) -> Attributes:
    return mcp.connection("stdio" if exchange.host.via == "stdio" else "http", exchange.host.revision)


def _about(exchange: RequestToHost) -> Attributes:
    return {**_connection(exchange), "hubbub.principal": mcp.text(exchange.host.principal.name)}
