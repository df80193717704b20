"""What people received from a hub that was killed again and again, and whether the hub and its servers agree with it.

Every answer that is tried has a value of its own, so what holds a value holds that answer: the store, or a server.
An answer whose reply was lost is `ambiguous`: it may have been accepted or not, but then for all alike.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

Value = str | int

LASTING = ("mrtr", "ext")
"""The servers whose questions, and the calls that caused them, outlive the hub; they reply to an answer."""


class Told(StrEnum):
    """The response to somebody who tried something."""

    AMBIGUOUS = "ambiguous"
    ACCEPTED = "accepted"
    REFUSED = "refused"


@dataclass
class Attempt:
    """An answer that somebody gives; times are seconds since the epoch."""

    request_id: str
    person: str
    value: Value
    answer_id: str
    begun_at: float
    told: Told = Told.AMBIGUOUS
    told_at: float = 0.0
    sent: int = 0


@dataclass
class Lease:
    """An acknowledged claim: nobody else's answer may be accepted between these times."""

    request_id: str
    person: str
    since: float
    until: float


@dataclass
class Started:
    """A detached call; `acknowledged` once its caller knows that the hub has it."""

    server: str
    acknowledged: bool = False
    result: Any = None


@dataclass
class Seen:
    """Where a watch over all restarts stands."""

    records: dict[str, Any] = field(default_factory=dict[str, Any])
    resets: int = 0


@dataclass
class Memory:
    """All that was tried, and all the responses."""

    attempts: dict[Value, Attempt] = field(default_factory=dict[Value, Attempt])
    leases: list[Lease] = field(default_factory=list[Lease])
    calls: dict[str, Started] = field(default_factory=dict[str, Started])
    tasks: set[str] = field(default_factory=set[str])
    violations: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    lasting: tuple[str, ...] = LASTING
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def attempt(self, request_id: str, person: str, number: bool, now: float) -> Attempt:
        """A new answer with a value that no other one has."""
        n = next(self._numbers)
        value = n if number else f"{person}/{n}"
        made = self.attempts[value] = Attempt(request_id, person, value, f"answer-{n}", now)
        return made

    def new_call(self, person: str, server: str) -> str:
        """The id of a new call."""
        call_id = f"{person}-{next(self._numbers)}"
        self.calls[call_id] = Started(server)
        return call_id

    def wrong(self, what: str) -> None:
        """Notes something that must not be."""
        self.violations.append(what)


def value_of(answer: Any) -> Value | None:
    """The value that an answer carries: of a form's only field, or the text of a sampling. None for a refusal."""
    content = (answer or {}).get("content") or (answer or {}).get("data")
    if not isinstance(content, dict):
        return None
    return content.get("text") if "text" in content else next(iter(content.values()), None)


def judge(memory: Memory, requests: Iterable[Any], calls: Iterable[Any], journal: Path) -> None:
    """Compares the responses with what the hub holds now, and with what its servers have received."""
    held = {request.id: request for request in requests}
    _judge_answers(memory, held)
    _judge_leases(memory)
    _judge_servers(memory, held, journal)
    _judge_calls(memory, {call.id: call for call in calls}, held)


def _judge_answers(memory: Memory, held: dict[str, Any]) -> None:
    winners = Counter(a.request_id for a in memory.attempts.values() if a.told is Told.ACCEPTED)
    for request_id, count in winners.items():
        if count > 1:
            memory.wrong(f"{request_id}: {count} people had the response that theirs is the answer")
    for attempt in memory.attempts.values():
        memory.counts[f"answers {attempt.told}"] += 1
        memory.counts["answers sent again"] += max(attempt.sent - 1, 0)
        request = held.get(attempt.request_id)
        if request is None:
            memory.wrong(f"{attempt.request_id}: was seen and is gone")
            continue
        holds = request.state == "answered" and value_of(request.answer) == attempt.value
        if holds and request.answered_by != attempt.person:
            memory.wrong(f"{request.id}: the answer of {attempt.person} is said to be {request.answered_by}'s")
        if attempt.told is Told.ACCEPTED and not holds:
            memory.wrong(f"{request.id}: the accepted answer {attempt.value!r} is lost: {request}")
        if attempt.told is Told.REFUSED and holds:
            memory.wrong(f"{request.id}: the refused answer {attempt.value!r} is held")
    for request in held.values():
        if request.state == "answered" and value_of(request.answer) not in memory.attempts:
            memory.wrong(f"{request.id}: nobody gave the answer {request.answer}")
        if request.state == "open":
            memory.wrong(f"{request.id}: is still open: {request}")
        if request.delivery == "pending":
            memory.wrong(f"{request.id}: nobody says what became of its answer: {request}")
        memory.counts[f"requests {request.state}"] += 1
        if request.state == "answered":
            memory.counts[f"answers {request.delivery}"] += 1


def _judge_leases(memory: Memory) -> None:
    accepted = {a.request_id: a for a in memory.attempts.values() if a.told is Told.ACCEPTED}
    for lease in memory.leases:
        other = accepted.get(lease.request_id)
        # Only what lies wholly inside of the lease was certainly accepted while it held.
        if other and other.person != lease.person and lease.since < other.begun_at and other.told_at < lease.until:
            memory.wrong(f"{lease.request_id}: {other.person} answered what {lease.person} had claimed")
    memory.counts["claims"] = len(memory.leases)


def _judge_servers(memory: Memory, held: dict[str, Any], journal: Path) -> None:
    received: Counter[Value] = Counter()
    for line in journal.read_text().splitlines() if journal.exists() else ():
        noted = json.loads(line)
        value = value_of(noted["answer"])
        attempt = memory.attempts.get(value) if value is not None else None
        if attempt is None or value is None:
            memory.wrong(f"{noted['server']} received an answer that nobody gave: {noted['answer']}")
            continue
        received[value] += 1
        request = held.get(attempt.request_id)
        if attempt.told is Told.REFUSED or request is None or value_of(request.answer) != value:
            memory.wrong(f"{noted['server']} received {value!r}, which was not accepted: {request}")
    for request in held.values():
        # A plain answer is delivered when the transport has it; one of these only when the server has replied.
        replied = request.delivery == "delivered" and request.state == "answered" and request.server in memory.lasting
        if replied and value_of(request.answer) not in received:
            memory.wrong(f"{request.id}: is said to be delivered and was not received")
    memory.counts["answers received by servers"] = sum(received.values())
    memory.counts["answers received more than once"] = sum(count > 1 for count in received.values())


def _judge_calls(memory: Memory, held: dict[str, Any], requests: dict[str, Any]) -> None:
    for call_id, started in memory.calls.items():
        call = held.get(call_id)
        memory.counts["calls acknowledged"] += started.acknowledged
        if call is None:
            if started.acknowledged:
                memory.wrong(f"{call_id}: the acknowledged call is lost")
            continue
        if not call.ended:
            memory.wrong(f"{call_id}: has not ended: {call}")
        if started.result is not None and call.result != started.result:
            memory.wrong(f"{call_id}: its result was {started.result}, and is {call.result} with {call.error}")
        if call.state == "failed":
            memory.counts[f"calls failed {call.error.code}"] += 1
        else:
            memory.counts[f"calls {call.state}"] += 1
    for request in requests.values():
        if request.server in memory.lasting:
            call = held[request.call_id]
            told = (call.result or {}).get("content") or [{"text": ""}]
            memory.counts["answers found in the result of their call"] += 1
            if call.state != "completed" or str(value_of(request.answer)) not in told[0]["text"]:
                memory.wrong(f"{request.id}: its answer {request.answer} is not in the result of its call: {call}")
