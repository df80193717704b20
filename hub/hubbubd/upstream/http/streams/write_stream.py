"""The sending side of HTTP: each message is a request of its own, in a task with the context of its sender."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, RequestId

from hubbubd.upstream import faults
from hubbubd.upstream.messages.codec import serialize
from hubbubd.upstream.messages.streams import MarkLost

MAX_ANSWERS: Final = 64
"""The most answers that one server has not accepted yet; at this limit nothing more is read of it (backpressure)."""

Post = Callable[[JSONRPCMessage, Mapping[str, str], bytes], Awaitable[None]]
"""Sends a message with these headers and this content, and handles its response."""


class HttpWriteStream:
    """A write stream.

    Nothing overtakes the first notification: before it, a server may refuse everything. Each further notification is
    sent when the server has accepted the one before and all earlier answers, except for a cancellation, which cannot
    wait. Requests and answers are sent concurrently. While MAX_ANSWERS answers are not accepted, the next one waits.
    """

    def __init__(self, post: Post, mark_lost: MarkLost) -> None:
        self._post = post
        self._mark_lost = mark_lost
        self._notification_order = asyncio.Lock()
        self._first_notification: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._notifications: set[asyncio.Task[None]] = set()
        self._answers: set[asyncio.Task[None]] = set()
        self._requests: dict[RequestId, asyncio.Task[None]] = {}
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Start to send a message when it is its turn. Raises ClosedResourceError; TypeError for what is not JSON."""
        if self._closed:
            raise anyio.ClosedResourceError
        message, metadata = item.message, item.metadata
        headers = (metadata.headers if isinstance(metadata, ClientMessageMetadata) else None) or {}
        content = serialize(message)
        if isinstance(message, JSONRPCNotification):
            task = await self._start_notification(message, headers, content)
            self._first_notification = self._first_notification or task
            self._notifications.add(task)
            task.add_done_callback(self._notifications.discard)
            return
        if self._first_notification is not None and not self._first_notification.done():
            await asyncio.wait([self._first_notification])
        if isinstance(message, JSONRPCRequest):
            task = self._requests[message.id] = self.start_task(self._post(message, headers, content))
            task.add_done_callback(lambda done: self._forget_request(message.id, done))
            return
        while len(self._answers) >= MAX_ANSWERS:
            await asyncio.wait(self._answers, return_when=asyncio.FIRST_COMPLETED)
        task = self.start_task(self._post(message, headers, content))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _start_notification(
        self, message: JSONRPCNotification, headers: Mapping[str, str], content: bytes
    ) -> asyncio.Task[None]:
        """Start to send a notification once those before it are accepted, a cancellation at once; return its task."""
        if message.method == "notifications/cancelled":
            return self.start_task(self._post(message, headers, content))
        await self._notification_order.acquire()
        task = self.start_task(self._post_after({*self._answers}, message, headers, content))
        task.add_done_callback(lambda _: self._notification_order.release())
        return task

    async def wait_for_notifications(self) -> None:
        """Wait until the server has accepted the notifications that were sent."""
        if self._notifications:
            await asyncio.wait(self._notifications)

    def abort_request(self, request_id: RequestId | None) -> None:
        """Close the connection of a request whose response is still to come, if there is one."""
        if request_id is not None and (task := self._requests.get(request_id)) is not None:
            task.cancel()

    def start_task(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Start a task in a copy of the caller's context; `end` cancels it."""
        task = asyncio.create_task(self._run_to_end(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Accept no more messages; tasks under way go on."""
        self._closed = True

    async def end(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        self._closed = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _post_after(
        self, earlier: set[asyncio.Task[None]], message: JSONRPCMessage, headers: Mapping[str, str], content: bytes
    ) -> None:
        """Send a message once earlier ones have been accepted."""
        if earlier:
            await asyncio.wait(earlier)
        await self._post(message, headers, content)

    async def _run_to_end(self, work: Awaitable[None]) -> None:
        """Run the work of a task; an unexpected error marks the connection as lost."""
        try:
            await work
        except Exception as exc:  # noqa: BLE001 - an unexpected error ends the connection
            self._mark_lost(faults.fault_from_exception(exc))

    def _forget_request(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        """Drop the task of a request that has ended, unless a newer request has its id."""
        if self._requests.get(request_id) is task:
            del self._requests[request_id]
