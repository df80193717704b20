"""Pipes that this process was given, read and written without changing their mode, as others may share them.

A descriptor that is ready takes a small write without blocking, and gives what it has (poll(2)). On Windows a thread
reads and writes, as pipes cannot be waited for there.
"""

import asyncio
import os
import select
import sys
from typing import Final

WRITE_BYTES: Final = 4096
"""The most bytes that a pipe which is ready takes without blocking: PIPE_BUF, pipe(7)."""


async def read(descriptor: int, max_bytes: int) -> bytes:
    """Return the next bytes, at most `max_bytes`; empty at the end. Raises OSError."""
    if sys.platform == "win32":
        return await asyncio.get_running_loop().run_in_executor(None, os.read, descriptor, max_bytes)
    await _wait_until_ready(descriptor, select.POLLIN)
    return os.read(descriptor, max_bytes)


async def write(descriptor: int, data: memoryview) -> int:
    """Write the beginning of the data, at most WRITE_BYTES, and return how much that was. Raises OSError."""
    if sys.platform == "win32":
        return await asyncio.get_running_loop().run_in_executor(None, os.write, descriptor, data[:WRITE_BYTES])
    await _wait_until_ready(descriptor, select.POLLOUT)
    return os.write(descriptor, data[:WRITE_BYTES])


def has_hung_up(descriptor: int) -> bool:
    """Return whether nobody writes to a descriptor any more, though something may be left to read; False on Windows."""
    if sys.platform == "win32":
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLHUP | getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


if sys.platform != "win32":

    async def _wait_until_ready(descriptor: int, event: int) -> None:
        """Wait until a descriptor can be read or written. A file always can."""
        poll = select.poll()
        poll.register(descriptor, event)
        if poll.poll(0):
            return
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (
            (loop.add_reader, loop.remove_reader) if event == select.POLLIN else (loop.add_writer, loop.remove_writer)
        )
        add(descriptor, _set_ready, ready)
        try:
            await ready
        finally:
            remove(descriptor)

    def _set_ready(ready: "asyncio.Future[None]") -> None:
        if not ready.done():
            ready.set_result(None)
