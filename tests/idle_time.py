"""An event loop whose time passes faster while nobody has anything to do: for tests that wait, over real sockets.

All who take part are in this loop: a connection that is silent for a moment is so because somebody waits for a time.
While a thread works for the loop, time passes as always.
"""

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

from anyio import to_thread

LOOK_S = 0.001
"""For so long nothing came."""

SKIP_S = 0.05
"""So much time passes at once then, at most: what is only late, on a busy machine, misses no time limit by that."""


class _Idling(selectors.DefaultSelector):
    """A selector that moves the loop's time on rather than to wait for all of it."""

    skipped = 0.0
    threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= LOOK_S or self.threads:
            return super().select(timeout)
        ready = super().select(LOOK_S)
        if not ready:
            self.skipped += min(timeout - LOOK_S, SKIP_S)
        return ready


class IdleTimeLoop(asyncio.SelectorEventLoop):
    """`time()` is that of the machine, and what was skipped."""

    def __init__(self) -> None:
        self._idling = _Idling()
        super().__init__(self._idling)

    def time(self) -> float:
        """Seconds, from any moment on."""
        return time.monotonic() + self._idling.skipped

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """As always; time passes as always meanwhile."""
        future = super().run_in_executor(executor, func, *args)
        self.working(1)
        future.add_done_callback(lambda _: self.working(-1))
        return future

    def working(self, more: int) -> None:
        """So many more threads work for the loop."""
        self._idling.threads += more


_run_sync = to_thread.run_sync


async def _noticed(*args: Any, **options: Any) -> Any:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, IdleTimeLoop):
        return await _run_sync(*args, **options)
    loop.working(1)
    try:
        return await _run_sync(*args, **options)
    finally:
        loop.working(-1)


to_thread.run_sync = _noticed
