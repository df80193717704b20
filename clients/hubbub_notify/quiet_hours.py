"""Quiet hours: times of day in which nobody is notified of anything. Pure, but for the time zone of this machine."""

from dataclasses import dataclass
from datetime import datetime, tzinfo

from hubbub_client.numbers import whole_text

MINUTE_S = 60
DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one minute of the day to another, on the clock of a time zone; None is the zone of this machine.

    The clock on the wall decides, also on days on which it is changed.
    """

    begin: int
    end: int
    zone: tzinfo | None = None

    def covers(self, moment_s: float) -> bool:
        """Return whether a moment (seconds since 1970) is quiet."""
        local = datetime.fromtimestamp(moment_s, self.zone)
        minute = local.hour * 60 + local.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def find_first_audible(self, moment_s: float) -> float:
        """Return the first moment that is not quiet, this one or a later one, in seconds since 1970."""
        if not self.covers(moment_s):
            return moment_s
        # Zones differ by whole minutes, so quiet hours end where a minute begins. Minute by minute is slow and right:
        # it needs no rule for hours that a clock skips or has twice.
        minute = moment_s // MINUTE_S
        for later in range(1, 2 * DAY_MINUTES):
            if not self.covers((minute + later) * MINUTE_S):
                return (minute + later) * MINUTE_S
        raise AssertionError("quiet hours end within two days")


def parse_hours(text: str) -> tuple[int, int]:
    """Parse HH:MM-HH:MM to minutes of the day. Raises ValueError."""
    begin, dash, end = text.partition("-")
    begin_minute, end_minute = _parse_minute(begin), _parse_minute(end)
    if not dash or begin_minute is None or end_minute is None:
        raise ValueError(f"{text!r} is not HH:MM-HH:MM, for example 22:00-07:00")
    if begin_minute == end_minute:
        raise ValueError(f"{text!r} begins when it ends; leave it out to have no quiet hours")
    return begin_minute, end_minute


def _parse_minute(text: str) -> int | None:
    """Return the minute of the day that HH:MM names; None if the text names no minute of a day."""
    hour_text, _, minute_text = text.strip().partition(":")
    hour, minute = whole_text(hour_text), whole_text(minute_text)
    if hour is None or minute is None or len(minute_text) != 2 or hour > 23 or minute > 59:
        return None
    return hour * 60 + minute
