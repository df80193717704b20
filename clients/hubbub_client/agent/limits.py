"""How much an agent may do. Pure: whoever asks says what time it is."""

from collections import deque
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


class Limits(BaseModel):
    """No limit where none is given. Cost is in the currency of the prices."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    answers_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_hour: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)
    cost_per_hour: float | None = Field(default=None, gt=0, strict=False)
    cost_per_day: float | None = Field(default=None, gt=0, strict=False)


@dataclass(slots=True)
class _Minute:
    """What was used within one minute."""

    since: float
    tokens: int = 0
    cost: float = 0.0


class Meter:
    """What was used of the limits. Times are seconds of a clock that does not go back."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._answers: deque[float] = deque(maxlen=limits.answers_per_minute or 1)
        self._minutes: deque[_Minute] = deque(maxlen=int(DAY_S / MINUTE_S) + 1)

    def over(self, now: float) -> str | None:
        """The name of a limit that is reached, else None."""
        limits = self._limits
        if len(self._answers) == limits.answers_per_minute and now - self._answers[0] < MINUTE_S:
            return "answers_per_minute"
        hour, day = self._used(now - HOUR_S), self._used(now - DAY_S)
        reached = {
            "tokens_per_hour": (hour.tokens, limits.tokens_per_hour),
            "tokens_per_day": (day.tokens, limits.tokens_per_day),
            "cost_per_hour": (hour.cost, limits.cost_per_hour),
            "cost_per_day": (day.cost, limits.cost_per_day),
        }
        return next((name for name, (used, most) in reached.items() if most is not None and used >= most), None)

    def answering(self, now: float) -> None:
        """An answer is begun; it counts, whatever becomes of it."""
        self._answers.append(now)

    def spend(self, tokens: int, cost: float, now: float) -> None:
        """A model was asked. What runs at the same time may so exceed a limit once, each by one request."""
        if not self._minutes or now - self._minutes[-1].since >= MINUTE_S:
            self._minutes.append(_Minute(now))
        self._minutes[-1].tokens += tokens
        self._minutes[-1].cost += cost

    def _used(self, since: float) -> _Minute:
        recent = [minute for minute in self._minutes if minute.since > since]
        return _Minute(since, sum(minute.tokens for minute in recent), sum(minute.cost for minute in recent))
