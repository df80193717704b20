"""What this process takes of the machine; None where the system does not say."""

import os
import sys


def resident_bytes() -> int | None:
    """Return the resident memory in bytes: proc(5) on Linux, psutil elsewhere."""
    if sys.platform == "linux":
        try:
            with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - no path object each time
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return None
    import psutil  # not on Linux

    return psutil.Process().memory_info().rss


def count_descriptors() -> int | None:
    """Return the number of open file descriptors, without the one opened to count them; None if not known."""
    try:
        names = os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")  # noqa: PTH208 - only counted
    except OSError:
        return None
    return len(names) - 1
