"""Eras: times during which the clock ran without being set, so that the ages of what is recorded stay right.

    the clock leaps ──> a new era begins; what is stamped in earlier ones counts as so many seconds later
    a time service says that the clock is right, as it did in an earlier era ──> the stamps of that one hold as they are

A leap adds nothing to an age. So a wrong clock deletes nothing that a right one would keep; after a long stop that no
time service and no person confirms, what is recorded lives longer by the length of the stop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hubbubd.bounds import LATEST, Moment, Shift

MAX_ERAS = 20
"""The most eras; beyond it the two oldest are joined to one."""

LEAP_S = 3600.0
"""A clock that is off by this many seconds has leapt; less is taken as it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockEra:
    """An era, by its first and last stamps as they were written. The last of several is the present one.

    `shift_s` is added to its stamps to have them in the present era's time. `doubted_s` is the part of the shift that
    may be time that truly passed; a person may confirm it. `vouched` says that a time service called the clock right.
    """

    first: Moment = 0.0
    last: Moment = 0.0
    shift_s: Shift = 0.0
    doubted_s: Shift = 0.0
    vouched: bool = False


def correct_stamp(eras: Sequence[ClockEra], stamp: float, now: float) -> float:
    """Return a stamp shifted to the time of the present era, which began when the clock was last set.

    A stamp that may be of several eras gets the greatest shift of these eras.
    """
    if len(eras) <= 1:
        return stamp
    *past, present = eras
    shifts = [era.shift_s for era in past if era.first <= stamp <= era.last]
    if present.first <= stamp <= now + LEAP_S:
        shifts.append(0.0)
    # A stamp of no era gets the greatest shift of all eras.
    return stamp + max(shifts or (0.0, *(era.shift_s for era in past)))


def after_leap(eras: Sequence[ClockEra], last_time: float, leap_s: float, now: float) -> tuple[ClockEra, ...]:
    """Return the eras after the clock has leapt by `leap_s` seconds, from `last_time` to `now`.

    A new era begins. The stamps of all earlier eras count as `leap_s` seconds later, so that no age grows by the leap.
    """
    *past, ended_era = eras or (ClockEra(),)
    ended_era = replace(ended_era, last=max(ended_era.last, last_time))
    shifted = [
        replace(era, shift_s=_clamp_shift(era.shift_s + leap_s), doubted_s=max(era.doubted_s + leap_s, 0.0))
        for era in (*past, ended_era)
    ]
    while len(shifted) >= MAX_ERAS:  # the two oldest become one
        shifted[:2] = [_join_eras(*shifted[:2])]
    return (*shifted, ClockEra(first=now, last=now))


def after_confirmation(eras: Sequence[ClockEra], now: float) -> tuple[ClockEra, ...]:
    """Return the eras (times between settings of the clock) once a time service calls the clock right.

    Stamps of eras for which a service vouched before hold as they are, without a shift. If `now` is before such an era,
    the service is not believed, and the eras stay as they are.
    """
    *past, present = eras or (ClockEra(),)
    if any(era.vouched and era.last - now > LEAP_S for era in past):
        return tuple(eras)
    past_eras = (replace(era, shift_s=0.0, doubted_s=0.0) if era.vouched else era for era in past)
    return (*past_eras, replace(present, vouched=True))


def after_trust(eras: Sequence[ClockEra]) -> tuple[ClockEra, ...]:
    """Return the eras once a person says that the clock is right, and that the doubted time has truly passed.

    Then ages count that time: the stamps of earlier eras are no longer shifted by it.
    """
    return tuple(replace(era, shift_s=_clamp_shift(era.shift_s - era.doubted_s), doubted_s=0.0) for era in eras)


def doubted_s(eras: Sequence[ClockEra]) -> float:
    """Return the seconds that may truly have passed though no age counts them; a person may confirm them."""
    return max((era.doubted_s for era in eras), default=0.0)


def without_old_eras(eras: Sequence[ClockEra], before: float) -> tuple[ClockEra, ...]:
    """Return the present era, and those past eras that have stamps at or after the time `before`."""
    *past, present = eras or (ClockEra(),)
    return (*(era for era in past if era.last + era.shift_s >= before), present)


def _join_eras(first: ClockEra, second: ClockEra) -> ClockEra:
    """Return one era in place of two: its stamps get the greater of their shifts."""
    return ClockEra(
        first=min(first.first, second.first),
        last=max(first.last, second.last),
        shift_s=max(first.shift_s, second.shift_s),
        doubted_s=max(first.doubted_s, second.doubted_s),
        vouched=first.vouched and second.vouched,
    )


def _clamp_shift(shift_s: float) -> float:
    return min(max(shift_s, -LATEST), LATEST)
