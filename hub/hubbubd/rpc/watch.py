"""Converts the runtime's watch events to serialized responses, alike for all services."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar, cast

from google.protobuf.message import Message

from hubbub.v1 import common_pb2
from hubbubd.runtime.records import EventKind, WatchEvent

T = TypeVar("T")
Step = dict[str, Message]

_REASONS = {name.removeprefix("RESET_REASON_"): number for name, number in common_pb2.ResetReason.items() if number}
"""The API's number of each reason of a reset."""


async def responses(
    events: AsyncIterator[WatchEvent[T]],
    response: Callable[..., Message],
    upsert: Callable[[T], Message],
    live: Callable[[object], Step] | None = None,
    shown: Callable[[T], None] = lambda _: None,
) -> AsyncGenerator[bytes, None]:
    """Yield each event as a serialized response, cached in the event for the watchers that share it.

    `shown` is called with each record before it is yielded.
    """
    async with aclosing(cast("AsyncGenerator[WatchEvent[T], None]", events)) as steps:
        async for event in steps:
            if event.record is not None:
                shown(event.record)
            if event.encoded is None:
                step = live(event.live) if live and event.kind is EventKind.LIVE else _step(event, upsert)
                event.encoded = response(resume_token=event.token, **step).SerializeToString()
            yield cast("bytes", event.encoded)


def _step(event: WatchEvent[T], upsert: Callable[[T], Message]) -> Step:
    match event.kind:
        case EventKind.UPSERT:
            return {"upsert": upsert(cast("T", event.record))}
        case EventKind.REMOVED:
            return {"removed": common_pb2.WatchRemoved(id=event.id)}
        case EventKind.SYNCED:
            return {"synced": common_pb2.WatchSynced()}
        case EventKind.RESET:
            return {"reset": common_pb2.WatchReset(reason=_REASONS[event.reason])}
        case EventKind.BOOKMARK | EventKind.LIVE:
            return {"bookmark": common_pb2.WatchBookmark()}
