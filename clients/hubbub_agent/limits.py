"""Limits of an agent. Pure: the caller passes the time."""

import itertools
from collections import deque
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


class OverLimit(Exception):
    """A limit is reached; the message is its name."""


class Limits(BaseModel):
    """Limits; None means no limit. Cost is in the currency of the prices."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    answers_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_hour: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)
    cost_per_hour: float | None = Field(default=None, gt=0, strict=False)
    cost_per_day: float | None = Field(default=None, gt=0, strict=False)


@dataclass(frozen=True, slots=True)
class Use:
    """Usage of a model."""

    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "Use") -> "Use":
        return Use(self.tokens + other.tokens, self.cost + other.cost)


NOTHING = Use()


@dataclass(slots=True)
class _Minute:
    """Usage within one minute."""

    since: float
    use: Use = NOTHING


class Meter:
    """Counts usage and reservations against the limits. Times are seconds of a monotonic clock.

    Before a model is asked, the most that this may take is reserved, so that concurrent requests cannot exceed a limit
    together.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._answers: deque[float] = deque(maxlen=limits.answers_per_minute or 1)
        self._minutes: deque[_Minute] = deque(maxlen=int(DAY_S / MINUTE_S) + 1)
        self._reserved: dict[int, Use] = {}
        self._numbers = itertools.count()

    def over(self, now: float) -> str | None:
        """Return the name of a limit that is reached, else None."""
        limits = self._limits
        if len(self._answers) == limits.answers_per_minute and now - self._answers[0] < MINUTE_S:
            return "answers_per_minute"
        return next((name for name, used, most in self._kinds(now, NOTHING) if used >= most), None)

    def reserve(self, most: Use, now: float) -> int | None:
        """Reserve the most that a request may take; return a ticket for `settle`, None while other reservations are in
        the way.

        Raises OverLimit if the limits would not allow it even without them.
        """
        for name, used, limit in self._kinds(now, most):
            if used > limit:
                raise OverLimit(name)
        aside = sum(self._reserved.values(), most)
        if any(used > limit for _, used, limit in self._kinds(now, aside)):
            return None
        number = next(self._numbers)
        self._reserved[number] = most
        return number

    def settle(self, number: int, used: Use, now: float) -> None:
        """Replace a reservation by the real usage."""
        del self._reserved[number]
        if not self._minutes or now - self._minutes[-1].since >= MINUTE_S:
            self._minutes.append(_Minute(now))
        self._minutes[-1].use += used

    def answering(self, now: float) -> None:
        """Count an answer when it begins, whatever becomes of it."""
        self._answers.append(now)

    def _kinds(self, now: float, more: Use) -> list[tuple[str, float, float]]:
        """Return for each limit of tokens or cost: its name, the usage including `more`, and the limit."""
        limits, hour, day = self._limits, self._used(now - HOUR_S) + more, self._used(now - DAY_S) + more
        kinds = (
            ("tokens_per_hour", hour.tokens, limits.tokens_per_hour),
            ("tokens_per_day", day.tokens, limits.tokens_per_day),
            ("cost_per_hour", hour.cost, limits.cost_per_hour),
            ("cost_per_day", day.cost, limits.cost_per_day),
        )
        return [(name, used, most) for name, used, most in kinds if most is not None]

    def _used(self, since: float) -> Use:
        return sum((minute.use for minute in self._minutes if minute.since > since), NOTHING)
