"""A span and a duration for each request of a host, in the trace that the host names."""

import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from hubbubd.downstream.hosts.host import HostRequest
from hubbubd.telemetry import mcp, metrics
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.trace import CURRENT_TRACE, Attributes, Span, SpanKind, Trace, trace_of_params
from hubbubd.telemetry.tracer import Tracer

CANCELLED: Final = "CANCELLED"
"""`error.type` of a request that its host has cancelled."""


@dataclass(slots=True)
class RequestOutcome:
    """Why a request failed: an `error.type`; empty if it did not. A request for which nothing is set was cancelled."""

    error: str = CANCELLED


class RequestInstrumentation:
    """What is measured of the requests of hosts."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._meter = meter

    def measure(self, request: HostRequest) -> AbstractContextManager[RequestOutcome]:
        """Record span and duration of a request for the block, which sets how the request ended in the outcome.

        The trace of the request is the current one from now on.
        """
        parent = trace_of_params(request.params) or CURRENT_TRACE.get()
        if self._tracer.on or self._meter.on:
            return self._measure_in_block(request, parent)
        CURRENT_TRACE.set(parent)
        return nullcontext(RequestOutcome())

    @contextmanager
    def _measure_in_block(self, request: HostRequest, parent: Trace | None) -> Generator[RequestOutcome]:
        """Record what is measured of a request for the block; `parent` is the span above its own."""
        name, attributes = mcp.describe_request(request.method, request.params)
        trace = self._tracer.begin(parent, name, SpanKind.SERVER)
        CURRENT_TRACE.set(trace)
        begun, start, outcome = time.perf_counter(), self._tracer.now(), RequestOutcome()
        try:
            yield outcome
        finally:
            self._record_duration(request, time.perf_counter() - begun, outcome)
            if trace is not None and self._tracer.on:
                about = {
                    **attributes,
                    **_connection_attributes(request),
                    "hubbub.principal": mcp.bounded_text(request.host.principal.name),
                    "jsonrpc.request.id": mcp.bounded_text(request.id),
                }
                span = Span(name=name, kind=SpanKind.SERVER, trace=trace, start=start, attributes=about)
                self._tracer.export_span(span, self._tracer.now(), error=outcome.error or None)

    def _record_duration(self, request: HostRequest, seconds: float, outcome: RequestOutcome) -> None:
        """Record how long a request took, if there are metrics."""
        if not self._meter.on:
            return
        about = mcp.metric_attributes(request.method, request.params) | _connection_attributes(request)
        if outcome.error:
            about["error.type"] = outcome.error
        self._meter.record(metrics.SERVED, seconds, about)


def _connection_attributes(request: HostRequest) -> Attributes:
    """Return the attributes of a host's transport and revision."""
    return mcp.connection_attributes("stdio" if request.host.via == "stdio" else "http", request.host.revision)
