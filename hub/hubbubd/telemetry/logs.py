"""Log correlation (trace ids in log lines), and the interface of a second log exporter."""

from typing import Any

from hubbubd.telemetry.trace import CURRENT_TRACE


def add_trace_ids(_logger: object, _method: str, line: Any) -> Any:
    """Structlog processor: add `trace_id` and `span_id` of the current call or RPC."""
    trace = CURRENT_TRACE.get()
    if trace is not None:
        line["trace_id"], line["span_id"] = trace.trace_id, trace.span_id
    return line


class LogSink:
    """Structlog processor that also exports each line. This one is the no-op for when no exporter is configured."""

    on: bool = False

    def __call__(self, _logger: object, _method: str, line: Any) -> Any:
        """Export the line and return it unchanged."""
        return line

    def close(self) -> None:
        """Flush what is buffered. Blocks, for a bounded time."""


OFF = LogSink()
