"""Times as they are shown: ISO 8601 in UTC."""

import time
from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """Return a time, given in seconds since the epoch, as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now() -> str:
    """Return the present time in the same form."""
    return format_time(time.time())
