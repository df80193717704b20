"""Progress and log messages of calls of this member's servers, for a member that listens."""

from collections import OrderedDict
from collections.abc import AsyncGenerator

import anyio

from hubbub.fleet.v1 import fleet_pb2 as pb
from hubbubd.core.calls.call_states import Call
from hubbubd.rpc.messages import api_records
from hubbubd.runtime.calls import LiveCalls, LiveEvent, ProgressEvent
from hubbubd.runtime.ownership import Ownership
from hubbubd.runtime.records import BOOKMARK_S

MAX_WAITING = 1000
"""While as many events wait to be written, log messages are dropped, and progress displaces the oldest event."""


async def stream_live_events(live: LiveCalls, ownership: Ownership) -> AsyncGenerator[pb.LiveResponse]:
    """Yield progress and log messages of calls from now on, and signs of life in between, the first at once.

    Events of calls that other members carry out are left out.
    """
    waiting: OrderedDict[object, LiveEvent] = OrderedDict()
    news = anyio.Event()

    def enqueue(call: Call, event: LiveEvent) -> None:
        """Queue an event of a call of this member; of each call only the newest progress stays queued.

        When MAX_WAITING events wait, progress displaces the oldest event, and a log message is dropped.
        """
        if not ownership.owns(call.server):
            return
        if isinstance(event, ProgressEvent):
            waiting.pop(call.id, None)  # the newest replaces it, at the end of the queue, after earlier log messages
            waiting[call.id] = event
            if len(waiting) > MAX_WAITING:
                waiting.popitem(last=False)
        elif len(waiting) < MAX_WAITING:
            waiting[object()] = event
        news.set()

    with live.follow(enqueue):
        yield pb.LiveResponse()
        while True:
            while waiting:
                yield _render_event(waiting.popitem(last=False)[1])
            news = anyio.Event()
            with anyio.move_on_after(BOOKMARK_S) as idle:
                await news.wait()
            if idle.cancelled_caught:
                yield pb.LiveResponse()


def _render_event(event: LiveEvent) -> pb.LiveResponse:
    """Return the response with an event."""
    if isinstance(event, ProgressEvent):
        return pb.LiveResponse(progress=api_records.progress(event))
    return pb.LiveResponse(log=api_records.call_log(event))
