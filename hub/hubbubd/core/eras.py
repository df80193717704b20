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
"""The most eras; the oldest are joined to one, whose stamps count as late as those of either."""

LEAP_S = 3600.0
"""A clock that is off by this many seconds has leapt; less is taken as it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockEra:
    """An era, by its first and last stamps as they were written. The last of several is the present one.

    `shift_s` is to be added to its stamps, in the present era's time. `doubted_s` is the part of that which may be time
    that truly passed; a person may say so. `vouched` says that a time service has called the clock right.
    """

    first: Moment = 0.0
    last: Moment = 0.0
    shift_s: Shift = 0.0
    doubted_s: Shift = 0.0
    vouched: bool = False


def correct_stamp(eras: Sequence[ClockEra], at: float, now: float) -> float:
    """Return a stamp in the time of the present era: the time since the clock was last set.

    A stamp that may be of several eras counts as late as any of these eras says.
    """
    if len(eras) <= 1:
        return at
    *past, present = eras
    shifts = [era.shift_s for era in past if era.first <= at <= era.last]
    if present.first <= at <= now + LEAP_S:
        shifts.append(0.0)
    # A stamp that is of no era counts as late as any era would make it.
    return at + max(shifts or (0.0, *(era.shift_s for era in past)))


def after_leap(eras: Sequence[ClockEra], until: float, by_s: float, now: float) -> tuple[ClockEra, ...]:
    """Return the eras after the clock has leapt by `by_s` seconds: from `until`, its last time before, to `now`.

    A new era begins. The stamps of all earlier eras count as `by_s` seconds later, so that no age grows by the leap.
    """
    *past, ended = eras or (ClockEra(),)
    ended = replace(ended, last=max(ended.last, until))
    moved = [
        replace(era, shift_s=_clamp_shift(era.shift_s + by_s), doubted_s=max(era.doubted_s + by_s, 0.0))
        for era in (*past, ended)
    ]
    while len(moved) >= MAX_ERAS:  # the two oldest become one
        moved[:2] = [_join_eras(*moved[:2])]
    return (*moved, ClockEra(first=now, last=now))


def after_confirmation(eras: Sequence[ClockEra], now: float) -> tuple[ClockEra, ...]:
    """Return the eras (times between settings of the clock) once a time service calls the clock right.

    Stamps of eras for which a service vouched before hold as they are, without a shift. The service is not believed
    while the time is before one for which a service has vouched: then the eras stay as they are.
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
    """Return the seconds that may truly have passed, and that no age counts."""
    return max((era.doubted_s for era in eras), default=0.0)


def without_old_eras(eras: Sequence[ClockEra], before: float) -> tuple[ClockEra, ...]:
    """Return the eras without those of which nothing is left, as all of their stamps are before the time `before`."""
    *past, present = eras or (ClockEra(),)
    return (*(era for era in past if era.last + era.shift_s >= before), present)


def _join_eras(first: ClockEra, second: ClockEra) -> ClockEra:
    """Return one era in place of two, whose stamps count as late as those of either."""
    return ClockEra(
        first=min(first.first, second.first),
        last=max(first.last, second.last),
        shift_s=max(first.shift_s, second.shift_s),
        doubted_s=max(first.doubted_s, second.doubted_s),
        vouched=first.vouched and second.vouched,
    )


def _clamp_shift(shift_s: float) -> float:
    return min(max(shift_s, -LATEST), LATEST)
