"""Delays of the shutdown by callers that have no call in the hub's queues, so that it waits for them as well."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class DrainDelays:
    """The blocks under way that delay a shutdown."""

    def __init__(self) -> None:
        self._block_ends: set[asyncio.Event] = set()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Delay the shutdown until the end of the block."""
        end = asyncio.Event()
        self._block_ends.add(end)
        try:
            yield
        finally:
            self._block_ends.discard(end)
            end.set()

    async def wait_for_present(self) -> None:
        """Wait until the blocks that are under way now have ended; blocks that begin meanwhile do not count."""
        for end in list(self._block_ends):
            await end.wait()

    async def wait_for_all(self) -> bool:
        """Wait until no block is under way; return False if none was."""
        was_held = bool(self._block_ends)
        while self._block_ends:
            await next(iter(self._block_ends)).wait()
        return was_held
