"""Spans of unary RPCs, by OpenTelemetry's semantic conventions for RPC (release candidate).

None for streams, which last as long as a watch, nor for health checks.

https://opentelemetry.io/docs/specs/semconv/rpc/grpc/
"""

from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from hubbubd.rpc import status
from hubbubd.rpc.auth.permissions import RULES, RpcReach
from hubbubd.rpc.context import principal
from hubbubd.rpc.methods import Middleware, Serve, Unary
from hubbubd.telemetry import mcp
from hubbubd.telemetry.trace import CURRENT_RPC, CURRENT_TRACE, Attributes, RpcSpan, Span, SpanKind
from hubbubd.telemetry.tracer import Tracer

FAILURES = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Status codes that are the server's failure; others are the caller's."""


def trace_rpcs(tracer: Tracer, system: str) -> Middleware:
    """Return middleware that exports a span per RPC; `system` is the protocol's name in traces."""

    def wrap_in_span(method: MethodDescriptor, serve: Serve) -> Serve:
        """Return the RPC within a span; unchanged while tracing is off, for streams, and without a credential."""
        streams = method.server_streaming or method.client_streaming
        name = f"{method.containing_service.full_name}/{method.name}"
        is_untraced = not tracer.on or streams or RULES[f"/{name}"].reach is RpcReach.OPEN
        return serve if is_untraced else _serve_in_span(tracer, name, system, serve)

    return wrap_in_span


def _serve_in_span(tracer: Tracer, name: str, system: str, serve: Unary) -> Unary:
    """Return an RPC that exports a span each time it is served."""

    async def serve_traced(request: Any) -> Message:
        """Serve the RPC, and export its span with the status code."""
        trace = tracer.begin(CURRENT_TRACE.get(), name, SpanKind.SERVER)
        assert trace is not None, "tracing is on"
        attributes: Attributes = {
            "rpc.system.name": system,
            "rpc.method": name,
            "hubbub.principal": mcp.bounded_text(principal().name),
        }
        span = Span(name=name, kind=SpanKind.SERVER, trace=trace, start=tracer.now(), attributes=attributes)
        serving = RpcSpan(span)
        CURRENT_TRACE.set(trace)
        CURRENT_RPC.set(serving)
        # A cancelled RPC keeps this code: `except Exception` does not catch a cancellation.
        code = grpc.StatusCode.CANCELLED
        try:
            response = await serve(request)
            code = grpc.StatusCode.OK
        except Exception as exc:
            code = status.code_of(exc)
            raise
        else:
            return response
        finally:
            error = code.name if code in FAILURES else None
            end_attributes: Attributes = {"rpc.response.status_code": code.name}
            tracer.export_span(span, tracer.now(), attributes=end_attributes, error=error, links=serving.links)

    return serve_traced
