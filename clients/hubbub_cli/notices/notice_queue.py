"""Notifications for every pending request that opens: bounded, and never blocking the watch."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from hubbub_cli.output.printer import note
from hubbub_client.data.records import PendingRequest
from hubbub_client.data.watch_events import Removed, Upsert, WatchStep

# Concurrent and waiting deliveries of each way; more than that are dropped and reported.
WORKERS = 16
MAX_WAITING = 1000

Deliver = Callable[[PendingRequest], Awaitable[None]]


class Notices:
    """Delivers each pending request that opens once by each of `deliveries`, which report their own failures."""

    def __init__(self, *deliveries: Deliver) -> None:
        self._routes = [
            (deliver, *anyio.create_memory_object_stream[PendingRequest](MAX_WAITING)) for deliver in deliveries
        ]
        # Ids of the requests that are open, so that each is delivered once.
        self._open: set[str] = set()
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        """Start WORKERS tasks for each way of delivery."""
        await self._group.__aenter__()
        for deliver, _, waiting in self._routes:
            for _ in range(WORKERS):
                self._group.start_soon(_deliver_waiting, deliver, waiting)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all deliveries, also those under way, and close the queues."""
        self._group.cancel_scope.cancel()
        # Cancelled rather than raised into: a task group would wrap the error in an exception group.
        await self._group.__aexit__(None, None, None)
        for _, send, waiting in self._routes:
            send.close()
            waiting.close()

    def queue_opened(self, event: WatchStep) -> None:
        """Queue a delivery by each way if this event opens a pending request, once until the request is closed."""
        match event:
            case Upsert(record=PendingRequest(state="open") as request):
                if request.id not in self._open:
                    self._open.add(request.id)
                    for _, send, _ in self._routes:
                        _queue_delivery(send, request)
            case Upsert(record=PendingRequest(id=name)) | Removed(id=name):
                self._open.discard(name)
            case _:
                pass


def _queue_delivery(send: MemoryObjectSendStream[PendingRequest], request: PendingRequest) -> None:
    """Queue a request for delivery, or print that it is dropped if the queue is full."""
    try:
        send.send_nowait(request)
    except anyio.WouldBlock:
        note(f"{request.id}: not told, {MAX_WAITING} others wait")


async def _deliver_waiting(deliver: Deliver, waiting: MemoryObjectReceiveStream[PendingRequest]) -> None:
    """Deliver queued requests one at a time, until the queue is closed."""
    async for request in waiting:
        await deliver(request)
