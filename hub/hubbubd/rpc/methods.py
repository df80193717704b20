"""From a servicer's plain coroutines to gRPC methods: bytes to messages, errors to statuses.

A servicer has one method for each RPC of its service, in snake case. It takes the request message; it returns the
response message, or for a watch an async iterator of responses that are serialised already (many watchers share one).
Where both sides stream it takes an iterator of requests and a function that writes a serialised response.

`rpcs` is what all protocols have in common; the rest is gRPC's.
"""

import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import reduce
from typing import Any

import anyio
import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from hubbubd.errors import InvalidArgument, ResourceExhausted, first_cause
from hubbubd.rpc import status
from hubbubd.rpc.context import amend
from hubbubd.rpc.status import Context

STALL_S = 30.0
"""How long a caller may take to make room for the next response of a watch."""

Parse = Callable[[bytes], Any]
Unary = Callable[[Any], Awaitable[Message]]
Stream = Callable[[Any], AsyncGenerator[bytes, None]]
Write = Callable[[bytes], Awaitable[None]]
Dialogue = Callable[[AsyncIterator[Any], Write], Awaitable[None]]
Serve = Callable[..., Any]
"""One of the three, as the method has it."""
Around = Callable[[MethodDescriptor, Serve], Serve]
"""Puts something around the serving of an RPC."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """A method of the API, what makes requests of bytes, and the servicer's own method."""

    method: MethodDescriptor
    parse: Parse
    serve: Serve

    @property
    def path(self) -> str:
        """As it stands in URLs."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def response_type(self) -> type[Message]:
        """What it responds with."""
        return GetMessageClass(self.method.output_type)


def rpcs(service: ServiceDescriptor, servicer: object, max_message_bytes: int, *around: Around) -> list[Rpc]:
    """All RPCs of a service, each within what is `around` it, the outermost first.

    Raises AttributeError when the servicer lacks one.
    """

    def served(method: MethodDescriptor) -> Serve:
        innermost: Serve = getattr(servicer, _snake_case(method.name))
        return reduce(lambda serve, wrap: wrap(method, serve), reversed(around), innermost)

    return [Rpc(method, _parser(method, max_message_bytes), served(method)) for method in service.methods]


def generic_handler(
    service: ServiceDescriptor,
    servicer: object,
    max_message_bytes: int,
    *around: Around,
    dropped: Callable[[], None] = lambda: None,
) -> grpc.GenericRpcHandler:
    """The handlers of all RPCs of a service; `dropped` is called for each stream that is ended because nobody reads it.

    Raises AttributeError when the servicer lacks one.
    """
    table = {rpc.method.name: _handler(rpc, dropped) for rpc in rpcs(service, servicer, max_message_bytes, *around)}
    return grpc.method_handlers_generic_handler(service.full_name, table)


def _handler(rpc: Rpc, dropped: Callable[[], None]) -> "grpc.RpcMethodHandler[bytes, bytes]":
    if rpc.method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(_dialogue(rpc.parse, rpc.serve, dropped))
    if rpc.method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_stream(rpc.parse, rpc.serve, rpc.response_type, dropped))
    return grpc.unary_unary_rpc_method_handler(_unary(rpc.parse, rpc.serve))


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _parser(method: MethodDescriptor, max_bytes: int) -> Parse:
    from_string = GetMessageClass(method.input_type).FromString

    def parse(raw: bytes) -> Message:
        if len(raw) > max_bytes:
            raise ResourceExhausted(
                f"the request is {len(raw)} bytes long; at most {max_bytes} are taken",
                reason="MESSAGE_TOO_LARGE",
            )
        try:
            return from_string(raw)
        except DecodeError:
            raise InvalidArgument(
                f"the request is not a {method.input_type.full_name}", reason="MALFORMED_REQUEST"
            ) from None

    return parse


def _unary(parse: Parse, serve: Unary) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def call(raw: bytes, context: Context) -> bytes:
        amend(address=context.peer)
        try:
            return (await serve(parse(raw))).SerializeToString()
        except Exception as exc:  # noqa: BLE001 - every error gets a status; cancellation is not an Exception
            await status.abort(context, exc)

    return call


def _stream(
    parse: Parse, serve: Stream, response_type: type[Message], dropped: Callable[[], None]
) -> Callable[[bytes, Context], Awaitable[None]]:
    async def call(raw: bytes, context: Context) -> None:
        amend(address=context.peer)
        last = b""
        try:
            # Closed at once, not when collected: a watch that ended must not count against the limit of watches.
            with anyio.CancelScope() as scope:
                async with aclosing(serve(parse(raw))) as responses:
                    async for response in responses:
                        last = response
                        scope.deadline = anyio.current_time() + STALL_S
                        await context.write(response)
                        scope.deadline = math.inf
                return
            dropped()
            raise _stalled(response_type.FromString(last))
        except grpc.aio.InternalError:
            return  # the caller went away while a response was on its way
        except Exception as exc:  # noqa: BLE001
            await status.abort(context, exc)

    return call


def _dialogue(
    parse: Parse, serve: Dialogue, dropped: Callable[[], None]
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
    async def call(raw: AsyncIterator[bytes], context: Context) -> None:
        amend(address=context.peer)

        async def parsed() -> AsyncIterator[Any]:
            async for each in raw:
                yield parse(each)

        async def write(response: bytes) -> None:
            with anyio.move_on_after(STALL_S) as scope:
                await context.write(response)
            if scope.cancelled_caught:
                dropped()
                raise _stalled()

        try:
            await serve(parsed(), write)
        except Exception as exc:  # noqa: BLE001
            cause = first_cause(exc)
            if not isinstance(cause, grpc.aio.InternalError):  # else the caller has gone away
                await status.abort(context, cause)

    return call


def _stalled(last: Message | None = None) -> ResourceExhausted:
    """Why a watch is closed whose caller reads nothing. The last response is on its way; whoever reads on gets it."""
    token: str = getattr(last, "resume_token", "")
    return ResourceExhausted(
        f"this watcher read nothing for {STALL_S:g} s" + ("; resume with its last token" if token else ""),
        reason="WATCHER_TOO_SLOW",
        metadata={"resume_token": token} if token else {},
    )
