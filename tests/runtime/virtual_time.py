"""An event loop whose time passes only while everybody waits, and then at once."""

import asyncio
import selectors
from typing import Any

HORIZON_S = 400 * 86400.0
"""A test that waits for longer than this waits for ever."""


class _Waiting(selectors.DefaultSelector):
    """A selector that moves the loop's time on instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self.now > HORIZON_S:
            raise RuntimeError("nobody will ever wake what waits here")
        self.now += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` jumps to the next timer when nothing is ready to run; nothing else makes it pass."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        super().__init__(self._waiting)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._waiting.now

    def run_in_executor(self, *_: Any) -> Any:
        """Refused: a thread knows nothing of this time."""
        raise RuntimeError("no threads in virtual time")
