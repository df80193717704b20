"""Metrics by OpenTelemetry's SDK. A thread of the SDK pushes them over OTLP; Prometheus pulls them."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import structlog
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from hubbub_shared import __version__
from hubbubd.telemetry.meter import Meter, Reading
from hubbubd.telemetry.metrics import METRICS, Metric, Shape
from hubbubd.telemetry.sdk.tracer import CLOSE_MS, SERVICE, limit_exporter_logs, resource
from hubbubd.telemetry.trace import Attributes, Value

log = structlog.get_logger(__name__)

OTHER: Final = "_OTHER"
"""The value that stands for all further values of an attribute beyond MAX_VALUES (OTel's semantic conventions)."""

MAX_VALUES: Final = 100
"""Bound of an attribute's cardinality: methods, tools and errors are named by callers and servers."""


class SdkMeter(Meter):
    """A meter that pushes over OTLP, answers Prometheus, or both."""

    on = True

    def __init__(self, readers: Sequence[MetricReader], registry: CollectorRegistry) -> None:
        """Create the histograms; a counter is created with its first count, others when they are observed."""
        self._registry = registry
        self._provider = MeterProvider(
            readers, resource(), exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False
        )
        self._meter = self._provider.get_meter(SERVICE, __version__)
        self._known_values: dict[str, set[Value]] = {}  # by name of the attribute
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._reads: dict[str, Callable[[], Iterable[Reading]]] = {}  # the callbacks of `observe` by metric
        for each in METRICS:
            if each.shape is Shape.HISTOGRAM:
                self._histograms[each.name] = self._meter.create_histogram(
                    each.name, each.unit, each.about, explicit_bucket_boundaries_advisory=each.buckets
                )

    @classmethod
    def open(cls, exporter: str | None, *, scraped: bool) -> "SdkMeter":
        """Return a meter with this push exporter, if any, and a Prometheus reader if `scraped`."""
        limit_exporter_logs()
        registry = CollectorRegistry()
        readers: list[MetricReader] = []
        if exporter is not None:
            out = ConsoleMetricExporter(out=sys.stderr) if exporter == "console" else OTLPMetricExporter()
            readers.append(PeriodicExportingMetricReader(out))
        if scraped:
            readers.append(PrometheusMetricReader(scope_info_enabled=False, registry=registry))
        return cls(readers, registry)

    def count(self, metric: Metric, attributes: Attributes) -> None:
        """Add one to a counter."""
        counter = self._counters.get(metric.name)
        if counter is None:
            counter = self._counters[metric.name] = self._meter.create_counter(metric.name, metric.unit, metric.about)
        counter.add(1, self._limit_distinct_values(attributes))

    def record(self, metric: Metric, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram; a negative one counts as 0."""
        self._histograms[metric.name].record(max(value, 0.0), self._limit_distinct_values(attributes or {}))

    def observe(self, metric: Metric, read: Callable[[], Iterable[Reading]]) -> None:
        """Register a callback that reads a metric at collection. Called in other threads, it must not block.

        A later callback of a metric replaces the earlier one, as when a member of a fleet starts again.
        """
        was_registered, self._reads[metric.name] = metric.name in self._reads, read
        if was_registered:
            return

        def read_observations(_: CallbackOptions) -> Iterable[Observation]:
            """Return the readings of the metric's newest callback."""
            return [Observation(value, attributes) for value, attributes in self._reads[metric.name]()]

        create: Callable[..., Any] = (
            self._meter.create_observable_counter
            if metric.shape is Shape.COUNTER
            else self._meter.create_observable_gauge
        )
        create(metric.name, [read_observations], metric.unit, metric.about)

    def exposition(self) -> tuple[str, bytes]:
        """Return all metrics in Prometheus's text format, with the content type. Blocks while they are collected."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def close(self) -> None:
        """Flush what is buffered, for CLOSE_MS at most; a failure is logged. Blocks."""
        try:
            self._provider.shutdown(CLOSE_MS)
        except Exception as exc:  # noqa: BLE001 - the SDK raises a bare Exception; it must not stop the shutdown
            log.warning("metrics not flushed", error=str(exc))

    def _limit_distinct_values(self, attributes: Attributes) -> Attributes:
        """Return attributes in which a value is OTHER if its attribute has had MAX_VALUES different ones already."""
        return {name: self._bound_value(name, value) for name, value in attributes.items()}

    def _bound_value(self, name: str, value: Value) -> Value:
        """Return an attribute's value, or OTHER if it is new and MAX_VALUES are known already."""
        known_values = self._known_values.setdefault(name, set())
        if value not in known_values:
            if len(known_values) >= MAX_VALUES:
                return OTHER
            known_values.add(value)
        return value
