"""Log lines know the trace that they belong to, and may have a second way out of the process."""

from typing import Any

from hubbubd.telemetry.trace import CURRENT_TRACE


def placed(_logger: object, _method: str, line: Any) -> Any:
    """The line with `trace_id` and `span_id` of the call or RPC in whose course it was written."""
    trace = CURRENT_TRACE.get()
    if trace is not None:
        line["trace_id"], line["span_id"] = trace.trace_id, trace.span_id
    return line


class LogSink:
    """Takes log lines as they are written, and keeps none of them: nobody else asked for logs."""

    on: bool = False

    def __call__(self, _logger: object, _method: str, line: Any) -> Any:
        """A step of structlog's: the line as it is."""
        return line

    def close(self) -> None:
        """Hands over what it has; takes a bounded time, in which it blocks."""


OFF = LogSink()
