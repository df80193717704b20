"""Quiet hours, also where the clock on the wall is changed."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub_notify.quiet_hours import QuietHours, parse_hours

MINUTE_S = 60
# Clocks are changed by an hour, by half of one, at midnight; one zone skips a whole day.
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Havana",
    "Asia/Kathmandu",
    "Pacific/Apia",
)
MINUTES = st.integers(0, 24 * 60 - 1)
FULL_HISTORY_EVENTS = st.integers(
    int(datetime(2010, 1, 1, tzinfo=UTC).timestamp()), int(datetime(2035, 1, 1, tzinfo=UTC).timestamp())
)


def moment(zone: str, *when: int, fold: int = 0) -> float:
    return datetime(*when, tzinfo=ZoneInfo(zone), fold=fold).timestamp()  # type: ignore[misc]


def quiet(text: str, zone: str) -> QuietHours:
    return QuietHours(*parse_hours(text), ZoneInfo(zone))


@given(MINUTES, MINUTES, st.sampled_from(ZONES), FULL_HISTORY_EVENTS)
@example(22 * 60, 7 * 60, "Europe/Berlin", int(datetime(2026, 3, 29, 0, 30, tzinfo=UTC).timestamp()))
@example(90, 150, "Europe/Berlin", int(datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()))
@example(0, 24 * 60 - 1, "Pacific/Apia", int(datetime(2011, 12, 30, 9, 59, tzinfo=UTC).timestamp()))
def test_quiet_hours_end_at_the_first_minute_that_is_not_quiet(begin: int, end: int, zone: str, now: int) -> None:
    if begin == end:
        return
    made = QuietHours(begin, end, ZoneInfo(zone))
    over = made.find_first_audible(now)
    assert not made.covers(over)
    if not made.covers(now):
        assert over == now
        return
    assert now < over <= now + 26 * 3600
    assert over % MINUTE_S == 0
    assert all(made.covers(each) for each in range(now, int(over), MINUTE_S))
    assert made.covers(over - 1)


@pytest.mark.parametrize(
    ("text", "when", "over"),
    [
        ("22:00-07:00", (2026, 3, 2, 21, 59), (2026, 3, 2, 21, 59)),
        ("22:00-07:00", (2026, 3, 2, 22, 0), (2026, 3, 3, 7, 0)),
        ("22:00-07:00", (2026, 3, 3, 6, 59), (2026, 3, 3, 7, 0)),
        ("22:00-07:00", (2026, 3, 3, 7, 0), (2026, 3, 3, 7, 0)),
        ("12:00-13:30", (2026, 3, 2, 12, 0), (2026, 3, 2, 13, 30)),
        ("00:00-00:01", (2026, 3, 2, 0, 0), (2026, 3, 2, 0, 1)),
        # On these nights the clock goes from 2 to 3, and from 3 to 2.
        ("22:00-07:00", (2026, 3, 28, 23, 0), (2026, 3, 29, 7, 0)),
        ("01:00-02:30", (2026, 3, 29, 1, 30), (2026, 3, 29, 3, 0)),
        ("22:00-07:00", (2026, 10, 24, 23, 0), (2026, 10, 25, 7, 0)),
    ],
)
def test_quiet_hours_follow_the_clock_on_the_wall(text: str, when: tuple[int, ...], over: tuple[int, ...]) -> None:
    made = quiet(text, "Europe/Berlin")
    assert made.find_first_audible(moment("Europe/Berlin", *when)) == moment("Europe/Berlin", *over)


def test_an_hour_that_comes_twice_is_quiet_twice() -> None:
    made = quiet("02:00-02:30", "Europe/Berlin")
    assert made.covers(moment("Europe/Berlin", 2026, 10, 25, 2, 10))
    assert not made.covers(moment("Europe/Berlin", 2026, 10, 25, 2, 40))
    assert made.covers(moment("Europe/Berlin", 2026, 10, 25, 2, 10, fold=1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "22:00",
        "22-07",
        "24:00-07:00",
        "22:60-07:00",
        "22:00-7",
        "22:00-07:0",
        "-1:00-07:00",
        "a:00-07:00",
        "²2:00-07:00",
    ],
)
def test_what_is_no_time_of_day_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="22:00-07:00"):
        parse_hours(text)


def test_hours_that_begin_when_they_end_are_refused() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        parse_hours("07:00-07:00")
