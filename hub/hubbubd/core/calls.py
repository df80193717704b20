"""A call: its record, its states, and its clocks.

    queued ──> in_progress ──> completed | failed | cancelled
      ^  ^         │   ^
      │  └─────────┘   │          session lost: sent once more
      │            v   │
      └───── waiting_input        parked: no slot, no clock

A parked call returns to in_progress when the server was waiting on the wire, and to the head of the queue when
the request must be sent again (MRTR). Parked and queued calls can end without having been sent. What the hub before
this one left unfinished either ends, as `obstacle` says, or is taken up: a call in rounds is then parked.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from hubbubd import bounds
from hubbubd.core.connection import IllegalTransition
from hubbubd.errors import Category, Fault
from hubbubd.telemetry.trace import Span, Trace


class CallState(StrEnum):
    """Where a call stands."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    WAITING_INPUT = "waiting_input"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen."""
        return self in ENDED


ENDED = frozenset({CallState.COMPLETED, CallState.FAILED, CallState.CANCELLED})

TRANSITIONS: Mapping[CallState, frozenset[CallState]] = MappingProxyType(
    {
        CallState.QUEUED: frozenset({CallState.IN_PROGRESS, CallState.FAILED, CallState.CANCELLED}),
        CallState.IN_PROGRESS: frozenset({CallState.WAITING_INPUT, CallState.QUEUED, *ENDED}),
        CallState.WAITING_INPUT: frozenset({CallState.IN_PROGRESS, CallState.QUEUED, *ENDED}),
        CallState.COMPLETED: frozenset[CallState](),
        CallState.FAILED: frozenset[CallState](),
        CallState.CANCELLED: frozenset[CallState](),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How far a multi-round request has come: 2026-07-28, MRTR; or 2025-11-25, error -32042.

    `state` is the server's requestState, kept to the letter; None when it sent none. `questions` pairs the keys
    of its inputRequests with the pending requests made of them, `configured` has the answers to the others: a JSON
    object by key. `refusal` is the JSON-RPC error that asked, None in MRTR. `fingerprint` says which server asked.
    """

    count: bounds.Count = 0
    state: str | None = None
    questions: tuple[tuple[str, str], ...] = ()
    configured: bytes = b"{}"
    refusal: bytes | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One MCP request and what became of it. Times are seconds since the epoch, payloads JSON bytes.

    `trace` is the place of its span; `under_way` has the spans around and below it that have begun and that a hub which
    is killed cannot tell of any more: the next one does. `fingerprint` says for which server it was made.
    `perhaps_pending_ids` are the open requests that this call or another one has caused. `defect` says what of it the
    store could not give back.
    """

    id: str
    server: str
    method: str
    params: bytes
    principal: str
    detached: bool
    timeout_s: bounds.Span
    max_s: bounds.Span
    created_at: bounds.Moment
    state: CallState = CallState.QUEUED
    started_at: bounds.Moment | None = None
    completed_at: bounds.Moment | None = None
    result: bytes | None = None
    fault: Fault | None = None
    pending_ids: tuple[str, ...] = ()
    perhaps_pending_ids: tuple[str, ...] = ()
    task_id: str | None = None
    as_task: bool = False
    fingerprint: str = ""
    rounds: Rounds | None = None
    trace: Trace | None = None
    under_way: tuple[Span, ...] = ()
    defect: str = ""

    def same_request(self, other: "Call") -> bool:
        """Whether both ask the same of the same server: what makes a repeated `call_id` the same call."""
        mine, theirs = ((c.server, c.method, c.params, c.as_task) for c in (self, other))
        return mine == theirs


def move(call: Call, state: CallState, now: float, *, result: bytes | None = None, fault: Fault | None = None) -> Call:
    """The call in another state, with its times and what it ended with. Raises IllegalTransition."""
    if state not in TRANSITIONS[call.state]:
        raise IllegalTransition(call.state, state)
    if state is CallState.IN_PROGRESS:
        return replace(call, state=state, started_at=now if call.started_at is None else call.started_at)
    if state not in ENDED:
        return replace(call, state=state)
    return replace(
        call, state=state, completed_at=now, result=result, fault=fault, perhaps_pending_ids=(), under_way=()
    )


def complete(call: Call, result: bytes, now: float) -> Call:
    """The call with its result."""
    return move(call, CallState.COMPLETED, now, result=result)


def fail(call: Call, fault: Fault, now: float) -> Call:
    """The call with the reason of its end: cancelled when the fault says so, else failed."""
    state = CallState.CANCELLED if fault.category is Category.CANCELLED else CallState.FAILED
    return move(call, state, now, fault=fault)


def ending(call: Call) -> str | None:
    """How a call has ended, for the requests that it caused; None when it has not."""
    match call.state:
        case CallState.COMPLETED:
            return "its call has its result already"
        case CallState.CANCELLED:
            return "its call was cancelled"
        case CallState.FAILED:
            timeout = call.fault is not None and call.fault.category is Category.TIMEOUT
            return "its call ran out of time" if timeout else "its call failed"
        case _:
            return None


def obstacle(
    call: Call, server: str | None, *, resume: bool, task_of: str | None = None, answers_kept: bool = True
) -> str | None:
    """Why the next hub cannot go on with an unfinished call, as the end of a sentence; None when it can.

    `server` is the fingerprint of the one that has the name now, None when there is none; `task_of` of the one that
    holds the call as a task; `resume` says whether a call may be sent to it once more.
    """
    if never_sent(call):
        if server is None:
            return "it was never sent, and its server is not configured any more"
        return None if call.fingerprint == server else "it was never sent, and its server is another one now"
    if server is None:
        return "its server is not configured any more"
    if call.task_id is None and call.rounds is None:
        return "the server may have carried it out already"
    if call.task_id is not None and task_of is None:
        return "its task is not known any more"
    if (task_of if call.rounds is None or call.task_id else call.rounds.fingerprint) != server:
        return "its server is another one now"
    if call.task_id is not None:
        return None
    if not resume:
        return "it may not be sent to its server once more (resume = false)"
    return None if answers_kept else "answers that it needs have been deleted"


def never_sent(call: Call) -> bool:
    """Whether it is certain that the server has not heard of an unfinished call.

    Only of detached calls: that they are sent is durable before they are. Records of older hubs name no server, and
    these made no such promise.
    """
    if call.state is not CallState.QUEUED or call.started_at is not None or call.rounds or call.task_id:
        return False
    return call.detached and bool(call.fingerprint)


def taken_up(call: Call) -> Call:
    """An unfinished call as the next hub goes on with it: nobody waits for it, and one in rounds is parked."""
    parked = call.task_id is None and not never_sent(call)
    return replace(call, detached=True, perhaps_pending_ids=(), state=CallState.WAITING_INPUT if parked else call.state)


@dataclass(slots=True)
class CallClock:
    """The two budgets of a call, in seconds: without progress, and in all. They run only while nothing holds them.

    People's time is not the server's: each open question holds the clock of its call once.
    """

    timeout_s: float
    max_s: float
    _since: float
    _timeout_left: float = 0.0
    _holds: int = 0

    def __post_init__(self) -> None:
        self._timeout_left = self.timeout_s

    def deadline(self) -> float | None:
        """When the call is out of time; None while held."""
        return None if self._holds else self._since + min(self._timeout_left, self.max_s)

    def out_of_total(self, now: float) -> bool:
        """Whether it is the absolute maximum that has run out."""
        return not self._holds and now >= self._since + self.max_s

    def restart(self, now: float) -> None:
        """Gives the call its whole time without progress again: it was sent, or the server reported progress."""
        self._spend(now)
        self._timeout_left = self.timeout_s

    def without_timeout(self, now: float) -> None:
        """Leaves only the time in all: a task is asked for its status, it need not report progress."""
        self.timeout_s = math.inf
        self.restart(now)

    def hold(self, now: float) -> None:
        """Stops the clock until `release` has been called as often."""
        self._spend(now)
        self._holds += 1

    def release(self, now: float) -> None:
        """Takes one hold back; the last one lets the clock run on."""
        if self._holds == 0:
            raise ValueError("the clock is not held")
        self._holds -= 1
        self._since = now

    def _spend(self, now: float) -> None:
        if not self._holds:
            self._timeout_left -= now - self._since
            self.max_s -= now - self._since
        self._since = now
