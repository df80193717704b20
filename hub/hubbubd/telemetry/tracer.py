"""Who makes places for spans and takes spans that have ended. This one does neither: tracing is off."""

import time
from collections.abc import Iterable, Mapping

from hubbubd.telemetry.trace import Event, Kind, Span, Trace, Value


class Tracer:
    """Passes on the traces of others, and costs nothing else. `content` is whether spans may hold what people say."""

    on: bool = False
    content: bool = False

    def now(self) -> float:
        """The time of spans, in seconds since the epoch."""
        return time.time()

    def begin(self, parent: Trace | None, name: str = "", kind: Kind = Kind.INTERNAL) -> Trace | None:
        """The place of a new span below another one, or at the root of a new trace."""
        return parent

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
        """Takes a span that has ended, at `end` seconds since the epoch; `error` is why it failed (`error.type`)."""

    def close(self) -> None:
        """Hands over what it has; takes a bounded time, in which it blocks."""


OFF = Tracer()
