"""Numbers from outside, clamped where they are read.

Every number from a server, a caller, a header, a file or the store passes one of these readers before anything is
computed with it. What is not a number becomes None; a number out of bounds becomes the nearest bound. So nothing behind
a reader can overflow a float, a 64-bit integer or a calendar. Each takes any value and raises nothing.

The types at the end are for fields of stored records and enforce the same bounds when a record is loaded.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Final

from pydantic import Field

LARGEST_WHOLE: Final = 2**53 - 1
"""The largest integer that JSON carries between all languages (RFC 8259, section 6)."""

LARGEST_REAL: Final = 1e15
"""Far above any count, amount or number of seconds, and exact to an eighth."""

LONGEST_S: Final = 100 * 366 * 86400.0
"""The longest duration in seconds: a century. Added to the present, it is still a valid date."""

LONGEST_MS: Final = int(LONGEST_S * 1000)
"""The longest duration in milliseconds."""

LARGEST_COUNT: Final = 2**31 - 1
"""The largest number of things; fields of 32 bits hold it."""

EARLIEST: Final = 0.0
LATEST: Final = 253402300799.0
"""Bounds of absolute times, in seconds since the epoch: 1970 to the end of 9999 (`google.protobuf.Timestamp`)."""

LONGEST_URI: Final = 8192
"""Characters of a URI from outside, and of a name in its place."""

INTRODUCTION_BYTES: Final = 64 * 1024
"""Bytes of what a program on the other side says of itself, each part."""

_DIGITS: Final = 40
"""Longest number in a text that is parsed. Python's int() is quadratic."""


def clamp_whole(value: object, low: int = 0, high: int = LARGEST_WHOLE) -> int | None:
    """Return a number as an integer clamped to `low` and `high`, truncated; None for NaN and what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return int(min(max(value, low), high))


def clamp_real(value: object, low: float = -LARGEST_REAL, high: float = LARGEST_REAL) -> float | None:
    """Return a number as a float clamped to `low` and `high`; None for NaN and what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return float(min(max(value, low), high))


def clamp_seconds(value: object, low: float = 0.0, high: float = LONGEST_S) -> float | None:
    """Return a duration in seconds, clamped; None for what is no number."""
    return clamp_real(value, low, high)


def clamp_moment(value: object) -> float | None:
    """Return an absolute time in seconds since the epoch, clamped to EARLIEST and LATEST; None if no number."""
    return clamp_real(value, EARLIEST, LATEST)


def parse_whole(text: str, low: int = 0, high: int = LARGEST_WHOLE) -> int | None:
    """Parse an optionally signed integer of ASCII digits and clamp it; None for any other text."""
    stripped = text.strip()
    digits = stripped.removeprefix("-") if stripped.startswith("-") else stripped.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    # A longer number is beyond all bounds, and is not parsed.
    size = int(digits[-_DIGITS:]) if len(digits.lstrip("0")) <= _DIGITS else max(abs(low), abs(high))
    return clamp_whole(-size if stripped.startswith("-") else size, low, high)


def parse_real(text: str, low: float = -LARGEST_REAL, high: float = LARGEST_REAL) -> float | None:
    """Parse a float in any notation and clamp it; None for any other text."""
    if len(text) > _DIGITS:
        return None
    try:
        return clamp_real(float(text), low, high)
    except ValueError:
        return None


def parse_wait_s(text: str, now: float, high: float = LONGEST_S) -> float | None:
    """Parse a header such as `Retry-After` (RFC 9110, section 10.2.3): seconds to wait, given as a number or a date.

    0 for a date in the past, `high` at most, None for anything else.
    """
    if (number := parse_whole(text)) is not None:
        return clamp_seconds(number, high=high)
    try:
        return clamp_seconds(parsedate_to_datetime(text).timestamp() - now, high=high)
    except (ValueError, OverflowError):
        return None


def utc_date(at: object) -> datetime:
    """Return an absolute time as a date in UTC; the epoch for what is no time."""
    return datetime.fromtimestamp(clamp_moment(at) or EARLIEST, UTC)


Moment = Annotated[float, Field(ge=EARLIEST, le=LATEST, allow_inf_nan=False)]
"""An absolute time in a record, in seconds since the epoch."""

Shift = Annotated[float, Field(ge=-LATEST, le=LATEST, allow_inf_nan=False)]
"""Seconds by which a clock was set, forward or back."""

Span = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
"""A duration in seconds in a record."""

Millis = Annotated[int, Field(ge=0, le=LONGEST_MS)]
"""A duration in milliseconds in a record."""

Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
"""A number of things in a record."""

Whole = Annotated[int, Field(ge=-LARGEST_WHOLE, le=LARGEST_WHOLE)]
"""Any other integer in a record."""
