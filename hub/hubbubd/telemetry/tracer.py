"""The tracing interface. `Tracer` itself is the no-op for when tracing is off; `sdk/tracer.py` implements it."""

import time
from collections.abc import Iterable, Mapping

from hubbubd.telemetry.trace import Span, SpanEvent, SpanKind, Trace, Value


class Tracer:
    """Propagates the traces of callers and exports nothing. `content` says whether spans may hold what people write."""

    on: bool = False
    content: bool = False

    def now(self) -> float:
        """Return the time for spans, in seconds since the epoch."""
        return time.time()

    def begin(self, parent: Trace | None, name: str = "", kind: SpanKind = SpanKind.INTERNAL) -> Trace | None:
        """Return the place (ids) of a new span below `parent`, or at the root of a new trace.

        This tracer, which exports nothing, returns `parent` or None instead, so that a caller's trace is passed on.
        """
        return parent

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
        """Export a span that ended at `end`, in seconds since the epoch; `error` is its `error.type`, if it failed."""

    def close(self) -> None:
        """Flush what is buffered. Blocks, for a bounded time."""


OFF = Tracer()
