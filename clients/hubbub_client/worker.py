"""A worker, to which the hub assigns pending requests (`hub.inbox.work`, and callbacks of a call)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from hubbub.v1 import inbox_pb2
from hubbub_client.data.records import PendingRequest
from hubbub_client.errors import HubbubError
from hubbub_client.transport.connection import HubConnection
from hubbub_client.watch import follow_stream

OnError = Callable[[PendingRequest, Exception], None]
SendStep = Callable[[inbox_pb2.WorkRequest], Awaitable[None]]

# Not errors: the request has an answer, also one of several of this worker itself, or the hub withdrew it.
SETTLED = frozenset(
    (
        "ALREADY_ANSWERED",
        "ALREADY_APPROVED",
        "ALREADY_CLAIMED",
        "CLAIM_LOST",
        "REQUEST_WITHDRAWN",
        "REQUEST_EXPIRED",
    )
)

log = logging.getLogger(__name__)


class Assignments:
    """The pending requests that the hub has assigned to a worker, each with a task that answers it."""

    def __init__(self, handle: Callable[[PendingRequest], Awaitable[object]], on_error: OnError | None) -> None:
        self._handle = handle
        self._on_error = on_error or log_error
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, tasks: asyncio.TaskGroup, request: PendingRequest, skip: Callable[[str], Awaitable[None]]) -> None:
        """Start a task that handles a pending request, then calls `skip`; what `on_error` raises ends all tasks."""
        task = self._tasks[request.id] = tasks.create_task(self._answer(request, skip))
        task.add_done_callback(partial(self._remove_task, request.id))  # a task can be cancelled before it begins

    def revoke(self, revoked: inbox_pb2.WorkResponse.Revoked) -> None:
        """Cancel the handling of a pending request that the hub has revoked."""
        # Not after an answer: it may be this worker's own, which must not be cancelled halfway.
        if revoked.state != inbox_pb2.PENDING_REQUEST_STATE_ANSWERED:
            task = self._tasks.get(revoked.id)
            if task is not None:
                task.cancel()

    def cancel_all(self) -> None:
        """Cancel the handling of all pending requests."""
        for task in self._tasks.values():
            task.cancel()

    def _remove_task(self, id_: str, task: "asyncio.Task[None] | None") -> None:
        """Forget a task, unless another one handles the same pending request by now."""
        if self._tasks.get(id_) is task:
            del self._tasks[id_]

    async def _answer(self, request: PendingRequest, skip: Callable[[str], Awaitable[None]]) -> None:
        """Handle a request, then skip it at the hub, in case its handler left it to other workers."""
        try:
            await self._handle(request)
        except Exception as error:  # noqa: BLE001 - one failure must not end the others
            if not isinstance(error, HubbubError) or error.reason not in SETTLED:
                self._on_error(request, error)
        finally:
            self._remove_task(request.id, asyncio.current_task())
        with contextlib.suppress(HubbubError):  # if the stream broke, the hub has given the request to others
            await skip(request.id)


async def run_in_task_group(work: Callable[[asyncio.TaskGroup], Coroutine[Any, Any, None]]) -> None:
    """Run work that starts tasks in a group until it is cancelled. Raises one exception, not a group of them."""
    try:
        async with asyncio.TaskGroup() as tasks:
            await work(tasks)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


class Worker:
    """One worker, over any number of streams. When a stream breaks, its pending requests are cancelled here."""

    def __init__(
        self,
        connection: HubConnection,
        *,
        read: Callable[[inbox_pb2.PendingRequest], PendingRequest],
        handle: Callable[[PendingRequest], Awaitable[object]],
        condition: inbox_pb2.PendingRequestFilter,
        capacity: int,
        on_error: OnError | None,
        on_listening: Callable[[], None] | None,
    ) -> None:
        """`read` makes a record of a message, `handle` answers it, `on_listening` is called while requests can come.

        The hub assigns pending requests that match `condition`, up to `capacity` at once.
        """
        self._connection = connection
        self._read = read
        self._assignments = Assignments(handle, on_error)
        self._ready = inbox_pb2.WorkRequest.Ready(filter=condition, capacity=capacity)
        self._on_listening = on_listening

    async def run(self) -> None:
        """Work until cancelled. Raises HubbubError, and what `on_error` raises."""
        await run_in_task_group(self._listen)

    async def _listen(self, tasks: asyncio.TaskGroup) -> None:
        """Handle the requests that the hub assigns, over one stream after the other."""
        async with contextlib.aclosing(follow_stream(self._connection, self._stream_steps)) as steps:
            async for send, step in steps:
                match step.WhichOneof("event"):
                    case "assigned":
                        self._assignments.start(tasks, self._read(step.assigned), partial(_skip, send))
                    case "revoked":
                        self._assignments.revoke(step.revoked)
                    case "bookmark" if self._on_listening is not None:
                        self._on_listening()
                    case _:
                        pass

    async def _stream_steps(self) -> AsyncGenerator[tuple[SendStep, inbox_pb2.WorkResponse], None]:
        """Open a stream, and yield each step with the function that writes to it."""
        async with self._connection.open_dialogue(lambda hub: hub.inbox.Work) as (send, responses):
            try:
                await send(inbox_pb2.WorkRequest(ready=self._ready))
                async for response in responses:
                    yield send, response
            finally:
                self._assignments.cancel_all()


async def _skip(send: SendStep, id_: str) -> None:
    """Leave a pending request to other workers."""
    await send(inbox_pb2.WorkRequest(skip=inbox_pb2.WorkRequest.Skip(id=id_)))


def log_error(request: PendingRequest, error: Exception) -> None:
    """Log that a pending request was not answered, and why."""
    log.error("request %s of %s was not answered", request.id, request.server, exc_info=error)
