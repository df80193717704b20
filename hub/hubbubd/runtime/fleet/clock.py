"""The time of a fleet is that of its database. Between two readings a clock of this machine, never set, counts it on.

So all members stamp by one clock, and one whose own clock is wrong neither ends nor deletes anything.
"""

from collections.abc import Callable

import anyio

from hubbub_shared.platform.clocks import elapsed_s, is_synchronised
from hubbubd.members import ClockReading
from hubbubd.timing.clock import system_time

AGREES_S = 60.0
"""Seconds by which the database's clock and one that a time service keeps right may differ: then it is right, too."""


class FleetClock:
    """The database's time, as the last heartbeats have read it."""

    def __init__(
        self,
        elapsed: Callable[[], float] = elapsed_s,
        local_time: Callable[[], float] = system_time,
        is_local_time_right: Callable[[], bool] = is_synchronised,
    ) -> None:
        """`elapsed` returns seconds of a clock that is never set, `local_time` this machine's time since the epoch.

        `is_local_time_right` returns whether a time service keeps this machine's time right.
        """
        self._elapsed = elapsed
        self._local_time = local_time
        self._is_local_time_right = is_local_time_right
        self._offset = local_time() - elapsed()
        """Seconds by which the database's time is ahead of `elapsed`, as far as this is known."""
        self.is_known = anyio.Event()
        """Set by the first reading of the database's clock; until then `now` is this machine's time."""

    def apply_reading(self, reading: ClockReading) -> None:
        """Correct the offset by a reading of the database's clock, made between its `sent_s` and `received_s`.

        The first reading counts as made in the middle between them. A later reading moves the offset no further than
        these two times demand, so that a slow answer changes little.
        """
        least, most = reading.at - reading.received_s, reading.at - reading.sent_s
        self._offset = min(max(self._offset, least), most) if self.is_known.is_set() else (least + most) / 2
        self.is_known.set()

    def now(self) -> float:
        """Return the database's time, in seconds since the epoch."""
        return self._elapsed() + self._offset

    @property
    def ahead_s(self) -> float:
        """Seconds by which the database's clock is ahead of this machine's."""
        return self.now() - self._local_time()

    def is_vouched_for(self) -> bool:
        """Return whether the database's clock is right: it agrees with this machine's, which a time service keeps."""
        return abs(self.ahead_s) <= AGREES_S and self._is_local_time_right()
