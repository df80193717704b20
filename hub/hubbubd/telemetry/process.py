"""Resource usage of this process; no readings where the system does not tell."""

import time
from collections.abc import Iterable

from hubbub_shared.platform import figures
from hubbubd.telemetry.meter import Reading


def memory() -> Iterable[Reading]:
    """Return the resident memory in bytes."""
    size = figures.resident_bytes()
    return () if size is None else ((size, {}),)


def cpu() -> Iterable[Reading]:
    """Return the CPU seconds of all threads, user and system."""
    return ((time.process_time(), {}),)


def open_fds() -> Iterable[Reading]:
    """Return the number of open file descriptors."""
    count = figures.count_descriptors()
    return () if count is None else ((count, {}),)
