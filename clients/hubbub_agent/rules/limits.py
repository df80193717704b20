"""Limits of an agent, and the usage that counts against them. Pure: the caller passes the time."""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    def need_earlier_runs(self) -> bool:
        """Return whether the usage of earlier runs counts, since a limit per hour or per day is set."""
        return any(name.endswith(("_hour", "_day")) and value is not None for name, value in self)


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Usage of a model; `requests` is how often it was asked."""

    tokens: int = 0
    cost: float = 0.0
    requests: int = 0

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        return ModelUsage(self.tokens + other.tokens, self.cost + other.cost, self.requests + other.requests)


NO_USAGE = ModelUsage()


@dataclass(slots=True)
class Minute:
    """Usage within one minute; `since` is in seconds since 1970."""

    since: float
    use: ModelUsage = NO_USAGE


class LimitUsage(NamedTuple):
    """A limit, and how much of it is used."""

    name: str
    used: float
    allowed: float


class UsageMeter:
    """Counts usage and reservations against the limits. Times are seconds since 1970.

    Before a model is asked, the most that the request may use is reserved, so that concurrent requests cannot exceed a
    limit together. `earlier` is the usage of earlier runs.
    """

    def __init__(self, limits: UsageLimits, earlier: Sequence[Minute] = ()) -> None:
        self._limits = limits
        # The times of the last answers, as many as the limit allows; without a limit nothing reads them.
        self._answers: deque[float] = deque(maxlen=limits.answers_per_minute or 1)
        self._minutes: deque[Minute] = deque(earlier, maxlen=int(DAY_S / MINUTE_S) + 1)
        # Reservations by ticket, and the usage of this run.
        self._reserved: dict[int, ModelUsage] = {}
        self._run = NO_USAGE
        self._tickets = itertools.count()

    def reached_limit(self, now: float) -> str | None:
        """Return the name of a limit that is reached; None if there is none."""
        max_answers = self._limits.answers_per_minute
        if len(self._answers) == max_answers and now - self._answers[0] < MINUTE_S:
            return "answers_per_minute"
        return next((limit.name for limit in self._usage_of_limits(now) if limit.used >= limit.allowed), None)

    def describe_limit(self, name: str, now: float, requested: ModelUsage = NO_USAGE) -> str:
        """Return a limit in words: how much of it is used, and for how long people answer because of it.

        A limit that is not reached is described as one without room for `requested`, the most that a request may use.
        """
        limit = next((limit for limit in self._usage_of_limits(now) if limit.name == name), None)
        usage_note = f" ({limit.used:,.6g} of {limit.allowed:,.6g} used)" if limit else ""
        resource, _, span = name.rpartition("_per_")
        if limit and limit.used < limit.allowed and requested != NO_USAGE:
            request = f"a request that may take {getattr(requested, resource):,.6g}"
            return f"{name} has no room for {request}{usage_note}, so people answer it: raise it, or lower max_tokens"
        durations = {"hour": "for at most an hour", "day": "for at most a day", "minute": "for at most a minute"}
        return (
            f"{name} is reached{usage_note}: {durations.get(span, 'until the agent is started again')}, people answer"
        )

    def reserve(self, maximum: ModelUsage, now: float) -> int | None:
        """Reserve the most that a request may use; return a ticket, with which `settle` replaces it by the real usage.

        Return None if other reservations leave no room now. Raises OverLimit if the request exceeds a limit even
        without them.
        """
        for limit in self._usage_of_limits(now, maximum):
            if limit.used > limit.allowed:
                raise OverLimit(limit.name)
        all_reserved = sum(self._reserved.values(), maximum)
        if any(limit.used > limit.allowed for limit in self._usage_of_limits(now, all_reserved)):
            return None
        ticket = next(self._tickets)
        self._reserved[ticket] = maximum
        return ticket

    def settle(self, ticket: int, used: ModelUsage, now: float) -> None:
        """Replace the reservation of a ticket by the real usage of its request."""
        del self._reserved[ticket]
        # After the clock was set back, usage is added to the last minute.
        if not self._minutes or now - self._minutes[-1].since >= MINUTE_S:
            self._minutes.append(Minute(now))
        self._minutes[-1].use += used
        self._run += used

    def count_answer(self, now: float) -> None:
        """Count an answer when it begins, whatever its outcome."""
        self._answers.append(now)

    def minutes(self, now: float) -> list[Minute]:
        """Return the usage of the last day, to be stored for the next run; reservations count as used."""
        last_day = [minute for minute in self._minutes if minute.since > now - DAY_S]
        reserved = sum(self._reserved.values(), NO_USAGE)
        return [*last_day, Minute(now, reserved)] if reserved != NO_USAGE else last_day

    def _usage_of_limits(self, now: float, extra: ModelUsage = NO_USAGE) -> list[LimitUsage]:
        """Return each limit that is set, with the usage including `extra`; not the limit on answers."""
        spans = {
            "hour": self._used_since(now - HOUR_S) + extra,
            "day": self._used_since(now - DAY_S) + extra,
            "run": self._run + extra,
        }
        return [
            LimitUsage(f"{resource}_per_{span}", getattr(used, resource), allowed)
            for resource in ("requests", "tokens", "cost")
            for span, used in spans.items()
            if (allowed := getattr(self._limits, f"{resource}_per_{span}")) is not None
        ]

    def _used_since(self, since: float) -> ModelUsage:
        """Return the usage of the minutes since a time."""
        return sum((minute.use for minute in self._minutes if minute.since > since), NO_USAGE)
