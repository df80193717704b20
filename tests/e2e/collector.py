"""A receiver of telemetry, as an OpenTelemetry collector is one: gRPC on loopback, and everything is kept."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_pb_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_pb_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Told
from opentelemetry.proto.trace.v1.trace_pb2 import Status

LIMIT_S = 60
POLL_S = 0.02


@dataclass(frozen=True)
class Span:
    """A span as it arrived. Ids in hex, times in seconds."""

    service: str
    name: str
    kind: str
    trace_id: str
    id: str
    parent_id: str
    start: float
    end: float
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[str]
    failed: bool
    raw: str

    @property
    def happened(self) -> list[str]:
        return [name for name, _ in self.events]


@dataclass(frozen=True)
class Line:
    """A log line as it arrived. Ids in hex, empty when it belongs to no trace."""

    service: str
    text: str
    level: str
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


class _Metrics(metrics_pb_grpc.MetricsServiceServicer):
    def __init__(self, collector: "Collector") -> None:
        self._collector = collector

    def Export(self, request: Any, context: Any) -> metrics_pb.ExportMetricsServiceResponse:  # noqa: N802
        for resource in request.resource_metrics:
            assert _values(resource.resource.attributes)["service.name"] == "hubbub"
            for scope in resource.scope_metrics:
                self._collector.metrics |= {metric.name: metric for metric in scope.metrics}
        return metrics_pb.ExportMetricsServiceResponse()


class _Logs(logs_pb_grpc.LogsServiceServicer):
    def __init__(self, collector: "Collector") -> None:
        self._collector = collector

    def Export(self, request: Any, context: Any) -> logs_pb.ExportLogsServiceResponse:  # noqa: N802
        for resource in request.resource_logs:
            service = _values(resource.resource.attributes)["service.name"]
            for scope in resource.scope_logs:
                self._collector.logs += [_line(service, record) for record in scope.log_records]
        return logs_pb.ExportLogsServiceResponse()


class Collector(pb_grpc.TraceServiceServicer):
    """`spans` and `logs` have what arrived so far, in the order in which it did; `metrics` has the newest of each."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.spans: list[Span] = []
        self.logs: list[Line] = []
        self.metrics: dict[str, Any] = {}

    def Export(self, request: pb.ExportTraceServiceRequest, context: Any) -> pb.ExportTraceServiceResponse:  # noqa: N802
        for resource in request.resource_spans:
            service = _values(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [_span(service, told) for told in scope.spans]
        return pb.ExportTraceServiceResponse()

    async def has(self, wanted: Callable[["Collector"], Any]) -> Any:
        """What is wanted of all this, once there is something."""
        with anyio.fail_after(LIMIT_S):
            while not (found := wanted(self)):
                await anyio.sleep(POLL_S)
        return found

    async def until(self, wanted: Callable[[list[Span]], bool]) -> list[Span]:
        """The spans, once they are as wanted."""
        try:
            with anyio.fail_after(LIMIT_S):
                while not wanted(self.spans):
                    await anyio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError("\n".join(tree(self.spans))) from None
        return list(self.spans)

    async def trace(self, trace_id: str, *names: str) -> "TraceOf":
        """A trace, once spans of these names are there and each parent is."""
        spans = await self.until(lambda spans: _whole([s for s in spans if s.trace_id == trace_id], names))
        return TraceOf([span for span in spans if span.trace_id == trace_id])


class TraceOf:
    """The spans of one trace."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans

    def all(self, name: str) -> list[Span]:
        return sorted((span for span in self.spans if span.name == name), key=lambda s: s.start)

    def one(self, name: str) -> Span:
        (found,) = self.all(name)
        return found

    def above(self, span: Span) -> list[str]:
        """The names from the root down to a span's parent."""
        parent = next((each for each in self.spans if each.id == span.parent_id), None)
        return [*self.above(parent), parent.name] if parent else []

    def require_sound(self) -> None:
        """Each span once, each parent there, one root."""
        ids = [span.id for span in self.spans]
        assert len(ids) == len(set(ids)), tree(self.spans)
        roots = [span for span in self.spans if span.parent_id not in ids]
        assert len(roots) == 1, tree(self.spans)
        assert not roots[0].parent_id, tree(self.spans)


def _whole(spans: list[Span], names: tuple[str, ...]) -> bool:
    ids, found = {span.id for span in spans}, [span.name for span in spans]
    return all(found.count(name) >= names.count(name) for name in names) and all(
        not span.parent_id or span.parent_id in ids for span in spans
    )


def tree(spans: list[Span], parent: str | None = None, depth: int = 0) -> list[str]:
    """Spans as indented lines, for people."""
    ids = {span.id for span in spans}
    below = [s for s in spans if (s.parent_id not in ids if parent is None else s.parent_id == parent)]
    lines: list[str] = []
    for span in sorted(below, key=lambda s: s.start):
        lines.append(f"{'  ' * depth}{span.service}: {span.name} [{span.kind}] {(span.end - span.start) * 1000:.0f} ms")
        lines += [f"{'  ' * depth}    * {name}" for name in span.happened]
        lines += tree(spans, span.id, depth + 1)
    return lines


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    pb_grpc.add_TraceServiceServicer_to_server(collector, server)
    metrics_pb_grpc.add_MetricsServiceServicer_to_server(_Metrics(collector), server)
    logs_pb_grpc.add_LogsServiceServicer_to_server(_Logs(collector), server)
    port = server.add_insecure_port("127.0.0.1:0")
    collector.endpoint = f"http://127.0.0.1:{port}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


def _span(service: str, told: Told) -> Span:
    return Span(
        service=service,
        name=told.name,
        kind=Told.SpanKind.Name(told.kind).removeprefix("SPAN_KIND_"),
        trace_id=told.trace_id.hex(),
        id=told.span_id.hex(),
        parent_id=told.parent_span_id.hex(),
        start=told.start_time_unix_nano / 1e9,
        end=told.end_time_unix_nano / 1e9,
        attributes=_values(told.attributes),
        events=[(event.name, _values(event.attributes)) for event in told.events],
        links=[link.span_id.hex() for link in told.links],
        failed=told.status.code == Status.STATUS_CODE_ERROR,
        raw=str(told),
    )


def _line(service: str, record: Any) -> Line:
    return Line(
        service=service,
        text=record.body.string_value,
        level=record.severity_text,
        trace_id=record.trace_id.hex(),
        span_id=record.span_id.hex(),
        attributes=_values(record.attributes),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
