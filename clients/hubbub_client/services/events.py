"""`hub.events`: notifications, log lines and resource updates of the servers, live."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from functools import partial

from hubbub.v1 import event_pb2
from hubbub_client.data.conversion import enum_numbers, read
from hubbub_client.data.records import EPOCH, EventKind, ResourceUpdate, ServerEvent
from hubbub_client.services.service import HubService
from hubbub_client.watch import follow_stream


class Events(HubService):
    """EventService. Every method raises HubbubError; NotFound if the server does not exist."""

    async def watch(
        self,
        *,
        server: str | None = None,
        kinds: Collection[EventKind] = (),
        on_listening: Callable[[], None] | None = None,
        on_dropped: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[ServerEvent, None]:
        """Yield events from now on; events are lost while there is no connection to the hub.

        `on_listening` is called once for each connection to the hub, when its events begin to arrive. `on_dropped`
        gets the number of events that a connection has lost so far because they were read too slowly.
        """
        numbers = enum_numbers(event_pb2.EventKind.DESCRIPTOR, kinds)
        request = event_pb2.WatchEventsRequest(filter=event_pb2.EventFilter(server=server or "", kinds=numbers))
        dropped_count, has_begun = 0, False

        def open_stream() -> AsyncGenerator[event_pb2.WatchEventsResponse, None]:
            """Open a stream, whose dropped events the hub counts from 0 again."""
            nonlocal dropped_count, has_begun
            dropped_count, has_begun = 0, False
            return self._connection.stream(lambda hub: hub.events.WatchEvents, request)

        async with contextlib.aclosing(follow_stream(self._connection, open_stream)) as steps:
            async for step in steps:
                if not has_begun and on_listening is not None:
                    on_listening()
                has_begun = True
                if step.dropped > dropped_count and on_dropped is not None:
                    on_dropped(step.dropped)
                dropped_count = step.dropped
                if step.HasField("event"):
                    yield read(ServerEvent, step.event)

    async def logs(self, server: str, *, lines: int = 100) -> Sequence[ServerEvent]:
        """Return the last log messages and stderr lines of a server, oldest first; the hub keeps at most 500."""
        request = event_pb2.TailLogsRequest(server=server, lines=lines)
        async with contextlib.aclosing(self._connection.stream(lambda hub: hub.events.TailLogs, request)) as steps:
            return [read(ServerEvent, step.event) async for step in steps if step.HasField("event")]

    async def follow_logs(self, server: str, *, lines: int = 100) -> AsyncGenerator[ServerEvent, None]:
        """Yield the last log lines of a server, then new ones, each once."""
        request = event_pb2.TailLogsRequest(server=server, lines=lines, follow=True)
        # A stream that is opened again begins with lines that were yielded before: those up to `seen`.
        last = seen = EPOCH

        def open_stream() -> AsyncGenerator[event_pb2.TailLogsResponse, None]:
            """Open a stream, and note up to which time its lines were yielded before."""
            nonlocal seen
            seen = last
            return self._connection.stream(lambda hub: hub.events.TailLogs, request)

        async with contextlib.aclosing(follow_stream(self._connection, open_stream)) as steps:
            async for step in steps:
                line = read(ServerEvent, step.event) if step.HasField("event") else None
                if line is not None and line.at > seen:
                    last = line.at
                    yield line

    async def resource(self, server: str, uri: str) -> AsyncGenerator[ResourceUpdate, None]:
        """Yield the contents of a resource now and after each change; closing the iterator unsubscribes."""
        request = event_pb2.WatchResourceRequest(server=server, uri=uri)
        open_stream = partial(self._connection.stream, lambda hub: hub.events.WatchResource, request)
        async with contextlib.aclosing(follow_stream(self._connection, open_stream)) as steps:
            async for step in steps:
                if step.HasField("update"):
                    yield read(ResourceUpdate, step.update)
