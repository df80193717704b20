"""From a servicer's plain coroutines to gRPC methods: bytes to messages, errors to statuses.

A servicer has one method for each RPC of its service, in snake case. It takes the request message; it returns the
response message, or for a watch an async iterator of responses that are serialised already (many watchers share one).
"""

import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import anyio
import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from hubbubd.errors import InvalidArgument, ResourceExhausted
from hubbubd.rpc import status
from hubbubd.rpc.status import Context

STALL_S = 30.0
"""How long a caller may take to make room for the next response of a watch."""

Parse = Callable[[bytes], Any]
Unary = Callable[[Any], Awaitable[Message]]
Stream = Callable[[Any], AsyncGenerator[bytes, None]]


def generic_handler(service: ServiceDescriptor, servicer: object, max_message_bytes: int) -> grpc.GenericRpcHandler:
    """The handlers of all RPCs of a service. Raises AttributeError when the servicer lacks one."""
    table = {method.name: _handler(method, servicer, max_message_bytes) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, table)


def _handler(method: MethodDescriptor, servicer: object, max_bytes: int) -> "grpc.RpcMethodHandler[bytes, bytes]":
    serve = getattr(servicer, re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower())
    parse = _parser(method, max_bytes)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_stream(parse, serve, GetMessageClass(method.output_type)))
    return grpc.unary_unary_rpc_method_handler(_unary(parse, serve))


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
        try:
            return (await serve(parse(raw))).SerializeToString()
        except Exception as exc:  # noqa: BLE001 - every error gets a status; cancellation is not an Exception
            await status.abort(context, exc)

    return call


def _stream(parse: Parse, serve: Stream, response_type: type[Message]) -> Callable[[bytes, Context], Awaitable[None]]:
    async def call(raw: bytes, context: Context) -> None:
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
            raise _stalled(response_type.FromString(last))
        except grpc.aio.InternalError:
            return  # the caller went away while a response was on its way
        except Exception as exc:  # noqa: BLE001
            await status.abort(context, exc)

    return call


def _stalled(last: Message) -> ResourceExhausted:
    """Why a watch is closed whose caller reads nothing. The last response is on its way; whoever reads on gets it."""
    token: str = getattr(last, "resume_token", "")
    return ResourceExhausted(
        f"this watcher read nothing for {STALL_S:g} s" + ("; resume with its last token" if token else ""),
        reason="WATCHER_TOO_SLOW",
        metadata={"resume_token": token} if token else {},
    )
