"""A span for each RPC with one request and one response, by the semantic conventions for RPC (release candidate).

None for streams: they last as long as somebody watches. None for health checks.

https://opentelemetry.io/docs/specs/semconv/rpc/grpc/
"""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from hubbubd.rpc import status
from hubbubd.rpc.auth import OPEN_TO_ALL, principal
from hubbubd.telemetry import mcp
from hubbubd.telemetry.trace import CALLER, SERVING, Attributes, Kind, Serving, Span
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
"""The statuses that are a server's failure; the others are its caller's."""


def traced(
    tracer: Tracer, method: MethodDescriptor, serve: Callable[[Any], Awaitable[Message]], system: str
) -> Callable[[Any], Awaitable[Message]]:
    """The servicer's method, telling of each RPC; the same one when there is nothing to tell."""
    name = f"{method.containing_service.full_name}/{method.name}"
    if not tracer.on or method.server_streaming or method.client_streaming or f"/{name}".startswith(OPEN_TO_ALL):
        return serve

    async def told(request: Any) -> Message:
        trace = tracer.begin(CALLER.get(), name, Kind.SERVER)
        assert trace is not None, "tracing is on"
        about: Attributes = {
            "rpc.system.name": system,
            "rpc.method": name,
            "hubbub.principal": mcp.text(principal.get()),
        }
        span = Span(name=name, kind=Kind.SERVER, trace=trace, start=tracer.now(), attributes=about)
        serving = Serving(span)
        CALLER.set(trace)
        SERVING.set(serving)
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
            ended: Attributes = {"rpc.response.status_code": code.name}
            tracer.tell(span, tracer.now(), attributes=ended, error=error, links=serving.links)

    return told
