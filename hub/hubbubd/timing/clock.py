"""The hub's two clocks: wall-clock time for timestamps, and the loop's monotonic clock for waiting."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import anyio
import structlog

from hubbub_shared.platform.clocks import is_synchronised, suspended_s

STEP_S = 1.0
"""Seconds of drift from the system's clock that are tolerated, so that small corrections do not reorder records."""

TICK_S = 5.0
"""Seconds between checks for a step of the system's clock."""

log = structlog.get_logger(__name__)


def system_time() -> float:
    """Return this machine's time in seconds since the epoch, right or wrong."""
    return time.time()


class Clock:
    """Seconds since the epoch, counted by the loop's monotonic clock and corrected when the system's clock is stepped.

    Deadlines are stored as absolute times but awaited on the loop's clock. So code that waits for one must set its
    timer again after a jump (`on_jump`).
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        epoch: float | None = None,
        *,
        read_wall_s: Callable[[], float] | None = None,
        read_suspended_s: Callable[[], float] = suspended_s,
        is_vouched: Callable[[], bool] | None = None,
    ) -> None:
        """Begin at the system's time, or at `epoch` for a virtual loop in tests.

        `read_wall_s` stands in for the system's clock, `read_suspended_s` for the seconds of its suspensions, and
        `is_vouched` for its time service.
        """
        self.is_vouched = is_vouched or (is_synchronised if epoch is None and read_wall_s is None else lambda: False)
        """Whether a time service says that the wall-clock time is right."""
        self.steady = monotonic
        """Monotonic seconds; they stop while the computer is suspended."""
        self._read_wall_s = read_wall_s or (time.time if epoch is None else None)
        self._read_suspended_s = read_suspended_s
        self._offset = (self._read_wall_s() if self._read_wall_s else epoch or 0.0) - monotonic()
        self.set_by_s = 0.0
        """Sum of the steps by which the system's clock was set."""
        self._reported_offset, self._reported_suspended_s = self._offset, read_suspended_s()
        self._jump_callbacks: list[Callable[[float], object]] = []

    def now(self) -> float:
        """Return seconds since the epoch, within STEP_S of the system's clock.

        If that clock was stepped, follow it, and have the callbacks of `on_jump` called soon.
        """
        now = self.steady() + self._offset
        if self._read_wall_s is not None and abs(error_s := self._read_wall_s() - now) >= STEP_S:
            self._offset += error_s
            now += error_s
            with suppress(RuntimeError):  # outside of an event loop no callbacks are registered
                asyncio.get_running_loop().call_soon(self.detect_jump)
        return now

    def elapsed(self) -> float:
        """Return monotonic seconds that also count while the computer is suspended, unlike `steady`."""
        return self.steady() + self._read_suspended_s()

    def on_jump(self, callback: Callable[[float], object]) -> None:
        """Call `callback` after each jump of the time, with the seconds by which the system's clock was set.

        These are 0 after a suspension of the computer: then the clock was right, and the loop's clock stood still.
        """
        self._jump_callbacks.append(callback)

    def detect_jump(self) -> None:
        """Call the callbacks of `on_jump` if the time has jumped since the last check."""
        self.now()
        jump_s, slept_s = self._offset - self._reported_offset, self._read_suspended_s() - self._reported_suspended_s
        if not jump_s:
            return
        self._reported_offset += jump_s
        self._reported_suspended_s += slept_s
        # The system's clock was set by the part of a jump that a suspension does not explain.
        set_by_s = jump_s - slept_s if abs(jump_s - slept_s) >= STEP_S else 0.0
        self.set_by_s += set_by_s
        log.warning("clock jumped", by_s=round(jump_s, 3), set_by_s=round(set_by_s, 3))
        for callback in self._jump_callbacks:
            callback(set_by_s)

    async def run(self) -> None:
        """Call `detect_jump` every TICK_S until cancelled; return at once if there is no system clock to follow."""
        while self._read_wall_s is not None:
            await anyio.sleep(TICK_S)
            self.detect_jump()
