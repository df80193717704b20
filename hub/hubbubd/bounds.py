"""Numbers from outside, bounded where they are read.

Whatever a server, a caller, a header, a file or the store says passes one of these readers before anything is
computed with it. What is no number becomes None; a number outside the bounds becomes the nearest bound. So nothing
behind a reader can overflow a float, a 64-bit integer or a calendar. Each takes any value and raises nothing.

The types at the end are for fields of stored records: what is loaded with one of them is within the same bounds.
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
"""The longest duration in seconds: a century. An absolute time of today plus this one is a date."""

LONGEST_MS: Final = int(LONGEST_S * 1000)
"""The longest duration in milliseconds."""

LARGEST_COUNT: Final = 2**31 - 1
"""The largest number of things; fields of 32 bits hold it."""

EARLIEST: Final = 0.0
LATEST: Final = 253402300799.0
"""Absolute times in seconds since the epoch: from 1970 to the end of the year 9999 (`google.protobuf.Timestamp`)."""

_DIGITS: Final = 40
"""The longest number in a text that is looked at. Python needs quadratic time for long ones."""


def whole(value: object, low: int = 0, high: int = LARGEST_WHOLE) -> int | None:
    """A number as an integer from `low` to `high`, its fraction cut off; None for what is no number, and for NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return int(min(max(value, low), high))


def real(value: object, low: float = -LARGEST_REAL, high: float = LARGEST_REAL) -> float | None:
    """A number as a float from `low` to `high`; None for what is no number, and for NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return float(min(max(value, low), high))


def seconds(value: object, low: float = 0.0, high: float = LONGEST_S) -> float | None:
    """A duration in seconds."""
    return real(value, low, high)


def moment(value: object) -> float | None:
    """An absolute time in seconds since the epoch, that every calendar and the API can express."""
    return real(value, EARLIEST, LATEST)


def whole_text(text: str, low: int = 0, high: int = LARGEST_WHOLE) -> int | None:
    """The integer from `low` to `high` that a text of ASCII digits writes, with or without a sign; else None."""
    stripped = text.strip()
    digits = stripped.removeprefix("-") if stripped.startswith("-") else stripped.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    size = int(digits[-_DIGITS:]) if len(digits.lstrip("0")) <= _DIGITS else max(abs(low), abs(high))
    return whole(-size if stripped.startswith("-") else size, low, high)


def real_text(text: str, low: float = -LARGEST_REAL, high: float = LARGEST_REAL) -> float | None:
    """The number from `low` to `high` that a text writes, in any notation of a float; else None."""
    if len(text) > _DIGITS:
        return None
    try:
        return real(float(text), low, high)
    except ValueError:
        return None


def wait_text(text: str, now: float, high: float = LONGEST_S) -> float | None:
    """Seconds from `now` that a header such as `Retry-After` asks to wait, given as a number or as a date (RFC 9110,
    section 10.2.3); 0 for a date that is past, `high` at most, None for anything else."""
    if (asked := whole_text(text)) is not None:
        return seconds(asked, high=high)
    try:
        return seconds(parsedate_to_datetime(text).timestamp() - now, high=high)
    except (ValueError, OverflowError):
        return None


def date(at: object) -> datetime:
    """An absolute time as a date in UTC; that of the epoch for what is no time."""
    return datetime.fromtimestamp(moment(at) or EARLIEST, UTC)


Moment = Annotated[float, Field(ge=EARLIEST, le=LATEST, allow_inf_nan=False)]
"""An absolute time in a record."""

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
