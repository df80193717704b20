"""The time of a fleet: its database's, by a clock of this machine that is never set.

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
    """The database's time, as the last beats have read it."""

    def __init__(
        self,
        passed: Callable[[], float] = elapsed_s,
        wall: Callable[[], float] = system_time,
        synchronised: Callable[[], bool] = is_synchronised,
    ) -> None:
        """`passed` is never set; `wall` is this machine's time, and `synchronised` says whether a service keeps it."""
        self._passed = passed
        self._wall = wall
        self._synchronised = synchronised
        self._offset = wall() - passed()
        self.is_known = anyio.Event()
        """Set once the database was asked; until then `now` is this machine's time."""

    def apply_reading(self, reading: ClockReading) -> None:
        """Correct the offset by a reading of the database's clock, made at some moment between `sent` and `came`.

        The first reading counts as made in the middle between them. A later reading moves the offset no further than
        these two moments demand, so that a slow answer changes little.
        """
        least, most = reading.at - reading.received_s, reading.at - reading.sent_s
        self._offset = min(max(self._offset, least), most) if self.is_known.is_set() else (least + most) / 2
        self.is_known.set()

    def now(self) -> float:
        """Return the database's time, in seconds since the epoch."""
        return self._passed() + self._offset

    @property
    def ahead_s(self) -> float:
        """Seconds by which the database's clock is ahead of this machine's."""
        return self.now() - self._wall()

    def is_vouched_for(self) -> bool:
        """Return whether the database's clock is right: it agrees with this machine's, which a time service keeps."""
        return abs(self.ahead_s) <= AGREES_S and self._synchronised()
