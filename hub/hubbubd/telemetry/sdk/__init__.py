"""Traces, metrics and logs by OpenTelemetry's SDK. Imported only when an exporter is configured."""
