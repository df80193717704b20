"""Resource usage of this process (Linux, proc(5)); no readings where that cannot be read."""

import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path

from hubbubd.telemetry.meter import Reading

_PROC_SELF = Path("/proc/self")


def memory() -> Iterable[Reading]:
    """Return the resident memory in bytes."""
    try:
        pages = int((_PROC_SELF / "statm").read_bytes().split()[1])
    except OSError:
        return ()
    return ((pages * resource.getpagesize(), {}),)


def cpu() -> Iterable[Reading]:
    """Return the CPU seconds of all threads, user and system."""
    return ((time.process_time(), {}),)


def open_fds() -> Iterable[Reading]:
    """Return the number of open file descriptors, without the one opened to count them."""
    try:
        return ((len(os.listdir(_PROC_SELF / "fd")) - 1, {}),)  # noqa: PTH208 - no path objects for names that are counted
    except OSError:
        return ()
