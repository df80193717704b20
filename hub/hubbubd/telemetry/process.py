"""What this process takes of its machine (Linux: proc(5)). Nothing where that cannot be read."""

import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path

from hubbubd.telemetry.meter import Reading

_PROC = Path("/proc/self")


def memory() -> Iterable[Reading]:
    """Bytes that are resident."""
    try:
        pages = int((_PROC / "statm").read_bytes().split()[1])
    except OSError:
        return ()
    return ((pages * resource.getpagesize(), {}),)


def cpu() -> Iterable[Reading]:
    """Seconds on processors, of all threads, in user and system mode."""
    return ((time.process_time(), {}),)


def open_fds() -> Iterable[Reading]:
    """File descriptors, without the one that this takes."""
    try:
        return ((len(os.listdir(_PROC / "fd")) - 1, {}),)  # noqa: PTH208 - no path objects for names that are counted
    except OSError:
        return ()
