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
"""The most answers that wait for one server to take them, before it is not read any more (backpressure)."""

Post = Callable[[JSONRPCMessage, Mapping[str, str], bytes], Awaitable[None]]
"""Sends a message with these headers and this content, and handles its response."""


class HttpWriteStream:
    """A write stream.

    Nothing overtakes the first notification: a server may serve nobody before. The others go in order, each when the
    one before was taken and the answers before it, except for a cancellation, which cannot wait. Requests and answers
    go side by side. While a server takes none of MAX_ANSWERS answers, sending another one waits.
    """

    def __init__(self, post: Post, mark_lost: MarkLost) -> None:
        self._post = post
        self._mark_lost = mark_lost
        self._in_order = asyncio.Lock()
        self._first: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._notifications: set[asyncio.Task[None]] = set()
        self._answers: set[asyncio.Task[None]] = set()
        self._requests: dict[RequestId, asyncio.Task[None]] = {}
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """As `streams.WriteStream`. Raises TypeError for what JSON cannot express."""
        if self._closed:
            raise anyio.ClosedResourceError
        message, given = item.message, item.metadata
        headers = (given.headers if isinstance(given, ClientMessageMetadata) else None) or {}
        content = serialize(message)
        if isinstance(message, JSONRPCNotification):
            told = await self._notify(message, headers, content)
            self._first = self._first or told
            self._notifications.add(told)
            told.add_done_callback(self._notifications.discard)
            return
        if self._first is not None and not self._first.done():
            await asyncio.wait([self._first])
        if isinstance(message, JSONRPCRequest):
            asked = self._requests[message.id] = self.start(self._post(message, headers, content))
            asked.add_done_callback(lambda done: self._forget(message.id, done))
            return
        while len(self._answers) >= MAX_ANSWERS:
            await asyncio.wait(self._answers, return_when=asyncio.FIRST_COMPLETED)
        answered = self.start(self._post(message, headers, content))
        self._answers.add(answered)
        answered.add_done_callback(self._answers.discard)

    async def _notify(
        self, message: JSONRPCNotification, headers: Mapping[str, str], content: bytes
    ) -> asyncio.Task[None]:
        if message.method == "notifications/cancelled":
            return self.start(self._post(message, headers, content))
        await self._in_order.acquire()
        told = self.start(self._post_after({*self._answers}, message, headers, content))
        told.add_done_callback(lambda _: self._in_order.release())
        return told

    async def notified(self) -> None:
        """Wait until the notifications that were sent have been taken."""
        if self._notifications:
            await asyncio.wait(self._notifications)

    def abort(self, request_id: RequestId | None) -> None:
        """Close the connection of a request whose response is still to come, if there is one."""
        if request_id is not None and (task := self._requests.get(request_id)) is not None:
            task.cancel()

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Do something in a copy of the caller's context, until `end` at the latest."""
        task = asyncio.create_task(self._done(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Take no more messages; what is under way goes on."""
        self._closed = True

    async def end(self) -> None:
        """End all that is under way."""
        self._closed = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _post_after(
        self, before: set[asyncio.Task[None]], message: JSONRPCMessage, headers: Mapping[str, str], content: bytes
    ) -> None:
        if before:
            await asyncio.wait(before)
        await self._post(message, headers, content)

    async def _done(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as exc:  # noqa: BLE001 - a fault of the hub's own ends the connection, and is told
            self._mark_lost(faults.fault_from_exception(exc))

    def _forget(self, request_id: RequestId, done: asyncio.Task[None]) -> None:
        if self._requests.get(request_id) is done:
            del self._requests[request_id]
