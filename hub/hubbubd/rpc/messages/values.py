"""Converts values of the hub's records to those of messages: times, texts."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from hubbubd import bounds


def timestamp(at: float | None) -> Timestamp | None:
    """Return seconds since the epoch as a Timestamp; None for None. Raises ValueError for what is out of range."""
    if at is None:
        return None
    stamp = Timestamp()
    stamp.FromMicroseconds(round(at * 1_000_000))
    return stamp


def duration(seconds: float) -> Duration:
    """Return seconds as a Duration, to the microsecond; a longer time than a Duration can hold becomes the longest."""
    found = Duration()
    found.FromMicroseconds(round(min(max(seconds, -bounds.LONGEST_S), bounds.LONGEST_S) * 1_000_000))
    return found


def millis(value: int | None) -> Duration | None:
    """Return milliseconds as a Duration; None for None. Raises ValueError for what is out of range."""
    if value is None:
        return None
    found = Duration()
    found.FromMilliseconds(value)
    return found


def text(value: str | None) -> str:
    """Return text that UTF-8 can express, empty for None: JSON can contain lone surrogates, which protobuf rejects."""
    return (value or "").encode("utf-8", "replace").decode()
