"""Stamps of several eras of the clock, in the time of the present one."""

from hypothesis import given
from hypothesis import strategies as st

from hubbubd.core import eras as core
from hubbubd.core.eras import MAX_ERAS, ClockEra

DAY_S = 86_400.0
DAYS = st.integers(-400, 400)


@given(st.lists(st.tuples(st.integers(0, 5), DAYS), max_size=40))
def test_no_stamp_counts_as_older_than_it_is_however_often_the_clock_is_set(steps: list[tuple[int, int]]) -> None:
    """Each step lets days pass, stamps something, and sets the clock by days."""
    true, off = 1000 * DAY_S, 0.0
    eras: tuple[ClockEra, ...] = (ClockEra(last=true),)
    stamps: list[tuple[float, float]] = []
    for days, set_by in steps:
        true += days * DAY_S
        stamps.append((true, true + off))
        eras = core.after_leap(eras, last_time=true + off, leap_s=set_by * DAY_S, now=true + off + set_by * DAY_S)
        off += set_by * DAY_S
    assert len(eras) <= MAX_ERAS
    now = true + off
    assert all(now - core.correct_stamp(eras, stamp, now) <= true - at + 1e-3 for at, stamp in stamps)


def test_a_clock_that_is_set_and_set_back_leaves_all_ages_as_they_are() -> None:
    eras = core.after_leap((ClockEra(last=100 * DAY_S),), last_time=100 * DAY_S, leap_s=400 * DAY_S, now=500 * DAY_S)
    assert core.correct_stamp(eras, 90 * DAY_S, 500 * DAY_S) == 490 * DAY_S
    assert core.doubted_s(eras) == 400 * DAY_S
    eras = core.after_leap(eras, last_time=501 * DAY_S, leap_s=-400 * DAY_S, now=101 * DAY_S)
    assert core.correct_stamp(eras, 90 * DAY_S, 101 * DAY_S) == 90 * DAY_S
    assert core.correct_stamp(eras, 500.5 * DAY_S, 101 * DAY_S) == 100.5 * DAY_S
    assert core.doubted_s(eras) == 0


def test_what_a_person_confirms_counts_and_what_was_set_back_does_not() -> None:
    eras = core.after_leap((ClockEra(last=100 * DAY_S),), last_time=100 * DAY_S, leap_s=9 * DAY_S, now=109 * DAY_S)
    trusted = core.after_trust(eras)
    assert core.correct_stamp(trusted, 90 * DAY_S, 109 * DAY_S) == 90 * DAY_S
    assert core.doubted_s(trusted) == 0


def test_a_time_service_confirms_only_stamps_of_times_for_which_it_has_spoken() -> None:
    unsure, sure = ClockEra(last=10 * DAY_S), ClockEra(first=20 * DAY_S, last=30 * DAY_S, vouched=True)
    eras = core.after_confirmation(
        core.after_leap((unsure, sure), last_time=30 * DAY_S, leap_s=5 * DAY_S, now=35 * DAY_S), 35 * DAY_S
    )
    assert eras[-1].vouched
    assert core.correct_stamp(eras, 25 * DAY_S, 35 * DAY_S) == 25 * DAY_S
    assert core.correct_stamp(eras, 5 * DAY_S, 35 * DAY_S) == 10 * DAY_S


def test_a_time_service_is_not_believed_before_a_time_for_which_it_has_spoken() -> None:
    eras = core.after_leap(
        (ClockEra(last=30 * DAY_S, vouched=True),), last_time=30 * DAY_S, leap_s=-9 * DAY_S, now=21 * DAY_S
    )
    assert core.after_confirmation(eras, 21 * DAY_S) == eras


def test_eras_of_which_nothing_is_left_are_forgotten() -> None:
    eras = core.after_leap((ClockEra(last=10 * DAY_S),), last_time=10 * DAY_S, leap_s=5 * DAY_S, now=15 * DAY_S)
    assert core.without_old_eras(eras, 16 * DAY_S) == eras[-1:]
    assert core.without_old_eras(eras, 14 * DAY_S) == eras
