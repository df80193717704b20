"""Traces, metrics and logs of the hub. A leaf package.

`trace`, `tracer`, `meter` and `logs` are the small interface the rest of the hub uses. Spans live in durable records
and may be ended by the next process, which `opentelemetry-api` cannot express. The SDK is imported by `sdk/` alone,
and only when the environment asks for it (`setup`).
"""
