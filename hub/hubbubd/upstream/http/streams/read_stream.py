"""Messages that have arrived over HTTP, each with the context of its stream, until their link takes them."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

from hubbubd.upstream.messages.codec import BadMessage
from hubbubd.upstream.messages.exchange import SIZE


class HttpReadStream:
    """A read stream for any number of response streams. Backpressure: each waits until its message is taken."""

    def __init__(self) -> None:
        self.last_context: Context | None = None
        """The context of the stream on which the last received item arrived."""
        self.settle: Callable[[JSONRPCResponse | JSONRPCError], bool] = lambda _: False
        """Passes a response to the request that waits for it, while nothing before it is unread; False if none does."""
        self._unread: deque[tuple[Context, SessionMessage | Exception, asyncio.Future[None]]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._ended = False

    async def put(self, item: JSONRPCMessage | BadMessage, size: int) -> None:
        """Add a message of `size` bytes with the caller's context; wait until it is taken. Ignored after `end`.

        A response is instead passed at once to the request that waits for it, if nothing before it is unread.
        """
        if self._ended:
            return
        if isinstance(item, JSONRPCResponse | JSONRPCError) and self._is_reader_waiting and self.settle(item):
            return
        SIZE.set(size)
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        message = item if isinstance(item, BadMessage) else SessionMessage(item)
        self._unread.append((copy_context(), message, taken))
        self._wake_reader()
        await taken

    @property
    def _is_reader_waiting(self) -> bool:
        """Whether nothing is unread and `receive` waits for more."""
        return not self._unread and self._reader is not None and not self._reader.done()

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or why one could not be parsed. Raises EndOfStream."""
        while not self._unread:
            if self._ended:
                raise anyio.EndOfStream
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        self.last_context, item, taken = self._unread.popleft()
        if not taken.done():
            taken.set_result(None)
        return item

    def end(self) -> None:
        """End the stream, after the messages that were put into it."""
        self._ended = True
        self._wake_reader()

    async def aclose(self) -> None:
        """Discard the messages that wait; `put` returns for each of them."""
        self.end()
        while self._unread:
            taken = self._unread.popleft()[2]
            if not taken.done():
                taken.set_result(None)

    def _wake_reader(self) -> None:
        """Wake `receive`: a message has arrived, or the stream has ended."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
