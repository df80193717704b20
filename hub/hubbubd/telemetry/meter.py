"""Who takes measurements. This one takes none: nobody asked for metrics."""

from collections.abc import Callable, Iterable

from hubbubd.telemetry.metrics import Metric
from hubbubd.telemetry.trace import Attributes

Reading = tuple[float, Attributes]
"""A value, and what it is the value of."""


class Meter:
    """Costs nothing while it is off; what would be measured for it alone is then not measured."""

    on: bool = False

    def count(self, metric: Metric, attributes: Attributes) -> None:
        """Counts one more."""

    def record(self, metric: Metric, value: float, attributes: Attributes | None = None) -> None:
        """Adds a value to a histogram."""

    def observe(self, metric: Metric, read: Callable[[], Iterable[Reading]]) -> None:
        """Has a metric read whenever somebody collects. `read` is called in other threads, and must not wait."""

    def exposition(self) -> tuple[str, bytes]:
        """All metrics as Prometheus reads them: the content type, and the text. Blocks while they are collected."""
        return "text/plain; charset=utf-8", b""

    def close(self) -> None:
        """Hands over what it has; takes a bounded time, in which it blocks."""


OFF = Meter()
