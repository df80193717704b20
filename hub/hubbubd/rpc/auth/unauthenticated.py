"""Bounds for RPCs without a credential (health checks over gRPC): few bytes, little time, few at once.

gRPC would read the request before it calls the handler, however long that takes. So these RPCs take a stream of
requests (`with_streamed_request`), and this module awaits the only request.

Callers with a valid credential are not limited. Callers on the hub's machine and callers from the network have
separate limits, so that a local supervisor always gets an answer.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import grpc

from hubbubd.errors import InvalidArgument, ResourceExhausted
from hubbubd.rpc import status
from hubbubd.rpc.context import CallerGroup, current
from hubbubd.rpc.methods import read_only_request, with_streamed_request

REQUEST_BYTES = 1024
"""The longest request without a credential: a health check holds only the name of a service."""

REQUEST_S = 5.0
"""Seconds that the sender of such a request may take."""

MAX_OPEN = 200
"""The most RPCs without a credential open over gRPC, health watches included; per group."""


Serve = Callable[[], Awaitable[Any]]
IdentifyAndServe = Callable[[Serve, status.Context], Awaitable[Any]]
"""Identifies the caller, notes its group, and serves the RPC."""


def check_size(size: int) -> None:
    """Raise ResourceExhausted (MESSAGE_TOO_LARGE) for too long a request without a credential."""
    if size > REQUEST_BYTES:
        raise ResourceExhausted(
            f"a request without a credential may have {REQUEST_BYTES} bytes",
            reason="MESSAGE_TOO_LARGE",
            metadata={"limit": str(REQUEST_BYTES)},
        )


class UnauthenticatedRpcs:
    """The RPCs of one server that need no credential."""

    def __init__(self) -> None:
        self._open_counts = Counter[CallerGroup]()

    def limit_handler(self, handler: Any, identify: IdentifyAndServe) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the handler of a unary or server-streaming RPC, within these bounds."""
        behaviour = handler.unary_stream if handler.response_streaming else handler.unary_unary

        async def serve_limited(context: status.Context) -> Any:
            """Serve the RPC if few enough of its caller's group are open; known callers are not limited."""
            group = current().caller_group
            if group is not CallerGroup.KNOWN and self._open_counts[group] >= MAX_OPEN:
                await status.abort(context, _too_many_open())
            self._open_counts[group] += 1
            try:
                return await behaviour(await _read_request(context), context)
            finally:
                self._open_counts[group] -= 1

        async def serve_identified(_requests: object, context: status.Context) -> Any:
            """Find out who calls, and then serve the RPC within the limits for the group of callers."""
            return await identify(lambda: serve_limited(context), context)

        return with_streamed_request(handler, serve_identified)


async def _read_request(context: status.Context) -> bytes:
    """Read the only request, within REQUEST_S and REQUEST_BYTES; else end the RPC with an error."""
    request: bytes | None = None
    with anyio.move_on_after(REQUEST_S):
        request = await read_only_request(context)
    if request is None:
        late = f"no request came within {REQUEST_S:g} s"
        await status.abort(context, InvalidArgument(late, reason="MALFORMED_REQUEST"))
    try:
        check_size(len(request))
    except ResourceExhausted as exc:
        await status.abort(context, exc)
    return request


def _too_many_open() -> ResourceExhausted:
    """Return the error for a group of callers that has as many RPCs open as it may."""
    return ResourceExhausted(
        f"{MAX_OPEN} RPCs without a credential are open already; try again",
        reason="TOO_MANY_CHECKS",
        metadata={"limit": str(MAX_OPEN)},
        retry_after_s=1,
    )
