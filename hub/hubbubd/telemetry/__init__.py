"""What the hub tells of itself. A leaf: the small interface is `trace` and `tracer`; OpenTelemetry's SDK is imported by
`sdk` alone, and only when the environment asks for it (`setup`)."""
