"""Timeline of a call, from its record and those of its pending requests. Needs no tracing backend.

The command line draws it (cli/timeline.py), and so does the web inbox (web/static/js/timeline.js).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from hubbub_client.data.records import Call, PendingRequest
from hubbub_frontend.display.records import format_duration

PartKind = Literal["queued", "server", "person"]
KINDS: tuple[PartKind, ...] = ("queued", "server", "person")
OVER = ("answered", "expired", "withdrawn")


@dataclass(frozen=True, slots=True)
class CallPhase:
    """A stretch of a call's time, in seconds since the call was created."""

    kind: PartKind
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Return its length in seconds."""
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
    """Parts without gaps, from 0 to `total_s`."""

    total_s: float
    parts: tuple[CallPhase, ...]
    questions: tuple[QuestionSpan, ...]

    def sum_s(self, kind: PartKind) -> float:
        """Return the seconds of all parts of a kind."""
        return sum(part.length_s for part in self.parts if part.kind == kind)

    @property
    def summary(self) -> str:
        """Return sums and the share of people: `queued 4 ms · server 0.7 s · person 21.5 s (97%)`."""
        sums = [f"{kind} {format_duration(self.sum_s(kind))}" for kind in KINDS if self.sum_s(kind)]
        person = self.sum_s("person")
        return " · ".join(sums) + (f" ({person / self.total_s:.0%})" if person and self.total_s else "")

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values, with the share of people."""
        share = self.sum_s("person") / self.total_s if self.total_s else 0.0
        sums = {f"{kind}_s": round(self.sum_s(kind), 6) for kind in KINDS}
        return {
            "total_s": self.total_s,
            **sums,
            "person_share": round(share, 4),
            "parts": [{"kind": p.kind, "start_s": p.start_s, "end_s": p.end_s} for p in self.parts],
            "asked": [
                {
                    "id": a.id,
                    "kind": a.kind,
                    "state": a.state,
                    "start_s": a.start_s,
                    "end_s": a.end_s,
                    "steps": [{"what": s.what, "at_s": s.at_s, "by": s.by, "agent": s.agent} for s in a.steps],
                }
                for a in self.questions
            ],
        }


def build_timeline(call: Call, requests: Sequence[PendingRequest], now: datetime) -> Timeline:
    """Build the timeline of a call until its end, or until now.

    Time with people counts once, however many pending requests are open.
    """

    def since(moment: datetime) -> float:
        return max(round((moment - call.created_at).total_seconds(), 6), 0.0)

    total = since(call.completed_at or now)
    asked = tuple(
        _question_span(request, since, total) for request in sorted(requests, key=lambda r: (r.created_at, r.id))
    )
    sent = min(since(call.started_at) if call.started_at else total, total)
    parts = [CallPhase("queued", 0.0, sent)]
    at = sent
    for each in sorted(asked, key=lambda a: a.start_s):
        start, end = max(at, each.start_s), max(at, each.end_s)
        if end > start:
            parts += [CallPhase("server", at, start), CallPhase("person", start, end)]
            at = end
    parts.append(CallPhase("server", at, total))
    return Timeline(total, tuple(_join_phases(parts)), asked)


def _question_span(request: PendingRequest, since: Callable[[datetime], float], total: float) -> QuestionSpan:
    names = {"delivered": "late"} if request.delivery == "late" else {}
    steps = tuple(
        Step(names.get(m.what or "", m.what) or "unknown", since(m.at), m.by, m.agent) for m in request.moments
    )
    over = next((step.at_s for step in steps if step.what in OVER), None)
    if over is None and request.answered_at is not None:
        over = since(request.answered_at)
    end = min(total if over is None else over, total)
    return QuestionSpan(
        id=request.id,
        kind=request.kind,
        state=request.state,
        start_s=min(since(request.created_at), end),
        end_s=end,
        steps=steps,
    )


def _join_phases(parts: Sequence[CallPhase]) -> list[CallPhase]:
    """Drop empty parts, and join neighbours of one kind."""
    found: list[CallPhase] = []
    for part in parts:
        if part.length_s <= 0:
            continue
        if found and found[-1].kind == part.kind:
            found[-1] = CallPhase(part.kind, found[-1].start_s, part.end_s)
        else:
            found.append(part)
    return found
