"""Timeline of a call, from its record and those of its pending requests. Needs no tracing backend.

The command line draws it (hubbub_cli), and so does the web inbox (hubbub_web/static/js/timeline.js).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from hubbub_client.data.records import Call, PendingRequest
from hubbub_frontend.display.records import format_duration

PartKind = Literal["queued", "server", "person"]
KINDS: tuple[PartKind, ...] = ("queued", "server", "person")
ENDING_STEPS = ("answered", "expired", "withdrawn")


@dataclass(frozen=True, slots=True)
class CallPhase:
    """A stretch of a call's time, in seconds since the call was created."""

    kind: PartKind
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Return the length of the phase in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Step:
    """An event of a pending request, in seconds since the call was created."""

    what: str
    at_s: float
    by: str | None
    agent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSpan:
    """A pending request, in seconds since the call was created; it ends when it no longer waits for an answer."""

    id: str
    kind: str
    state: str
    start_s: float
    end_s: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Parts without gaps, from 0 to `total_s`, and the pending requests of the call."""

    total_s: float
    parts: tuple[CallPhase, ...]
    questions: tuple[QuestionSpan, ...]

    def sum_s(self, kind: PartKind) -> float:
        """Return the seconds of all parts of a kind."""
        return sum(part.length_s for part in self.parts if part.kind == kind)

    @property
    def summary(self) -> str:
        """Return sums and the share of people: `queued 4 ms · server 0.7 s · person 21.5 s (97%)`."""
        sums = " · ".join(f"{kind} {format_duration(self.sum_s(kind))}" for kind in KINDS if self.sum_s(kind))
        person_s = self.sum_s("person")
        return f"{sums} ({person_s / self.total_s:.0%})" if person_s and self.total_s else sums

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values, with the share of people."""
        person_share = self.sum_s("person") / self.total_s if self.total_s else 0.0
        sums = {f"{kind}_s": round(self.sum_s(kind), 6) for kind in KINDS}
        return {
            "total_s": self.total_s,
            **sums,
            "person_share": round(person_share, 4),
            "parts": [asdict(part) for part in self.parts],
            "asked": [asdict(question) for question in self.questions],
        }


def build_timeline(call: Call, requests: Sequence[PendingRequest], now: datetime) -> Timeline:
    """Build the timeline of a call until its end, or until now.

    Time with people counts once, however many pending requests are open.
    """

    def seconds_until(moment: datetime) -> float:
        """Return the seconds from the creation of the call to a moment."""
        return max(round((moment - call.created_at).total_seconds(), 6), 0.0)

    total_s = seconds_until(call.completed_at or now)
    in_order = sorted(requests, key=lambda request: (request.created_at, request.id))
    questions = tuple(_question_span(request, seconds_until, total_s) for request in in_order)
    sent_s = min(seconds_until(call.started_at) if call.started_at else total_s, total_s)
    parts = [CallPhase("queued", 0.0, sent_s)]
    covered_s = sent_s
    for question in sorted(questions, key=lambda question: question.start_s):
        start_s, end_s = max(covered_s, question.start_s), max(covered_s, question.end_s)
        if end_s > start_s:
            parts += [CallPhase("server", covered_s, start_s), CallPhase("person", start_s, end_s)]
            covered_s = end_s
    parts.append(CallPhase("server", covered_s, total_s))
    return Timeline(total_s, tuple(_join_phases(parts)), questions)


def _question_span(request: PendingRequest, seconds_until: Callable[[datetime], float], total_s: float) -> QuestionSpan:
    """Return the time in which a pending request was open, with its events."""
    names = {"delivered": "late"} if request.delivery == "late" else {}
    steps = tuple(
        Step(names.get(moment.what or "", moment.what) or "unknown", seconds_until(moment.at), moment.by, moment.agent)
        for moment in request.moments
    )
    closed_s = next((step.at_s for step in steps if step.what in ENDING_STEPS), None)
    if closed_s is None and request.answered_at is not None:
        closed_s = seconds_until(request.answered_at)
    end_s = min(total_s if closed_s is None else closed_s, total_s)
    return QuestionSpan(
        id=request.id,
        kind=request.kind,
        state=request.state,
        start_s=min(seconds_until(request.created_at), end_s),
        end_s=end_s,
        steps=steps,
    )


def _join_phases(phases: Sequence[CallPhase]) -> list[CallPhase]:
    """Return the phases without empty ones, and with neighbours of one kind joined."""
    joined: list[CallPhase] = []
    for phase in phases:
        if phase.length_s <= 0:
            continue
        if joined and joined[-1].kind == phase.kind:
            joined[-1] = CallPhase(phase.kind, joined[-1].start_s, phase.end_s)
        else:
            joined.append(phase)
    return joined
