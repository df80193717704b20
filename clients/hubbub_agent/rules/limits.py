"""Limits of an agent, and the usage that counts against them. Pure: the caller passes the time."""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


class OverLimit(Exception):
    """A limit is reached; the message is its name."""


class UsageLimits(BaseModel):
    """Limits; None means no limit. Cost is in the currency of the prices. A run is one start of the agent."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    answers_per_minute: int | None = Field(default=None, ge=1)
    requests_per_hour: int | None = Field(default=None, ge=1)
    requests_per_day: int | None = Field(default=None, ge=1)
    requests_per_run: int | None = Field(default=None, ge=1)
    tokens_per_hour: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)
    tokens_per_run: int | None = Field(default=None, ge=1)
    cost_per_hour: float | None = Field(default=None, gt=0, strict=False)
    cost_per_day: float | None = Field(default=None, gt=0, strict=False)
    cost_per_run: float | None = Field(default=None, gt=0, strict=False)

    @property
    def outlive_a_run(self) -> bool:
        """Return whether usage of earlier runs counts."""
        return any(name.endswith(("_hour", "_day")) and value is not None for name, value in self)


@dataclass(frozen=True, slots=True)
class Use:
    """Usage of a model; `requests` counts what it was asked."""

    tokens: int = 0
    cost: float = 0.0
    requests: int = 0

    def __add__(self, other: "Use") -> "Use":
        return Use(self.tokens + other.tokens, self.cost + other.cost, self.requests + other.requests)


NOTHING = Use()


@dataclass(slots=True)
class Minute:
    """Usage within one minute; `since` is in seconds since 1970."""

    since: float
    use: Use = NOTHING


class UsageMeter:
    """Counts usage and reservations against the limits. Times are seconds since 1970.

    Before a model is asked, the most that this may take is reserved, so that concurrent requests cannot exceed a limit
    together. `earlier` is the usage of earlier runs.
    """

    def __init__(self, limits: UsageLimits, earlier: Sequence[Minute] = ()) -> None:
        self._limits = limits
        self._answers: deque[float] = deque(maxlen=limits.answers_per_minute or 1)
        self._minutes: deque[Minute] = deque(earlier, maxlen=int(DAY_S / MINUTE_S) + 1)
        self._reserved: dict[int, Use] = {}
        self._run = NOTHING
        self._numbers = itertools.count()

    def over(self, now: float) -> str | None:
        """Return the name of a limit that is reached, else None."""
        limits = self._limits
        if len(self._answers) == limits.answers_per_minute and now - self._answers[0] < MINUTE_S:
            return "answers_per_minute"
        return next((name for name, used, most in self._kinds(now, NOTHING) if used >= most), None)

    def says(self, name: str, now: float, wanted: Use = NOTHING) -> str:
        """Return a limit in words: how much is used of how much, and when it allows more at the latest; or that it has
        no room for the most that a request may take, `wanted`."""
        used = {each: (used, most) for each, used, most in self._kinds(now, NOTHING)}.get(name)
        counted = f" ({used[0]:,.6g} of {used[1]:,.6g} used)" if used else ""
        until = {"hour": "for at most an hour", "day": "for at most a day", "minute": "for at most a minute"}
        what, _, span = name.rpartition("_per_")
        if used and used[0] < used[1] and wanted != NOTHING:
            most = f"a request that may take {getattr(wanted, what):,.6g}"
            return f"{name} has no room for {most}{counted}, so people answer it: raise it, or lower max_tokens"
        return f"{name} is reached{counted}: {until.get(span, 'until the agent is started again')}, people answer"

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
        # A clock that was set back adds to the last minute.
        if not self._minutes or now - self._minutes[-1].since >= MINUTE_S:
            self._minutes.append(Minute(now))
        self._minutes[-1].use += used
        self._run += used

    def answering(self, now: float) -> None:
        """Count an answer when it begins, whatever becomes of it."""
        self._answers.append(now)

    def minutes(self, now: float) -> list[Minute]:
        """Return the usage of the last day, with what is reserved as if it were used: for the next run."""
        kept = [minute for minute in self._minutes if minute.since > now - DAY_S]
        aside = sum(self._reserved.values(), NOTHING)
        return [*kept, Minute(now, aside)] if aside != NOTHING else kept

    def _kinds(self, now: float, more: Use) -> list[tuple[str, float, float]]:
        """Return for each limit of the model: its name, the usage including `more`, and the limit."""
        spans = {
            "hour": self._used(now - HOUR_S) + more,
            "day": self._used(now - DAY_S) + more,
            "run": self._run + more,
        }
        return [
            (f"{what}_per_{span}", getattr(used, what), most)
            for what in ("requests", "tokens", "cost")
            for span, used in spans.items()
            if (most := getattr(self._limits, f"{what}_per_{span}")) is not None
        ]

    def _used(self, since: float) -> Use:
        return sum((minute.use for minute in self._minutes if minute.since > since), NOTHING)
