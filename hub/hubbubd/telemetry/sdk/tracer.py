"""Tracing by OpenTelemetry's SDK. Spans arrive here when they have ended; a thread of the SDK exports them.

The SDK's tracer is bypassed (sampling again, locking, copying): finished spans go straight to its batch processor, with
ids and times that were chosen when they began.
"""

import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event as SdkEvent
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace import SpanKind as SdkKind
from opentelemetry.util.types import Attributes as SdkAttributes

from hubbub_shared import __version__
from hubbubd.redaction import REDACTION
from hubbubd.telemetry.sdk.otlp import Exporter
from hubbubd.telemetry.trace import Attributes, Span, SpanEvent, SpanKind, Trace, Value
from hubbubd.telemetry.tracer import Tracer

SERVICE: Final = "hubbub"

CLOSE_MS: Final = 3000
"""The longest wait for a collector at shutdown, in milliseconds."""

COMPLAIN_EVERY_S: Final = 300.0
"""The shortest interval between log lines about a failing collector, in seconds."""

_NOISY_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)
_KINDS: Final = {
    SpanKind.INTERNAL: SdkKind.INTERNAL,
    SpanKind.CLIENT: SdkKind.CLIENT,
    SpanKind.SERVER: SdkKind.SERVER,
}
_NS: Final = 1_000_000_000
"""Nanoseconds of a second; OpenTelemetry counts in them."""
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
_OK: Final = Status()
_FAILED: Final = Status(StatusCode.ERROR)


class SdkShutdown(Protocol):
    """Whatever of the SDK can be shut down."""

    def shutdown(self) -> None:
        """Flush and accept nothing more."""
        ...


class SdkTracer(Tracer):
    """A tracer over the SDK. Samples by OTEL_TRACES_SAMPLER: once, when a span's place is made."""

    on = True

    def __init__(self, exporter: SpanExporter, now: Callable[[], float], *, content: bool = False) -> None:
        """Start the SDK's thread of export. `now` returns seconds since the epoch, `content` is as in `Tracer`."""
        self._now = now
        self._exporter = exporter
        self.content = content
        # No atexit hook: `close` shuts it down.
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(exporter)
        self._provider.add_span_processor(self._processor)
        self._resource = resource()
        self._scope = InstrumentationScope(SERVICE, __version__)
        self._limits = SpanLimits()

    @classmethod
    def open(cls, exporter: str, now: Callable[[], float], *, content: bool = False) -> "SdkTracer":
        """Return a tracer that exports over OTLP, or writes to stderr for `console`."""
        limit_exporter_logs()
        out = ConsoleSpanExporter(out=sys.stderr) if exporter == "console" else Exporter()
        return cls(out, now, content=content)

    def now(self) -> float:
        """Return the time for spans, in seconds since the epoch."""
        return self._now()

    def begin(self, parent: Trace | None, name: str = "", kind: SpanKind = SpanKind.INTERNAL) -> Trace:
        """Return the place (ids) of a new span below `parent`, or at the root of a new trace.

        This decides whether the span is sampled, and so exported. Spans below a sampled span of the hub always are.
        """
        trace_id = parent.trace_id if parent else f"{random.getrandbits(128) or 1:032x}"
        sampled = parent is not None and parent.own
        if not sampled:
            sampled = self._is_sampled(parent, trace_id, name, kind)
        return Trace(
            trace_id=trace_id,
            span_id=f"{random.getrandbits(64) or 1:016x}",
            parent_id=parent.span_id if parent else None,
            sampled=sampled,
            state=parent.state if parent else "",
            own=sampled,
        )

    def _is_sampled(self, parent: Trace | None, trace_id: str, name: str, kind: SpanKind) -> bool:
        """Return whether the sampler that the environment configures samples a new span."""
        if self._provider.sampler is DEFAULT_ON:  # what it decides, at a tenth of the cost
            return parent is None or parent.sampled
        trace_number, context = int(trace_id, 16), as_sdk_context(parent)
        return self._provider.sampler.should_sample(context, trace_number, name, _KINDS[kind]).decision.is_sampled()

    def export_span(
        self,
        span: Span,
        end: float,
        *,
        attributes: Mapping[str, Value] | None = None,
        error: str | None = None,
        events: Iterable[SpanEvent] = (),
        links: Iterable[Trace] = (),
    ) -> None:
        """Queue a span that ended at `end`, in seconds since the epoch, for export; known secrets are redacted.

        `error` is its `error.type`, if it failed. A span that is not the hub's own, or not sampled, is dropped.
        """
        trace = span.trace
        if not trace.own:
            return
        name, event_values = span.name, [(event.name, event.attributes, event.at) for event in events]
        all_attributes = {**span.attributes, **(attributes or {}), **({"error.type": error} if error else {})}
        if REDACTION.may_contain_secret(
            _iterate_texts(name, all_attributes, *(event_attributes for _, event_attributes, _ in event_values))
        ):
            name, all_attributes, event_values = (
                REDACTION.redact_text(name),
                REDACTION.redact_value(all_attributes),
                REDACTION.redact_value(event_values),
            )
        finished = ReadableSpan(
            name,
            _span_context(trace, trace.span_id),
            parent=_span_context(trace, trace.parent_id) if trace.parent_id else None,
            kind=_KINDS[span.kind],
            attributes=self._limit_attributes(all_attributes),
            events=tuple(
                SdkEvent(event_name, event_attributes, round(at * _NS))
                for event_name, event_attributes, at in event_values
            ),
            links=tuple(Link(_span_context(link, link.span_id)) for link in links),
            status=_FAILED if error else _OK,
            start_time=round(span.start * _NS),
            end_time=round(max(end, span.start) * _NS),  # the clock may have been set back meanwhile
            resource=self._resource,
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(finished)

    def _limit_attributes(self, attributes: Attributes) -> SdkAttributes:
        """Return attributes within the limits of OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, ..._VALUE_LENGTH_LIMIT and others."""
        max_count, max_chars = self._limits.max_span_attributes, self._limits.max_span_attribute_length
        if max_chars is None and (max_count is None or len(attributes) <= max_count):
            return attributes
        return BoundedAttributes(max_count, attributes, max_value_len=max_chars)

    def close(self) -> None:
        """Flush what is buffered, and end the exporter. Blocks, for a bounded time."""
        shut_down(self._provider, self._exporter)


def _iterate_texts(name: str, *attributes: Attributes) -> Iterator[str]:
    """Yield the texts of a span that may hold a secret."""
    yield name
    for each in attributes:
        yield from (value for value in each.values() if isinstance(value, str))


def shut_down(provider: SdkShutdown, exporter: SdkShutdown) -> None:
    """Flush and end a provider, in CLOSE_MS at most.

    A provider waits for its exporter without a limit, so the exporter is shut down once the time is over.
    """
    timer = threading.Timer(CLOSE_MS / 1000, exporter.shutdown)
    timer.start()
    try:
        provider.shutdown()
    finally:
        timer.cancel()


def resource() -> Resource:
    """Return the OTel resource that the environment describes; the service is named `hubbub` if nothing names it."""
    from_environment = Resource.create({"service.version": __version__})
    return (
        from_environment
        if os.environ.get("OTEL_SERVICE_NAME") or _is_service_named()
        else from_environment.merge(_DEFAULT_NAME)
    )


_DEFAULT_NAME: Final = Resource({SERVICE_NAME: SERVICE})


def _is_service_named() -> bool:
    """Return whether OTEL_RESOURCE_ATTRIBUTES name the service."""
    return any(
        pair.partition("=")[0].strip() == SERVICE_NAME
        for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    )


class _RateLimitFilter(logging.Filter):
    """Rate limit for the exporters' log lines: one per COMPLAIN_EVERY_S, nothing below WARNING."""

    def __init__(self) -> None:
        super().__init__()
        self._next_allowed_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a log line may pass; the next one may after COMPLAIN_EVERY_S."""
        if record.levelno < logging.WARNING or (now := time.monotonic()) < self._next_allowed_at:
            return False
        self._next_allowed_at = now + COMPLAIN_EVERY_S
        return True


_rate_limit: Final = _RateLimitFilter()


def limit_exporter_logs() -> None:
    """Rate-limit the exporters' log lines, which come with each failed batch. Idempotent."""
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).addFilter(_rate_limit)


def as_sdk_context(parent: Trace | None) -> Context:
    """Return an SDK context with only this parent, independent of the current context."""
    return (
        set_span_in_context(NonRecordingSpan(_span_context(parent, parent.span_id)), Context()) if parent else Context()
    )


def _span_context(trace: Trace, span_id: str) -> SpanContext:
    """Return the SDK's context of a span in a trace."""
    return SpanContext(
        int(trace.trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=_SAMPLED if trace.sampled else _UNSAMPLED,
        trace_state=TraceState.from_header([trace.state]) if trace.state else None,
    )
