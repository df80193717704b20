"""What needs no credential takes a few bytes, a few seconds and few of the hub's places: health checks, over gRPC.

gRPC reads the request of an RPC before it hands it on, however long that takes, and counts the RPC among those that are
open. So these RPCs are taken as streams, which are handed on at once, and their one request is waited for here.

A good credential may be shown, and then nobody else can take one's place. Those of the hub's own machine and those of
the network have places apart, so that whoever looks after the hub from beside it hears of its health, too.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import grpc

from hubbubd.errors import InvalidArgument, ResourceExhausted
from hubbubd.rpc import status
from hubbubd.rpc.context import Crowd, current

REQUEST_BYTES = 1024
"""The longest request that is taken without a credential; a health check has the name of a service."""

REQUEST_S = 5.0
"""How long its sender may take."""

MAX_OPEN = 200
"""RPCs without a credential that may be open at once over gRPC, the watches of the hub's health among them: so many of
the hub's own machine, and so many of the network."""


Serve = Callable[[], Awaitable[None]]
Around = Callable[[Serve, status.Context], Awaitable[None]]
"""Serves an RPC of whom it finds to be its caller, and says in the context which crowd that is."""


def check_size(size: int) -> None:
    """Raises ResourceExhausted (MESSAGE_TOO_LARGE) for the request of somebody without a credential."""
    if size > REQUEST_BYTES:
        raise ResourceExhausted(
            f"a request without a credential may have {REQUEST_BYTES} bytes",
            reason="MESSAGE_TOO_LARGE",
            metadata={"limit": str(REQUEST_BYTES)},
        )


class Strangers:
    """The RPCs of one server that need no credential."""

    def __init__(self) -> None:
        self._open = Counter[Crowd]()

    def served(self, handler: Any, around: Around) -> "grpc.RpcMethodHandler[Any, Any]":
        """The handler of an RPC with one request, within the bounds of this module."""
        streams = handler.response_streaming
        behaviour = handler.unary_stream if streams else handler.unary_unary

        async def serve(requests: AsyncIterator[bytes], context: status.Context) -> None:
            crowd = current().crowd
            if crowd is not Crowd.KNOWN and self._open[crowd] >= MAX_OPEN:
                await status.abort(context, _too_many())
            self._open[crowd] += 1
            try:
                request = await _one(requests, context)
                if streams:
                    await behaviour(request, context)
                else:
                    await context.write(await behaviour(request, context))
            finally:
                self._open[crowd] -= 1

        async def known(requests: AsyncIterator[bytes], context: status.Context) -> None:
            await around(lambda: serve(requests, context), context)

        return grpc.stream_stream_rpc_method_handler(known)


async def _one(requests: AsyncIterator[bytes], context: status.Context) -> bytes:
    request: bytes | None = None
    with anyio.move_on_after(REQUEST_S):
        request = await anext(requests, None)
    if request is None:
        late = f"no request came within {REQUEST_S:g} s"
        await status.abort(context, InvalidArgument(late, reason="MALFORMED_REQUEST"))
    try:
        check_size(len(request))
    except ResourceExhausted as exc:
        await status.abort(context, exc)
    return request


def _too_many() -> ResourceExhausted:
    return ResourceExhausted(
        f"{MAX_OPEN} RPCs without a credential are open already; try again",
        reason="TOO_MANY_CHECKS",
        metadata={"limit": str(MAX_OPEN)},
        retry_after_s=1,
    )
