"""A worker: the hub hands it requests, and it answers them (`hub.inbox.work`)."""

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from hubbub.v1 import inbox_pb2
from hubbub_client.errors import HubbubError
from hubbub_client.link import Link
from hubbub_client.records import PendingRequest
from hubbub_client.watch import listen

OnError = Callable[[PendingRequest, Exception], None]
Say = Callable[[inbox_pb2.WorkRequest], Awaitable[None]]

# Somebody else settled it, or the hub took it back: nobody's mistake.
SETTLED = frozenset(("ALREADY_ANSWERED", "ALREADY_CLAIMED", "CLAIM_LOST", "REQUEST_WITHDRAWN", "REQUEST_EXPIRED"))

log = logging.getLogger(__name__)


class Worker:
    """One worker, over any number of connections. What it was doing for a stream that broke is cancelled."""

    def __init__(
        self,
        link: Link,
        read: Callable[[inbox_pb2.PendingRequest], PendingRequest],
        handle: Callable[[PendingRequest], Awaitable[object]],
        condition: inbox_pb2.PendingRequestFilter,
        capacity: int,
        on_error: OnError | None,
    ) -> None:
        self._link = link
        self._read = read
        self._handle = handle
        self._ready = inbox_pb2.WorkRequest.Ready(filter=condition, capacity=capacity)
        self._on_error = on_error or _log
        self._busy: dict[str, anyio.CancelScope] = {}

    async def run(self) -> None:
        """Works until cancelled. Raises HubbubError."""
        try:
            async with anyio.create_task_group() as tasks:
                await self._listen(tasks)
        except ExceptionGroup as group:  # answers raise nothing, so it has just the one of listening
            raise group.exceptions[0] from None

    async def _listen(self, tasks: TaskGroup) -> None:
        async with contextlib.aclosing(listen(self._link, self._steps)) as steps:
            async for say, step in steps:
                match step.WhichOneof("event"):
                    case "assigned":
                        tasks.start_soon(self._answer, say, self._read(step.assigned))
                    # Who holds the claim has answered it: its own answer must not be cut off by the news of it.
                    case "revoked" if step.revoked.state != inbox_pb2.PENDING_REQUEST_STATE_ANSWERED:
                        if (scope := self._busy.get(step.revoked.id)) is not None:
                            scope.cancel()
                    case _:
                        pass

    async def _steps(self) -> AsyncGenerator[tuple[Say, inbox_pb2.WorkResponse], None]:
        async with self._link.dialogue(lambda hub: hub.inbox.Work) as (say, responses):
            try:
                await say(inbox_pb2.WorkRequest(ready=self._ready))
                async for response in responses:
                    yield say, response
            finally:
                for scope in self._busy.values():
                    scope.cancel()

    async def _answer(self, say: Say, request: PendingRequest) -> None:
        scope = self._busy[request.id] = anyio.CancelScope()
        try:
            with scope:
                await self._handle(request)
        except Exception as error:  # noqa: BLE001 - one request's failure must not end the others
            if not isinstance(error, HubbubError) or error.reason not in SETTLED:
                self._on_error(request, error)
        finally:
            if self._busy.get(request.id) is scope:
                del self._busy[request.id]
        if not scope.cancelled_caught:
            with contextlib.suppress(HubbubError):  # a stream that broke has given it to others already
                await say(inbox_pb2.WorkRequest(skip=inbox_pb2.WorkRequest.Skip(id=request.id)))


def _log(request: PendingRequest, error: Exception) -> None:
    log.error("request %s of %s was not answered", request.id, request.server, exc_info=error)
