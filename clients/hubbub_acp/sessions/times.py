"""Times as they are shown: ISO 8601 in UTC."""

import time
from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """Return seconds since the epoch in words of ISO 8601, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now() -> str:
    """Return the present time."""
    return format_time(time.time())
