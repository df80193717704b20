"""What the model of a request queue knows of each call and each question."""

import asyncio
from dataclasses import dataclass, field, replace

from hubbubd.core.calls.call_states import Call
from hubbubd.errors import HubError

from .peer import Outcome, Question, Sent


@dataclass(eq=False)
class Sending:
    """A call on the wire, as the server sees it."""

    sent: Sent
    outcome: asyncio.Future[Outcome]
    over: bool = False


@dataclass(eq=False)
class Asked:
    """A question, and the calls whose time stands while it is open."""

    id: str
    holds: list["Made"]
    since: float
    until: float | None = None
    question: Question | None = None


@dataclass(eq=False)
class Made:
    """What the model knows of a call. Its clocks run from `since`, the one without progress from `mark`."""

    name: str
    id: str
    detached: bool
    since: float
    mark: float
    callers: list[asyncio.Task[Call | HubError]] = field(default_factory=list[asyncio.Task[Call | HubError]])
    sendings: list[Sending] = field(default_factory=list[Sending])
    rounds: list[Asked] = field(default_factory=list[Asked])
    met_lost_session: bool = False
    # Whether it goes on in another hub, from which the server has nothing of it yet.
    taken_up: bool = False
    ended: Call | None = None

    @property
    def wire(self) -> Sending | None:
        return self.sendings[-1] if self.sendings and not self.sendings[-1].over else None

    @property
    def in_rounds(self) -> bool:
        return any(asked.until is None for asked in self.rounds)


def length(intervals: list[tuple[float, float]]) -> float:
    """How much time the intervals cover."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(end - max(begin, reached), 0.0)
        reached = max(reached, end)
    return total


def without_spans(call: Call) -> Call:
    """What a watcher gets of a call: how it goes on, and the spans that have begun, are kept for the next hub."""
    return replace(call, under_way=(), rounds=None, detached=False)
