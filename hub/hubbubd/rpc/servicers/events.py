"""EventService: live events, logs, watched resources."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from hubbub.v1 import event_pb2 as pb
from hubbubd.core.access import Permission
from hubbubd.rpc.auth import access
from hubbubd.rpc.messages import api_records, requests
from hubbubd.runtime.servers import EventFeed, EventStep, Subscriptions

LOG_LINES = 100
"""How many lines TailLogs returns by default."""


class EventService:
    """Implements hubbub.v1.EventService."""

    def __init__(self, events: EventFeed, subscriptions: Subscriptions) -> None:
        self._events = events
        self._subscriptions = subscriptions

    async def watch_events(self, request: pb.WatchEventsRequest) -> AsyncGenerator[bytes, None]:
        """Stream events from now on."""
        event_filter = requests.event_filter(request.filter, access.observable_servers())
        if event_filter.server:
            access.check_server(event_filter.server, Permission.SEE)
        async with aclosing(self._events.watch(event_filter)) as steps:
            async for step in steps:
                yield _serialize_step(step)

    async def tail_logs(self, request: pb.TailLogsRequest) -> AsyncGenerator[bytes, None]:
        """Stream the last lines of a server's log, and further ones if requested."""
        server = access.check_server(requests.identifier(request.server, "server"), Permission.SEE)
        lines = requests.log_lines(request.lines) or LOG_LINES
        async with aclosing(self._events.tail(server, lines, follow=request.follow)) as steps:
            async for step in steps:
                yield _serialize_step(step)

    async def watch_resource(self, request: pb.WatchResourceRequest) -> AsyncGenerator[bytes, None]:
        """Stream the contents of a resource, again after each change."""
        server = access.check_server(requests.identifier(request.server, "server"), Permission.CALL)
        uri = requests.identifier(request.uri, "uri", longest=requests.MAX_URI)
        full_scope = access.observable_servers()
        async with aclosing(self._subscriptions.watch(server, uri)) as steps:
            async for update in steps:
                # None is a sign of life.
                message = update and api_records.resource_update(update, full_scope)
                yield pb.WatchResourceResponse(update=message).SerializeToString()


def _serialize_step(step: EventStep) -> bytes:
    """Serialize a step. The event's bytes are cached, as WatchEvents and TailLogs have responses of the same layout."""
    event = step.event
    if event is None:
        return pb.WatchEventsResponse(dropped=step.dropped).SerializeToString()
    if event.encoded is None:
        event.encoded = pb.WatchEventsResponse(event=api_records.event(event)).SerializeToString()
    dropped_bytes = pb.WatchEventsResponse(dropped=step.dropped).SerializeToString() if step.dropped else b""
    return cast("bytes", event.encoded) + dropped_bytes  # serialized messages one after the other are read as one
