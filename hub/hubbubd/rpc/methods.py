"""Adapts servicers' coroutines to gRPC methods: bytes to messages, errors to statuses, backpressure on streams.

A servicer has a method per RPC, in snake case. It takes the request message and returns the response message, or for a
watch an async iterator of serialized responses (many watchers share one). Where both sides stream it takes an iterator
of requests and a function that writes a serialized response.

`list_rpcs` is common to all protocols; the rest is gRPC's.
"""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from hubbubd.core.access import Principal
from hubbubd.errors import InvalidArgument, ResourceExhausted, first_cause
from hubbubd.rpc import status
from hubbubd.rpc.context import amend_context
from hubbubd.rpc.status import Context
from hubbubd.timing.deadline import Deadline

STALL_S = 30.0
"""Seconds a caller may take to read the next response of a stream, before the stream is ended."""

EOF: Any = cast("Any", grpc.aio).EOF  # missing in the published types

Parse = Callable[[bytes], Any]
Unary = Callable[[Any], Awaitable[Message]]
Stream = Callable[[Any], AsyncGenerator[bytes, None]]
Write = Callable[[bytes], Awaitable[None]]
Dialogue = Callable[[AsyncIterator[Any], Write], Awaitable[None]]
Serve = Callable[..., Any]
"""Unary, Stream or Dialogue, as the method requires."""
Middleware = Callable[[MethodDescriptor, Serve], Serve]
"""Wraps the serving of an RPC (middleware)."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """A method of the API, with its parser of requests and its servicer's method."""

    method: MethodDescriptor
    parse: Parse
    serve: Serve

    @property
    def path(self) -> str:
        """The path in URLs: `/package.Service/Method`."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def response_type(self) -> type[Message]:
        """The response's message type."""
        return GetMessageClass(self.method.output_type)


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """How the RPCs of one listener are served: `middleware` wraps each, outermost first.

    `charge` and `hold` limit the steps within a stream, and raise ResourceExhausted. `charge` counts a step as an RPC
    against its caller's rate. `hold` counts a step as an open stream of its caller, during a block.
    """

    max_message_bytes: int
    middleware: tuple[Middleware, ...]
    charge: Callable[[Principal], None] = lambda _: None
    hold: Callable[[Principal], AbstractContextManager[None]] = lambda _: nullcontext()

    def wrap(self, method: MethodDescriptor, serve: Serve) -> Serve:
        """Return the function that serves an RPC, wrapped in all middleware."""
        return reduce(lambda serve, wrap: wrap(method, serve), reversed(self.middleware), serve)


def list_rpcs(
    service: ServiceDescriptor, servicer: object, max_message_bytes: int, *middleware: Middleware
) -> list[Rpc]:
    """Return all RPCs of a service, each wrapped by `middleware`, outermost first.

    Raises AttributeError when the servicer lacks the method of an RPC.
    """
    settings = RpcSettings(max_message_bytes, middleware)

    def make_serve(method: MethodDescriptor) -> Serve:
        innermost: Serve = getattr(servicer, _snake_case(method.name))
        return settings.wrap(method, innermost)

    return [Rpc(method, _make_parser(method, max_message_bytes), make_serve(method)) for method in service.methods]


def make_generic_handler(
    service: ServiceDescriptor,
    servicer: object,
    max_message_bytes: int,
    *middleware: Middleware,
    on_dropped: Callable[[], None] = lambda: None,
) -> grpc.GenericRpcHandler:
    """Return the gRPC handler of a service; `on_dropped` is called when a stream ends as its caller reads nothing.

    Raises AttributeError when the servicer lacks an RPC.
    """
    handlers = {
        rpc.method.name: _make_handler(rpc, on_dropped)
        for rpc in list_rpcs(service, servicer, max_message_bytes, *middleware)
    }
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _make_handler(rpc: Rpc, on_dropped: Callable[[], None]) -> "grpc.RpcMethodHandler[bytes, bytes]":
    """Return the gRPC handler of an RPC; its kind depends on which sides of the RPC are streams."""
    if rpc.method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(_make_dialogue_handler(rpc.parse, rpc.serve, on_dropped))
    if rpc.method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _make_stream_handler(rpc.parse, rpc.serve, rpc.response_type, on_dropped)
        )
    return grpc.unary_unary_rpc_method_handler(_make_unary_handler(rpc.parse, rpc.serve))


def with_streamed_request(handler: Any, serve: Callable[[Any, Context], Awaitable[Any]]) -> Any:
    """Return a handler for the same RPC that takes a stream of requests, so that gRPC calls it before reading any.

    For other handlers gRPC first reads the request, however long that takes; meanwhile the RPC counts as open.
    """
    streams = handler.response_streaming
    make = grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler
    return make(
        serve, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
    )


def behaviour_name(handler: Any) -> str:
    """Return the name of the attribute that has a gRPC handler's function: `unary_unary`, `unary_stream`, ..."""
    sides = handler.request_streaming, handler.response_streaming
    return "_".join("stream" if streams else "unary" for streams in sides)


async def read_only_request(context: Context) -> Any:
    """Read the only request of an RPC that `with_streamed_request` serves; None if the RPC ends without a request."""
    request: Any = await context.read()
    return None if request is EOF else request


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _make_parser(method: MethodDescriptor, max_bytes: int) -> Parse:
    """Return the parser of requests of an RPC. It raises ResourceExhausted and InvalidArgument."""
    from_string = GetMessageClass(method.input_type).FromString

    def parse(raw: bytes) -> Message:
        """Return a request's message. Raises ResourceExhausted for more than `max_bytes`, and InvalidArgument."""
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


def _make_unary_handler(parse: Parse, serve: Unary) -> Callable[[bytes, Context], Awaitable[bytes]]:
    """Return the function that gRPC calls (its behaviour) for an RPC with one request and one response."""

    async def handle_unary(raw: bytes, context: Context) -> bytes:
        """Serve one RPC; end it with the status of the error that serving it raises."""
        amend_context(address=context.peer(), remaining=context.time_remaining)
        try:
            return (await serve(parse(raw))).SerializeToString()
        except Exception as exc:  # noqa: BLE001 - every error gets a status; cancellation is not an Exception
            await status.abort(context, exc)

    return handle_unary


def _make_stream_handler(
    parse: Parse, serve: Stream, response_type: type[Message], on_dropped: Callable[[], None]
) -> Callable[[bytes, Context], Awaitable[None]]:
    """Return the function that gRPC calls for an RPC with many responses.

    `on_dropped` is called if the caller stops reading.
    """

    async def handle_stream(raw: bytes, context: Context) -> None:
        """Serve one RPC and write its responses; end it with a status after an error, or a write of over STALL_S."""
        amend_context(address=context.peer(), remaining=context.time_remaining)
        stall_deadline, now, last = Deadline(), asyncio.get_running_loop().time, b""

        async def send_responses() -> bool:
            """Write all responses and return True; the deadline runs only while a response is being written."""
            nonlocal last
            # aclosing: an ended watch must leave the limit of watches at once, not when it is garbage-collected.
            async with aclosing(serve(parse(raw))) as responses:
                async for response in responses:
                    last = response
                    stall_deadline.move(now() + STALL_S)
                    await context.write(response)
                    stall_deadline.move(math.inf)
            return True

        try:
            if not await stall_deadline.run(send_responses):
                on_dropped()
                raise _stalled_error(response_type.FromString(last))
        except grpc.aio.InternalError:
            return  # the caller disconnected while a response was being written
        except Exception as exc:  # noqa: BLE001
            await status.abort(context, exc)

    return handle_stream


def _make_dialogue_handler(
    parse: Parse, serve: Dialogue, on_dropped: Callable[[], None]
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
    """Return the function that gRPC calls for an RPC where both sides stream.

    `on_dropped` is called if the caller stops reading.
    """

    async def handle_dialogue(raw: AsyncIterator[bytes], context: Context) -> None:
        """Serve one RPC; end it with a status after an error, or when a write takes longer than STALL_S."""
        amend_context(address=context.peer(), remaining=context.time_remaining)
        stall_deadline, now = Deadline(), asyncio.get_running_loop().time

        async def parse_each() -> AsyncIterator[Any]:
            async for request_bytes in raw:
                yield parse(request_bytes)

        async def write(response: bytes) -> None:
            """Write one response; the deadline runs only while it is being written."""
            stall_deadline.move(now() + STALL_S)
            await context.write(response)
            stall_deadline.move(math.inf)

        async def serve_dialogue() -> bool:
            await serve(parse_each(), write)
            return True

        try:
            if not await stall_deadline.run(serve_dialogue):
                on_dropped()
                raise _stalled_error()
        except Exception as exc:  # noqa: BLE001
            # The task groups of servicers raise errors within exception groups.
            cause = first_cause(exc)
            if not isinstance(cause, grpc.aio.InternalError):  # otherwise the caller has disconnected
                await status.abort(context, cause)

    return handle_dialogue


def _stalled_error(last: Message | None = None) -> ResourceExhausted:
    """Return the error for a stream whose caller reads nothing. `last` is the last response, if there was one.

    A caller that reads on still gets that response, so the error names its resume token.
    """
    token: str = getattr(last, "resume_token", "")
    return ResourceExhausted(
        f"this watcher read nothing for {STALL_S:g} s" + ("; resume with its last token" if token else ""),
        reason="WATCHER_TOO_SLOW",
        metadata={"resume_token": token} if token else {},
    )
