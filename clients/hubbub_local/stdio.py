"""The two pipes to another program, a host or an agent: lines from it and lines for it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from hubbub_shared.platform import pipes

READ_BYTES = 256 * 1024
"""The most bytes of one read."""

MAX_UNREAD_BYTES = 4 * 1024 * 1024
"""With more bytes waiting for the other end to read them, `wait_for_capacity` waits."""


BEGINNING_BYTES = 1000
"""Bytes that are kept of a line that is too long: its beginning says which message it is."""


class LineTooLong(Exception):
    """Stands for a line that is too long; it is yielded, not raised, as the lines after it can be read.

    `beginning` has its first BEGINNING_BYTES.
    """

    def __init__(self, beginning: bytes = b"") -> None:
        super().__init__()
        self.beginning = beginning


async def read_lines(descriptor: int, max_bytes: int) -> AsyncGenerator[bytes | LineTooLong, None]:
    """Yield each line that is not blank, without its end, until the descriptor is closed.

    LineTooLong stands for a line of more than `max_bytes`. What comes after the last line end is dropped.
    """
    parts: list[bytes] = []
    length, is_skipping, beginning = 0, False, b""
    while chunk := await _read(descriptor):
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            whole = b"".join((*parts, line))
            parts.clear()
            if is_skipping or len(whole) > max_bytes:
                yield LineTooLong(beginning if is_skipping else whole[:BEGINNING_BYTES])
            elif whole.strip():
                yield whole
            length, is_skipping = 0, False
        length += len(rest)
        if length > max_bytes:
            if not is_skipping:
                beginning = b"".join((*parts, rest))[:BEGINNING_BYTES]
            is_skipping = True
            parts.clear()
        elif rest:
            parts.append(rest)


async def _read(descriptor: int) -> bytes:
    """Return the next bytes of a descriptor; empty at its end, and when it is reset."""
    with suppress(OSError):  # a program that has ended may reset it
        return await pipes.read(descriptor, READ_BYTES)
    return b""


class PipeLineWriter:
    """Writes lines to the other program, in order. `on_closed` is called once if that program reads no more."""

    def __init__(self, descriptor: int, on_closed: Callable[[], None]) -> None:
        """Write nothing yet: `run` writes the lines that `queue_line` queues."""
        self._descriptor = descriptor
        self._on_closed = on_closed
        self._queued: deque[bytes] = deque()
        self._queued_bytes = 0
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._has_lines = asyncio.Event()  # wakes `run`
        self._written = asyncio.Event()
        self._written.set()

    def queue_line(self, message: bytes) -> None:
        """Queue a message, which must have no line end in it, to be written."""
        self._queued.append(message)
        self._queued_bytes += len(message)
        if self._queued_bytes > MAX_UNREAD_BYTES:
            self._has_capacity.clear()
        self._written.clear()
        self._has_lines.set()

    async def wait_for_capacity(self) -> None:
        """Wait until the other end has at most MAX_UNREAD_BYTES to read; for ever if that end is closed first."""
        await self._has_capacity.wait()

    async def wait_until_written(self) -> None:
        """Wait until all lines are written; for ever if the other end is closed first."""
        await self._written.wait()

    async def run(self) -> None:
        """Write until cancelled, or until the other end reads no more."""
        while True:
            await self._has_lines.wait()
            self._has_lines.clear()
            while self._queued:
                data = b"".join(line + b"\n" for line in self._queued)
                self._queued.clear()
                self._queued_bytes = 0
                if not await self._write(data):
                    self._on_closed()
                    return
                if self._queued_bytes <= MAX_UNREAD_BYTES:
                    self._has_capacity.set()
            self._written.set()

    async def _write(self, data: bytes) -> bool:
        """Write all of the data in pieces that do not block; return False if the other end reads no more."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[await pipes.write(self._descriptor, rest) :]
            except OSError:
                return False
        return True
