"""The clock of the machine that a hub runs on, and its sleep, beside the loop's own time."""

import asyncio
from dataclasses import dataclass

from hubbubd.timing.clock import Clock

from .conftest import EPOCH


@dataclass
class System:
    """What a test sets; the next hub's clock follows it."""

    epoch: float = EPOCH
    slept: float = 0.0
    synchronised: bool = False
    """Whether a time service says that the clock is right."""

    def wall(self) -> float:
        return self.epoch + self.slept + asyncio.get_running_loop().time()

    def clock(self) -> Clock:
        return Clock(
            asyncio.get_running_loop().time,
            read_wall_s=self.wall,
            read_suspended_s=lambda: self.slept,
            is_vouched=lambda: self.synchronised,
        )
