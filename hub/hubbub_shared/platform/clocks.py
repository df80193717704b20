"""Clocks of the system: how long the computer slept, and whether a time service keeps its clock right."""

import sys
import time
from typing import Final

STA_UNSYNC: Final = 0x40
STATUS_AT: Final = 10
TIMEX_WORDS: Final = 32
"""`struct timex` of adjtimex(2), in words of the size of a C int: status is the eleventh where a long has 8 bytes."""


def suspended_s() -> float:
    """Return the seconds the computer has been suspended, where the system tells; only differences are meaningful."""
    if sys.platform == "darwin":  # clock_gettime(3) there: CLOCK_MONOTONIC goes on during a sleep
        return time.clock_gettime(time.CLOCK_MONOTONIC) - time.clock_gettime(time.CLOCK_UPTIME_RAW)
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return 0.0


def elapsed_s() -> float:
    """Return seconds of a clock that is never set and runs on while the computer is suspended, to the moment.

    The event loop's clock may be late by what the loop is doing, or by the time for which the process was stopped.
    """
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic()


def is_synchronised() -> bool:
    """Return whether the kernel says that a time service keeps this machine's clock right; False if it cannot say.

    The kernel says no (STA_UNSYNC) once the clock is set by hand, and some hours after the service was last heard.
    """
    import ctypes  # lazy: looked at after the start

    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return False
    timex = (ctypes.c_int * (2 * TIMEX_WORDS))()  # all zero: it is read, and nothing is adjusted
    try:
        state = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return False
    return state >= 0 and not timex[STATUS_AT] & STA_UNSYNC
