"""A time limit for work in large numbers: calls, and writes to callers. To move it costs next to nothing."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio.lowlevel

T = TypeVar("T")


class Deadline:
    """Ends the work within it by a cancel scope: when its time has come, or at `end`.

    The timer is moved lazily: a later time only takes effect when the timer goes off.
    """

    __slots__ = ("_at", "_scope", "_timer", "is_over")

    def __init__(self, at: float = math.inf) -> None:
        """`at` is the time, as for `move`."""
        self.is_over = False
        """Whether the time has come, or `end` was called."""
        self._at = at
        self._scope: anyio.CancelScope | None = None
        self._timer: asyncio.TimerHandle | None = None

    def move(self, at: float) -> None:
        """Set the time, in seconds of the event loop's clock; infinite for none. A time that has come ends the work."""
        self._at = at
        if self._scope is not None and (self._timer is None or at < self._timer.when()):
            self._update_timer()

    def end(self) -> None:
        """End the work now; work that has not begun ends at its first wait."""
        if not self.is_over:
            self.is_over = True
            if self._scope is not None:
                self._scope.cancel()

    async def stop_if_over(self) -> None:
        """Raise the cancellation if the time is over. The work calls this before a step that must not happen then."""
        if self.is_over:
            await anyio.lowlevel.checkpoint_if_cancelled()

    async def run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do the work and return its result; None if it was ended by the time or by `end`.

        If the time is over before the work begins, the work still runs to its first wait.
        """
        try:
            with anyio.CancelScope() as self._scope:
                self._update_timer()
                if self.is_over:
                    self._scope.cancel()
                return await work()
            return None
        finally:
            self._scope = None
            self._cancel_timer()

    def _update_timer(self) -> None:
        """End the work if its time has come, else set the timer: then the loop calls this method again."""
        self._cancel_timer()
        if asyncio.get_running_loop().time() >= self._at:
            self.end()
        elif self._at < math.inf:
            self._timer = asyncio.get_running_loop().call_at(self._at, self._update_timer)

    def _cancel_timer(self) -> None:
        """Cancel the timer, if one is set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
