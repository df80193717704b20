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
    """The `error.type` of a request, "" for success; without a value from the block the request was cancelled."""

    error: str = CANCELLED


class RequestInstrumentation:
    """Records spans and durations of the requests of hosts."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._meter = meter

    def measure(self, request: HostRequest) -> AbstractContextManager[RequestOutcome]:
        """Record span and duration of a request, which the block serves; the block sets the outcome's `error`.

        The request's trace becomes the current one, and stays so after the block.
        """
        parent = trace_of_params(request.params) or CURRENT_TRACE.get()
        if self._tracer.on or self._meter.on:
            return self._measure_in_block(request, parent)
        CURRENT_TRACE.set(parent)
        return nullcontext(RequestOutcome())

    @contextmanager
    def _measure_in_block(self, request: HostRequest, parent: Trace | None) -> Generator[RequestOutcome]:
        """Record span and duration of the request that the block serves; `parent` is the parent of its span."""
        name, attributes = mcp.describe_request(request.method, request.params)
        trace = self._tracer.begin(parent, name, SpanKind.SERVER)
        CURRENT_TRACE.set(trace)
        started_s, start, outcome = time.perf_counter(), self._tracer.now(), RequestOutcome()
        try:
            yield outcome
        finally:
            self._record_duration(request, time.perf_counter() - started_s, outcome)
            if trace is not None and self._tracer.on:
                span_attributes = {
                    **attributes,
                    **_connection_attributes(request),
                    "hubbub.principal": mcp.bounded_text(request.host.principal.name),
                    "jsonrpc.request.id": mcp.bounded_text(request.id),
                }
                span = Span(name=name, kind=SpanKind.SERVER, trace=trace, start=start, attributes=span_attributes)
                self._tracer.export_span(span, self._tracer.now(), error=outcome.error or None)

    def _record_duration(self, request: HostRequest, seconds: float, outcome: RequestOutcome) -> None:
        """Record how long a request took, if metrics are on."""
        if not self._meter.on:
            return
        attributes = mcp.metric_attributes(request.method, request.params) | _connection_attributes(request)
        if outcome.error:
            attributes["error.type"] = outcome.error
        self._meter.record(metrics.SERVED, seconds, attributes)


def _connection_attributes(request: HostRequest) -> Attributes:
    """Return the attributes of a host's transport and revision."""
    return mcp.connection_attributes("stdio" if request.host.via == "stdio" else "http", request.host.revision)
