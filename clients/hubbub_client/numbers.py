"""Numbers from outside (a hub, a model, an environment, a command line), bounded where they are read."""

from datetime import UTC, datetime, timedelta
from typing import Final

LARGEST: Final = 2**53 - 1
"""The largest integer that JSON carries between all languages (RFC 8259, section 6)."""

LAST_PORT: Final = 65535
LATEST_S: Final = 253402300799
"""The end of the year 9999, in seconds since the epoch."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS: Final = 20


def whole(value: object, low: int = 0, high: int = LARGEST) -> int | None:
    """A number as an integer from `low` to `high`; None for what is no number, and for NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return int(min(max(value, low), high))


def whole_text(text: str, high: int = LARGEST) -> int | None:
    """The integer from 0 to `high` that a text of ASCII digits writes; None for any other text."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    return min(int(digits or "0"), high) if len(digits) <= _DIGITS else high


def date(seconds: int, nanos: int = 0) -> datetime:
    """A protobuf timestamp as a date, the nearest one that there is."""
    at = whole(seconds, 0, LATEST_S) or 0
    return EPOCH + timedelta(seconds=at, microseconds=(whole(nanos, 0, 999_999_999) or 0) // 1000)
