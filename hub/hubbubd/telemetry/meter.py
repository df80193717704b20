"""The metrics interface. `Meter` itself is the no-op for when metrics are off; `sdk/metrics.py` implements it."""

from collections.abc import Callable, Iterable

from hubbubd.telemetry.metrics import Metric
from hubbubd.telemetry.trace import Attributes

Reading = tuple[float, Attributes]
"""A value and its attributes."""


class Meter:
    """Takes no measurements. While `on` is false, callers skip work that they would only do to measure."""

    on: bool = False

    def count(self, metric: Metric, attributes: Attributes) -> None:
        """Add one to a counter."""

    def record(self, metric: Metric, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram."""

    def observe(self, metric: Metric, read: Callable[[], Iterable[Reading]]) -> None:
        """Register a callback that reads a metric at collection. Called in other threads, it must not block."""

    def observe_number(self, metric: Metric, read: Callable[[], float | None]) -> None:
        """Register a callback that reads a metric without attributes, as `observe`; None is no reading."""
        self.observe(metric, lambda: () if (value := read()) is None else ((value, {}),))

    def exposition(self) -> tuple[str, bytes]:
        """Return all metrics in Prometheus's text format, with the content type. Blocks while they are collected."""
        return "text/plain; charset=utf-8", b""

    def close(self) -> None:
        """Flush what is buffered. Blocks, for a bounded time."""


OFF = Meter()
