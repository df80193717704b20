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

    Deadlines are stored as absolute times but awaited on the loop's clock, so what waits for one must follow jumps
    (`on_jump`). With an `epoch` the system's clock is ignored, for a virtual loop in tests; `wall`, `slept` and
    `vouched` stand in for it.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        epoch: float | None = None,
        *,
        wall: Callable[[], float] | None = None,
        slept: Callable[[], float] = suspended_s,
        vouched: Callable[[], bool] | None = None,
    ) -> None:
        """Begin at the system's time, or at `epoch` for a virtual loop in tests.

        `wall` stands in for the system's clock, `slept` for the seconds of its suspensions, and `vouched` for its time
        service.
        """
        self.vouched = vouched or (is_synchronised if epoch is None and wall is None else lambda: False)
        """Whether a time service says that the wall-clock time is right."""
        self.steady = monotonic
        """Monotonic seconds; they stop while the computer is suspended."""
        self._wall = wall or (time.time if epoch is None else None)
        self._slept = slept
        self._offset = (self._wall() if self._wall else epoch or 0.0) - monotonic()
        self.set_by_s = 0.0
        """Sum of the steps by which the system's clock was set."""
        self._seen_offset, self._seen_slept = self._offset, slept()
        self._followers: list[Callable[[float], object]] = []

    def now(self) -> float:
        """Return seconds since the epoch, within STEP_S of the system's clock."""
        now = self.steady() + self._offset
        if self._wall is not None and abs(off := self._wall() - now) >= STEP_S:
            self._offset += off
            now += off
            with suppress(RuntimeError):  # there are no followers outside of an event loop
                asyncio.get_running_loop().call_soon(self.detect_jump)
        return now

    def elapsed(self) -> float:
        """Return seconds that never leap, whatever the system's clock does; they go on while the computer sleeps."""
        return self.steady() + self._slept()

    def on_jump(self, callback: Callable[[float], object]) -> None:
        """Call `callback` after each jump of the time, with the seconds by which the system's clock was set.

        These are 0 after a suspension of the computer: then the clock was right, and the loop's clock stood still.
        """
        self._followers.append(callback)

    def detect_jump(self) -> None:
        """Call the callbacks of `on_jump` if the time has jumped since the last check."""
        self.now()
        jumped, slept = self._offset - self._seen_offset, self._slept() - self._seen_slept
        if not jumped:
            return
        self._seen_offset += jumped
        self._seen_slept += slept
        # The part of a jump that a suspension does not explain is that by which the system's clock was set.
        set_by_s = jumped - slept if abs(jumped - slept) >= STEP_S else 0.0
        self.set_by_s += set_by_s
        log.warning("clock jumped", by_s=round(jumped, 3), set_by_s=round(set_by_s, 3))
        for callback in self._followers:
            callback(set_by_s)

    async def run(self) -> None:
        """Call `detect_jump` every TICK_S until cancelled; return at once if there is no system clock to follow."""
        while self._wall is not None:
            await anyio.sleep(TICK_S)
            self.detect_jump()
