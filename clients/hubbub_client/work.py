"""A worker, to which the hub assigns pending requests (`hub.inbox.work`)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

from hubbub.v1 import inbox_pb2
from hubbub_client.errors import HubbubError
from hubbub_client.link import Link
from hubbub_client.records import PendingRequest
from hubbub_client.watch import listen

OnError = Callable[[PendingRequest, Exception], None]
Say = Callable[[inbox_pb2.WorkRequest], Awaitable[None]]

# Not errors: somebody else answered the request, or the hub withdrew it.
SETTLED = frozenset(("ALREADY_ANSWERED", "ALREADY_CLAIMED", "CLAIM_LOST", "REQUEST_WITHDRAWN", "REQUEST_EXPIRED"))

log = logging.getLogger(__name__)


class Worker:
    """One worker, over any number of streams. When a stream breaks, its pending requests are cancelled here."""

    def __init__(
        self,
        link: Link,
        *,
        read: Callable[[inbox_pb2.PendingRequest], PendingRequest],
        handle: Callable[[PendingRequest], Awaitable[object]],
        condition: inbox_pb2.PendingRequestFilter,
        capacity: int,
        on_error: OnError | None,
        on_listening: Callable[[], None] | None,
    ) -> None:
        self._link = link
        self._read = read
        self._handle = handle
        self._ready = inbox_pb2.WorkRequest.Ready(filter=condition, capacity=capacity)
        self._on_error = on_error or log_error
        self._on_listening = on_listening
        self._busy: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Work until cancelled. Raises HubbubError, and what `on_error` raises."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._listen(tasks)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _listen(self, tasks: asyncio.TaskGroup) -> None:
        async with contextlib.aclosing(listen(self._link, self._steps)) as steps:
            async for say, step in steps:
                match step.WhichOneof("event"):
                    case "assigned":
                        self._begin(tasks, say, self._read(step.assigned))
                    # Not after an answer: it may be this worker's own, which must not be cancelled halfway.
                    case "revoked" if step.revoked.state != inbox_pb2.PENDING_REQUEST_STATE_ANSWERED:
                        if (handling := self._busy.get(step.revoked.id)) is not None:
                            handling.cancel()
                    case "bookmark" if self._on_listening is not None:
                        self._on_listening()
                    case _:
                        pass

    async def _steps(self) -> AsyncGenerator[tuple[Say, inbox_pb2.WorkResponse], None]:
        async with self._link.dialogue(lambda hub: hub.inbox.Work) as (say, responses):
            try:
                await say(inbox_pb2.WorkRequest(ready=self._ready))
                async for response in responses:
                    yield say, response
            finally:
                for handling in self._busy.values():
                    handling.cancel()

    def _begin(self, tasks: asyncio.TaskGroup, say: Say, request: PendingRequest) -> None:
        handling = self._busy[request.id] = tasks.create_task(self._answer(say, request))
        handling.add_done_callback(partial(self._forget, request.id))  # a task can be cancelled before it begins

    def _forget(self, id_: str, handling: "asyncio.Task[None] | None") -> None:
        if self._busy.get(id_) is handling:
            del self._busy[id_]

    async def _answer(self, say: Say, request: PendingRequest) -> None:
        try:
            await self._handle(request)
        except Exception as error:  # noqa: BLE001 - one failure must not end the others
            if not isinstance(error, HubbubError) or error.reason not in SETTLED:
                self._on_error(request, error)
        finally:
            self._forget(request.id, asyncio.current_task())
        with contextlib.suppress(HubbubError):  # if the stream broke, the hub has given the request to others
            await say(inbox_pb2.WorkRequest(skip=inbox_pb2.WorkRequest.Skip(id=request.id)))


def log_error(request: PendingRequest, error: Exception) -> None:
    """Log that a pending request was not answered, and why."""
    log.error("request %s of %s was not answered", request.id, request.server, exc_info=error)
