"""Slots: a bound on how many do something costly at once, first come, first served."""

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """`count` slots, each given back after `hold_s` seconds at the latest.

    After that time the holder goes on without its slot. So holders that merely wait do not keep others out.
    """

    def __init__(self, count: int, hold_s: float) -> None:
        """Begin with `count` free slots; a taken slot is given back after `hold_s` seconds at the latest."""
        self._free = count
        self._hold_s = hold_s
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> Callable[[], None]:
        """Wait for a slot, and return a function that gives it back; a second call of the function does nothing.

        The slot is given back in any case after `hold_s` seconds.
        """
        loop = asyncio.get_running_loop()
        if self._free:
            self._free -= 1
        else:
            waiter = loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():  # `_give_back` gave it a slot in the same moment
                    self._give_back()
                raise
        is_taken = True

        def give_back() -> None:
            """Give the slot back, once."""
            nonlocal is_taken
            timer.cancel()
            if is_taken:
                is_taken = False
                self._give_back()

        timer = loop.call_later(self._hold_s, give_back)
        return give_back

    def _give_back(self) -> None:
        """Give a slot to the first that waits for one, or make it free."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
