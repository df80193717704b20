"""Reads numbers from outside (a hub, a model, an environment, a command line) within bounds."""

import math
from datetime import UTC, datetime, timedelta
from typing import Final, TypeGuard

LARGEST: Final = 2**53 - 1
"""The largest integer that JSON carries between all languages (RFC 8259, section 6)."""

LAST_PORT: Final = 65535
LATEST_S: Final = 253402300799
"""The end of the year 9999, in seconds since the epoch."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS: Final = 20


def is_finite(value: object) -> TypeGuard[int | float]:
    """Return whether this is a number that a float can express; JSON has integers beyond that, of any length."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def whole(value: object, low: int = 0, high: int = LARGEST) -> int | None:
    """Return a number as an integer, clamped to `low` and `high`; None for NaN and for what is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return int(min(max(value, low), high))


def whole_text(text: str, high: int = LARGEST) -> int | None:
    """Return the integer of a text of ASCII digits, at most `high`; None for any other text."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    return min(int(digits or "0"), high) if len(digits) <= _DIGITS else high


def date(seconds: int, nanos: int = 0) -> datetime:
    """Return a protobuf Timestamp as a datetime in UTC, clamped to the years 1970 to 9999."""
    at = whole(seconds, 0, LATEST_S) or 0
    return EPOCH + timedelta(seconds=at, microseconds=(whole(nanos, 0, 999_999_999) or 0) // 1000)
