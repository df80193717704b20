"""Converts the runtime's watch events to serialized responses, alike for all services."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar, cast

from google.protobuf.message import Message

from hubbub.v1 import common_pb2
from hubbubd.runtime.records import EventKind, Watch, WatchEvent

T = TypeVar("T")
Step = dict[str, Message]

TOGETHER_BYTES = 64 * 1024
"""Steps that are there at once go together up to this size: gRPC takes its price per message."""

_REASONS = {name.removeprefix("RESET_REASON_"): number for name, number in common_pb2.ResetReason.items() if number}
"""The API's number of each reason of a reset."""

_BATCH = bytes([9 << 3 | 2])
"""The tag before each element of the field `batch`: its number, 9 in all responses, and its wire type."""


async def serialize_events(
    watch: Watch[T],
    response_type: Callable[..., Message],
    convert: Callable[[T], Message],
    live_fields: Callable[[object], Step] | None = None,
    on_shown: Callable[[T], None] = lambda _: None,
    *,
    batches: bool = False,
) -> AsyncGenerator[bytes, None]:
    """Yield each event as a serialized response, cached in the event for the watchers that share it.

    `convert` makes the message of a record, `live_fields` the fields of a live event. `on_shown` is called with each
    record before it is yielded. With `batches`, events that are there at once are yielded
    together.
    """

    def serialize_event(event: WatchEvent[T]) -> bytes:
        """Return the response with an event, which the first watcher makes for all."""
        if event.record is not None:
            on_shown(event.record)
        if event.encoded is None:
            content = (
                live_fields(event.live)
                if live_fields and event.kind is EventKind.LIVE
                else _event_content(event, convert)
            )
            event.encoded = response_type(resume_token=event.token, **content).SerializeToString()
        return cast("bytes", event.encoded)

    async with aclosing(watch):
        async for event in watch:
            steps, token = [serialize_event(event)], event.token
            size = len(steps[0])
            while batches and (next_event := watch.pop()) is not None:
                try:
                    next_step = serialize_event(next_event)
                except Exception:
                    yield _join_steps(steps, response_type, token)  # events before the one that fails are not lost
                    raise
                if size + len(next_step) > TOGETHER_BYTES:
                    yield _join_steps(steps, response_type, token)
                    steps, size = [], 0
                steps.append(next_step)
                size, token = size + len(next_step), next_event.token
            yield _join_steps(steps, response_type, token)


def _join_steps(steps: Sequence[bytes], response_type: Callable[..., Message], token: str) -> bytes:
    """Return steps as one response; a single step stays as it is, for the watchers that share its bytes."""
    if len(steps) == 1:
        return steps[0]
    joined = bytearray(response_type(resume_token=token).SerializeToString())
    for step in steps:  # each as an element of the field `batch`, without being parsed for it
        joined += _BATCH + _encode_varint(len(step)) + step
    return bytes(joined)


def _encode_varint(number: int) -> bytes:
    """Return a number as protocol buffers have it (https://protobuf.dev/programming-guides/encoding/#varints)."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _encode_varint(rest) if rest else bytes([low])


def _event_content(event: WatchEvent[T], convert: Callable[[T], Message]) -> Step:
    """Return the field of a response that has the event, by its name."""
    match event.kind:
        case EventKind.UPSERT:
            return {"upsert": convert(cast("T", event.record))}
        case EventKind.REMOVED:
            return {"removed": common_pb2.WatchRemoved(id=event.id)}
        case EventKind.SYNCED:
            return {"synced": common_pb2.WatchSynced()}
        case EventKind.RESET:
            return {"reset": common_pb2.WatchReset(reason=_REASONS[event.reason])}
        case EventKind.BOOKMARK | EventKind.LIVE:
            return {"bookmark": common_pb2.WatchBookmark()}
