"""A tracer that notes what it gets, and knows what must hold of it."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hubbubd.telemetry.trace import Span, SpanEvent, SpanKind, Trace, Value
from hubbubd.telemetry.tracer import Tracer

AT_RISK_S = 0.1
"""What a killed hub has told for so long may not be in its records yet: the next one may tell it again, or not."""


@dataclass(frozen=True)
class Told:
    """A span that has ended, with why it failed."""

    span: Span
    at: float
    error: str | None
    attributes: dict[str, Value]


class Noted(Tracer):
    """Outlives hubs, as a collector does. `now` is set by the test that runs the hub."""

    on = True

    def __init__(self) -> None:
        self.clock: Callable[[], float] = lambda: 0.0
        self.told: list[Told] = []
        self._numbers = itertools.count(1)
        self._dead = False
        self._at_risk: set[str] = set()

    def now(self) -> float:
        return self.clock()

    def begin(self, parent: Trace | None, name: str = "", kind: SpanKind = SpanKind.INTERNAL) -> Trace:
        number = next(self._numbers)
        trace_id = parent.trace_id if parent else f"{number:032x}"
        return Trace(
            trace_id=trace_id, span_id=f"{number:016x}", parent_id=parent.span_id if parent else None, own=True
        )

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
        if span.trace.own and not self._dead:
            self.told.append(Told(span, self.now(), error, {**span.attributes, **(attributes or {})}))

    def kill(self) -> None:
        """The hub is killed: what it tells while it goes is heard by nobody."""
        self._dead = True
        self._at_risk |= {told.span.trace.span_id for told in self.told if told.at >= self.now() - AT_RISK_S}

    def revive(self) -> None:
        """There is a hub again."""
        self._dead = False

    def ends(self) -> dict[str, str | None]:
        """Why each span failed, by name."""
        return {told.span.name: told.error for told in self.told}

    def check(self) -> None:
        """No span is exported twice, and every span that another one stands below is exported."""
        times = Counter(told.span.trace.span_id for told in self.told)
        names = {told.span.trace.span_id: told.span.name for told in self.told}
        assert not [names[each] for each, count in times.items() if count > 1 and each not in self._at_risk]
        missing = [told.span.name for told in self.told if told.span.trace.parent_id not in (None, *times)]
        assert not missing, f"nobody has told what these stand below: {missing}"
