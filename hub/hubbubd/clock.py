"""The two times of the hub: the system's, for what is stamped and shown, and a steady one, for what waits."""

import time
from collections.abc import Callable

import anyio
import structlog

STEP_S = 1.0
"""A difference to the system's clock that is taken over. Less is left alone, so that records keep their order."""

TICK_S = 5.0
"""How often somebody looks whether the system's clock was moved."""

log = structlog.get_logger(__name__)


def suspended() -> float:
    """Seconds that this computer has slept, on a system that tells; only differences mean anything."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return 0.0 if boot is None else time.clock_gettime(boot) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Clock:
    """Seconds since the Unix epoch, on the event loop's steady count, and moved whenever the system's clock was.

    Deadlines are stored as absolute time and waited for on the loop's clock, so whoever waits for one follows `moved`.
    With an `epoch` the system's clock is left alone, for a test's virtual loop; `wall` and `slept` take its place.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        epoch: float | None = None,
        *,
        wall: Callable[[], float] | None = None,
        slept: Callable[[], float] = suspended,
    ) -> None:
        self.steady = monotonic
        """Seconds that only grow, and not while the computer sleeps."""
        self._wall = wall or (time.time if epoch is None else None)
        self._slept = slept
        self._offset = (self._wall() if self._wall else epoch or 0.0) - monotonic()
        self.set_by_s = 0.0
        """By how much the clock was set, in all."""
        self._told_offset, self._told_slept = self._offset, slept()
        self._followers: list[Callable[[float], object]] = []

    def now(self) -> float:
        """Seconds since the epoch, by the system's clock to within STEP_S."""
        now = self.steady() + self._offset
        if self._wall is not None and abs(off := self._wall() - now) >= STEP_S:
            self._offset += off
            now += off
        return now

    def follow(self, moved: Callable[[float], object]) -> None:
        """Has `moved` called after the time has jumped, with the seconds by which the clock itself was set.

        That is 0 after the computer's sleep, when the clock was right all the time.
        """
        self._followers.append(moved)

    def look(self) -> None:
        """Tells the followers when the time has jumped since they were told."""
        self.now()
        jumped, slept = self._offset - self._told_offset, self._slept() - self._told_slept
        if not jumped:
            return
        self._told_offset += jumped
        self._told_slept += slept
        was_set = jumped - slept if abs(jumped - slept) >= STEP_S else 0.0
        self.set_by_s += was_set
        log.warning("the time has jumped", by_s=round(jumped, 3), set_by_s=round(was_set, 3))
        for moved in self._followers:
            moved(was_set)

    async def run(self) -> None:
        """Looks every few seconds, for as long as the hub runs; returns where there is no system's clock to follow."""
        while self._wall is not None:
            await anyio.sleep(TICK_S)
            self.look()
