"""Tracing by OpenTelemetry's SDK. Spans arrive here when they have ended; a thread of the SDK's own sends them.

The SDK starts and ends each span at once, under ids and times that were chosen long before.
"""

import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from hubbubd import __version__
from hubbubd.redaction import REDACTION
from hubbubd.telemetry.trace import Event, Kind, Span, Trace, Value
from hubbubd.telemetry.tracer import Tracer

SERVICE: Final = "hubbub"

CLOSE_MS: Final = 3000
"""Longest wait for a collector when the hub ends."""

COMPLAIN_EVERY_S: Final = 300.0
"""How often the log says that the collector takes nothing."""

_COMPLAINING: Final = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)
_KINDS: Final = {Kind.INTERNAL: SpanKind.INTERNAL, Kind.CLIENT: SpanKind.CLIENT, Kind.SERVER: SpanKind.SERVER}
_NS: Final = 1_000_000_000


class Closing(Protocol):
    """A part of the SDK's that can be shut down."""

    def shutdown(self) -> None:
        """Takes nothing more."""
        ...


class _ChosenIds(IdGenerator):
    """Gives the ids of the span being told. All spans are told on the hub's one thread."""

    chosen: Trace

    def generate_span_id(self) -> int:
        return int(self.chosen.span_id, 16)

    def generate_trace_id(self) -> int:
        return int(self.chosen.trace_id, 16)


class SdkTracer(Tracer):
    """Samples as OTEL_TRACES_SAMPLER says: once, when a span's place is made."""

    on = True

    def __init__(self, exporter: SpanExporter, now: Callable[[], float], *, content: bool = False) -> None:
        self._now = now
        self._exporter = exporter
        self.content = content
        self._ids = _ChosenIds()
        # The process's end is the hub's own business.
        self._provider = TracerProvider(resource=resource(), id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(SERVICE, __version__)

    @classmethod
    def open(cls, exporter: str, now: Callable[[], float], *, content: bool = False) -> "SdkTracer":
        """One that sends over OTLP, or writes to stderr for `console`."""
        quieten()
        out = ConsoleSpanExporter(out=sys.stderr) if exporter == "console" else OTLPSpanExporter()
        return cls(out, now, content=content)

    def now(self) -> float:
        """As `Tracer`."""
        return self._now()

    def begin(self, parent: Trace | None, name: str = "", kind: Kind = Kind.INTERNAL) -> Trace:
        """As `Tracer`. The sampler decides here, for good, and what is below a span of ours is told with it."""
        trace_id = parent.trace_id if parent else f"{random.getrandbits(128) or 1:032x}"
        sampled = parent is not None and parent.own
        if not sampled:
            number = int(trace_id, 16)
            verdict = self._provider.sampler.should_sample(context_of(parent), number, name, _KINDS[kind], None, None)
            sampled = verdict.decision.is_sampled()
        return Trace(
            trace_id=trace_id,
            span_id=f"{random.getrandbits(64) or 1:016x}",
            parent_id=parent.span_id if parent else None,
            sampled=sampled,
            state=parent.state if parent else "",
            own=sampled,
        )

    def tell(
        self,
        span: Span,
        end: float,
        *,
        attributes: Mapping[str, Value] | None = None,
        error: str | None = None,
        events: Iterable[Event] = (),
        links: Iterable[Trace] = (),
    ) -> None:
        """As `Tracer`. Nothing of it holds a secret that the hub knows."""
        trace = span.trace
        if not trace.own:
            return
        self._ids.chosen = trace
        parent = trace.parent_id and Trace(trace_id=trace.trace_id, span_id=trace.parent_id, state=trace.state)
        told = self._tracer.start_span(
            REDACTION.text(span.name),
            context_of(parent or None),
            _KINDS[span.kind],
            REDACTION.value({**span.attributes, **(attributes or {}), **({"error.type": error} if error else {})}),
            [Link(_span_context(link)) for link in links],
            round(span.start * _NS),
        )
        for event in events:
            told.add_event(event.name, REDACTION.value(event.attributes), round(event.at * _NS))
        if error:
            told.set_status(Status(StatusCode.ERROR))
        told.end(round(max(end, span.start) * _NS))

    def close(self) -> None:
        """As `Tracer`."""
        shut_down(self._provider, self._exporter)


def shut_down(provider: Closing, exporter: Closing) -> None:
    """Sends what is left; after CLOSE_MS the exporter is made to give up, which the provider by itself does not do."""
    timer = threading.Timer(CLOSE_MS / 1000, exporter.shutdown)
    timer.start()
    try:
        provider.shutdown()
    finally:
        timer.cancel()


def resource() -> Resource:
    """Who tells: OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, which is `hubbub` when nobody says otherwise."""
    named = Resource.create({"service.version": __version__})
    return named if os.environ.get("OTEL_SERVICE_NAME") or _names_service() else named.merge(_HUBBUB)


_HUBBUB: Final = Resource({SERVICE_NAME: SERVICE})


def _names_service() -> bool:
    return any(
        pair.partition("=")[0].strip() == SERVICE_NAME
        for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    )


class _NowAndThen(logging.Filter):
    """Lets a line of the exporters through every COMPLAIN_EVERY_S."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or (now := time.monotonic()) < self._next:
            return False
        self._next = now + COMPLAIN_EVERY_S
        return True


_complaints: Final = _NowAndThen()


def quieten() -> None:
    """Has exporters complain now and then, not about each batch that nobody takes."""
    for name in _COMPLAINING:
        logging.getLogger(name).addFilter(_complaints)


def context_of(parent: Trace | None) -> Context:
    """A context of the SDK's with this parent alone, whatever is around."""
    return set_span_in_context(NonRecordingSpan(_span_context(parent)), Context()) if parent else Context()


def _span_context(trace: Trace) -> SpanContext:
    return SpanContext(
        int(trace.trace_id, 16),
        int(trace.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if trace.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([trace.state]) if trace.state else None,
    )
