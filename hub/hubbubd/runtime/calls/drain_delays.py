"""What the shutdown waits for besides the calls in the hub's queues: callers that have no call in these queues."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class DrainDelays:
    """The blocks under way for whose end a shutdown waits."""

    def __init__(self) -> None:
        self._ends: set[asyncio.Event] = set()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Delay the shutdown until the end of the block."""
        end = asyncio.Event()
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)
            end.set()

    async def wait_for_present(self) -> None:
        """Wait until the blocks that are under way now have ended; blocks that begin meanwhile do not count."""
        for end in list(self._ends):
            await end.wait()

    async def wait_for_all(self) -> bool:
        """Wait until no block is under way; return False if none was."""
        was_held = bool(self._ends)
        while self._ends:
            await next(iter(self._ends)).wait()
        return was_held
