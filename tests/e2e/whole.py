"""Whether a hub still tells all that it has: every list, every watch and every number in them.

What is asked comes from the API's descriptors, so that a new list or watch is looked at as well.
"""

import json
import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from hubbubd.rpc.listeners.grpc_server import SERVICES

METHODS: list[MethodDescriptor] = [method for service in SERVICES.values() for method in service.methods]
LISTS = [method for method in METHODS if method.name.startswith("List")]
TOLD = [method for method in METHODS if method.name in ("GetStatus", "GetStoreStats", "GetSelf", "CheckHub")]
WATCHES = [
    method
    for method in METHODS
    if method.server_streaming and any(field.name == "synced" for field in method.output_type.fields)
]
"""Those that begin with a snapshot."""

PATIENCE_S = 60
"""How long each of them may take, beside whatever else goes on."""

FURTHEST_S = 86_400 * 1.01
"""How far ahead the next attempt to connect may be; nobody waits longer because of what a server says."""

DOUBLES = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def path(method: MethodDescriptor) -> str:
    """Where gRPC finds a method."""
    return f"/{method.containing_service.full_name}/{method.name}"


async def troubles(channel: grpc.aio.Channel, metadata: Any) -> list[str]:
    """What does not answer, or answers what nobody can read; empty when all is well."""
    found: list[str] = []
    for method in (*TOLD, *LISTS):
        found += await _answered(channel, metadata, method)
        if any("DEADLINE_EXCEEDED" in what for what in found):
            return found  # nobody is answered
    async with anyio.create_task_group() as watches:

        async def watch(method: MethodDescriptor) -> None:
            found.extend(await _synced(channel, metadata, method))

        for method in WATCHES:
            watches.start_soon(watch, method)
    return found


async def _answered(channel: grpc.aio.Channel, metadata: Any, method: MethodDescriptor) -> list[str]:
    found: list[str] = []
    for request in _requests(method):
        try:
            async for response in pages(channel, metadata, method, request):
                found += [f"{method.name}: {what}" for what in unreadable(response)]
        except grpc.aio.AioRpcError as exc:
            found.append(f"{method.name}: {exc.code().name} {exc.details()}")
    return found


def _requests(method: MethodDescriptor) -> Iterator[Message]:
    """An empty request; one for each kind where there are kinds."""
    made = GetMessageClass(method.input_type)
    kinds = [field for field in method.input_type.fields if field.enum_type and not field.is_repeated]
    if not kinds:
        yield made()
    for field in kinds:
        for value in field.enum_type.values:
            if value.number:
                yield made(**{field.name: value.number})


async def pages(
    channel: grpc.aio.Channel, metadata: Any, method: MethodDescriptor, request: Any
) -> AsyncIterator[Message]:
    """All pages of a list, or the one response of another method. Raises grpc.aio.AioRpcError."""
    kind = GetMessageClass(method.output_type)
    call = channel.unary_unary(path(method), response_deserializer=kind.FromString)
    while True:
        response: Any = await call(request.SerializeToString(), metadata=metadata, timeout=PATIENCE_S)
        yield response
        if not getattr(response, "next_page_token", ""):
            return
        request.page_token = response.next_page_token


async def _synced(channel: grpc.aio.Channel, metadata: Any, method: MethodDescriptor) -> list[str]:
    found: list[str] = []
    try:
        async for response in events(channel, metadata, method, timeout_s=PATIENCE_S):
            found += [f"{method.name}: {what}" for what in unreadable(response)]
            if response.HasField("synced"):
                return found
        return [*found, f"{method.name}: ended before its snapshot was whole"]
    except grpc.aio.AioRpcError as exc:
        return [*found, f"{method.name}: {exc.code().name} {exc.details()}"]


def events(
    channel: grpc.aio.Channel, metadata: Any, method: MethodDescriptor, *, timeout_s: float | None = None
) -> Any:
    """What a watch of everything tells."""
    kind = GetMessageClass(method.output_type)
    call = channel.unary_stream(path(method), response_deserializer=kind.FromString)
    return call(GetMessageClass(method.input_type)().SerializeToString(), metadata=metadata, timeout=timeout_s)


def unreadable(message: Message) -> Iterator[str]:
    """What in a message no program of another language could read, or act on."""
    for field, value in message.ListFields():
        for each in _values(field, value):
            yield from _unreadable(field, each)
    wait = getattr(message, "next_retry_at", None)
    if isinstance(wait, Timestamp) and wait.seconds:
        now = Timestamp()
        now.GetCurrentTime()
        if wait.seconds - now.seconds > FURTHEST_S:
            yield f"next_retry_at is {(wait.seconds - now.seconds) / 86_400:.0f} days ahead"


def _values(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type and field.message_type.GetOptions().map_entry:
        return ()
    return value if field.is_repeated else (value,)


def _unreadable(field: FieldDescriptor, value: Any) -> Iterator[str]:
    if isinstance(value, Timestamp):
        try:
            value.ToDatetime()
        except (ValueError, OverflowError) as exc:
            yield f"{field.full_name}: {exc}"
    elif isinstance(value, Message):
        yield from unreadable(value)
    elif field.cpp_type in DOUBLES and not math.isfinite(value):
        yield f"{field.full_name} is {value}"
    elif field.type == FieldDescriptor.TYPE_BYTES and field.name != "chunk":
        try:
            json.loads(value, parse_constant=_refuse, parse_float=_finite, parse_int=lambda _: 0)
        except RecursionError:
            yield f"{field.full_name} nests too deeply"
        except ValueError as exc:
            yield f"{field.full_name} is no JSON: {exc}: {value[:80]!r}"


def _refuse(word: str) -> None:
    raise ValueError(word)


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is past every double")
    return 0.0
