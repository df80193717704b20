"""Export of log lines by OpenTelemetry's SDK, in a thread of the SDK."""

import sys
import time
from typing import Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, ConsoleLogRecordExporter, LogRecordExporter

from hubbub_shared import __version__
from hubbubd.telemetry.logs import LogSink
from hubbubd.telemetry.mcp import MAX_CONTENT_CHARS, bounded_text
from hubbubd.telemetry.sdk.tracer import SERVICE, as_sdk_context, limit_exporter_logs, resource, shut_down
from hubbubd.telemetry.trace import CURRENT_TRACE

SEVERITIES: Final = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}

KEYS_WITH_FIELDS: Final = frozenset({"event", "level", "timestamp", "trace_id", "span_id"})
"""Keys of a line that have fields of their own in an OTLP log record."""


class SdkLogSink(LogSink):
    """Exports each line, its other keys as attributes; nested values as text."""

    on = True

    def __init__(self, exporter: LogRecordExporter) -> None:
        """Start the SDK's thread that gives lines to the exporter."""
        self._exporter = exporter
        self._provider = LoggerProvider(resource(), shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._logger = self._provider.get_logger(SERVICE, __version__)

    @classmethod
    def open(cls, exporter: str) -> "SdkLogSink":
        """Return a sink that exports over OTLP, or writes to stderr for `console`."""
        limit_exporter_logs()
        return cls(ConsoleLogRecordExporter(out=sys.stderr) if exporter == "console" else OTLPLogExporter())

    def __call__(self, logger: object, method: str, line: Any) -> Any:
        """Give the line to the exporter, and return it unchanged."""
        level = str(line.get("level", "info"))
        self._logger.emit(
            LogRecord(
                timestamp=time.time_ns(),
                context=as_sdk_context(CURRENT_TRACE.get()) or Context(),
                severity_text=level,
                severity_number=SEVERITIES.get(level, SeverityNumber.UNSPECIFIED),
                body=bounded_text(line.get("event"), MAX_CONTENT_CHARS),
                attributes={
                    name: value if isinstance(value, (bool, int, float)) else bounded_text(value, MAX_CONTENT_CHARS)
                    for name, value in line.items()
                    if name not in KEYS_WITH_FIELDS and not name.startswith("_") and value is not None
                },
            )
        )
        return line

    def close(self) -> None:
        """Flush what is buffered, and end the exporter. Blocks, for a bounded time."""
        shut_down(self._provider, self._exporter)
