"""How much an agent may do. Pure: whoever asks says what time it is."""

import itertools
from collections import deque
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


class OverLimit(Exception):
    """A limit is in the way; the message is its name."""


class Limits(BaseModel):
    """No limit where none is given. Cost is in the currency of the prices."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    answers_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_hour: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)
    cost_per_hour: float | None = Field(default=None, gt=0, strict=False)
    cost_per_day: float | None = Field(default=None, gt=0, strict=False)


@dataclass(frozen=True, slots=True)
class Use:
    """What models take."""

    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "Use") -> "Use":
        return Use(self.tokens + other.tokens, self.cost + other.cost)


NOTHING = Use()


@dataclass(slots=True)
class _Minute:
    """What was used within one minute."""

    since: float
    use: Use = NOTHING


class Meter:
    """What was used of the limits, and what is set aside. Times are seconds of a clock that does not go back.

    Whoever asks a model first reserves the most that this may take, so that requests at the same moment cannot exceed
    a limit together.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._answers: deque[float] = deque(maxlen=limits.answers_per_minute or 1)
        self._minutes: deque[_Minute] = deque(maxlen=int(DAY_S / MINUTE_S) + 1)
        self._reserved: dict[int, Use] = {}
        self._numbers = itertools.count()

    def over(self, now: float) -> str | None:
        """The name of a limit that is reached, else None."""
        limits = self._limits
        if len(self._answers) == limits.answers_per_minute and now - self._answers[0] < MINUTE_S:
            return "answers_per_minute"
        return next((name for name, used, most in self._kinds(now, NOTHING) if used >= most), None)

    def reserve(self, most: Use, now: float) -> int | None:
        """Sets so much aside; a number for `settle`. None while what others have set aside is in the way.

        Raises OverLimit when the limits do not allow it anyway.
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
        """So much was used of what was set aside; the rest is free again."""
        del self._reserved[number]
        if not self._minutes or now - self._minutes[-1].since >= MINUTE_S:
            self._minutes.append(_Minute(now))
        self._minutes[-1].use += used

    def answering(self, now: float) -> None:
        """An answer is begun; it counts, whatever becomes of it."""
        self._answers.append(now)

    def _kinds(self, now: float, more: Use) -> list[tuple[str, float, float]]:
        """For each limit of tokens or cost: its name, what would be used with so much more, and the limit."""
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
