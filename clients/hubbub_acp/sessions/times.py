"""Times as they are shown: ISO 8601 in UTC."""

from datetime import UTC, datetime


def now() -> str:
    """Return the present time, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
