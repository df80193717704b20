"""Seconds as durations of protocol buffers, and back."""

from typing import Final

from google.protobuf.duration_pb2 import Duration

LONGEST_S: Final = 315_576_000_000
"""The longest duration of protocol buffers, in seconds."""


def to_duration(seconds: float) -> Duration:
    """Return seconds as a Duration, to the microsecond. Raises ValueError for NaN and beyond LONGEST_S."""
    if seconds != seconds or abs(seconds) > LONGEST_S:
        raise ValueError(f"{seconds} is not a valid number of seconds")
    duration = Duration()
    duration.FromMicroseconds(round(seconds * 1_000_000))
    return duration


def to_seconds(duration: Duration) -> float:
    """Return a Duration in seconds, to the microsecond."""
    return round(duration.seconds + duration.nanos / 1e9, 6)
