"""Absolute time for records, immune to steps of the system clock while the hub runs."""

import time
from collections.abc import Callable


class Clock:
    """Seconds since the Unix epoch: the system's time at the start, then the event loop's own steady count.

    Deadlines are stored as absolute time, and waited for on the loop's clock; deriving one from the other keeps
    them together, and lets a test's virtual loop move both.
    """

    def __init__(self, monotonic: Callable[[], float], epoch: float | None = None) -> None:
        self._monotonic = monotonic
        self._offset = (time.time() if epoch is None else epoch) - monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._monotonic() + self._offset
