"""A call: its record, its states, and its clocks.

    queued ──> in_progress ──> completed | failed | cancelled
      ^  ^         │   ^
      │  └─────────┘   │          session lost: sent once more
      │            v   │
      └───── waiting_input        parked: no slot, no clock; a call that is to be approved begins here

A parked call returns to in_progress when the server was waiting on the wire, and to the head of the queue when
the request must be sent again (multi-round requests, MRTR). Parked and queued calls can end without having been sent.
After a restart each unfinished call ends, for the reason that `find_obstacle` gives, or is resumed (`as_resumed`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from hubbubd import bounds
from hubbubd.core.approvals.vote import Vote
from hubbubd.core.servers.connection_states import IllegalTransition
from hubbubd.errors import Category, Fault
from hubbubd.frozen import carry_over_changes, replaced
from hubbubd.telemetry.trace import Span, Trace


class CallState(StrEnum):
    """State of a call; `TRANSITIONS` has what may follow."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    WAITING_INPUT = "waiting_input"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
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
class RoundProgress:
    """Progress of a multi-round request: MRTR (MCP 2026-07-28), or error -32042 (2025-11-25).

    `state` is the server's requestState, byte for byte; None when it sent none. `questions` pairs the keys of its
    inputRequests with the ids of the pending requests made of them; `configured` is a JSON object with the answers that
    need nobody. `refusal` is the JSON-RPC error that started the rounds, None in MRTR. `fingerprint` identifies the
    server that asked.
    """

    count: bounds.Count = 0
    state: str | None = None
    questions: tuple[tuple[str, str], ...] = ()
    configured: bytes = b"{}"
    refusal: bytes | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOrigin:
    """Where a call came from: the program and profile of its host, and its principal's roles on the server.

    `app` says that a page of an app (MCP Apps) made it.
    """

    host: str = ""
    profile: str = ""
    roles: tuple[str, ...] = ()
    app: bool = False


NO_ORIGIN = CallOrigin()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallApproval:
    """The approval that a rule wants for a call, and what it was of.

    People were asked in the pending request `request_id`, or an approval was remembered. `definition` is the digest of
    the tool's definition, and `arguments` what those who approved have changed the arguments to, as JSON. `asked` is
    how often people were asked.
    """

    rule: str
    definition: str
    request_id: str = ""
    remembered_id: str = ""
    votes: tuple[Vote, ...] = ()
    granted: bool = False
    arguments: bytes | None = None
    asked: bounds.Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One MCP request and its outcome. Times are seconds since the epoch, payloads JSON bytes.

    `id` is the idempotency key. `trace` is the place of its span; `under_way` has the open spans around and below it,
    for the next hub to finish if this one is killed. `fingerprint` identifies the server it was made for.
    `perhaps_pending_ids` are open requests that this call or another one has caused. `defect` names what could not be
    loaded from the store.
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
    rounds: RoundProgress | None = None
    trace: Trace | None = None
    under_way: tuple[Span, ...] = ()
    defect: str = ""
    origin: CallOrigin = NO_ORIGIN
    approval: CallApproval | None = None

    def is_same_request(self, other: "Call") -> bool:
        """Return whether a repeated `call_id` names the same request: same server, method, params and `as_task`."""
        own_request, other_request = ((call.server, call.method, call.params, call.as_task) for call in (self, other))
        return own_request == other_request


def move(call: Call, state: CallState, now: float, *, result: bytes | None = None, fault: Fault | None = None) -> Call:
    """Return the call in another state, with its times and outcome. Raises IllegalTransition."""
    if state not in TRANSITIONS[call.state]:
        raise IllegalTransition(call.state, state)
    if state is CallState.IN_PROGRESS:
        return replaced(call, state=state, started_at=now if call.started_at is None else call.started_at)
    if state not in ENDED:
        return replaced(call, state=state)
    return replaced(
        call, state=state, completed_at=now, result=result, fault=fault, perhaps_pending_ids=(), under_way=()
    )


def merge_change(before: Call | None, after: Call, stored: Call | None) -> Call | None:
    """Return the record to store of a call that has changed from `before` to `after`; `stored` is its record by now.

    If `stored` differs from `before`, others have changed the record meanwhile: then only the fields that differ
    between `before` and `after` are carried over. But an end is final, a record that is gone stays gone (None), and
    another call under the same id is left alone.
    """
    if stored is before:  # records are never changed in place: the same object says that nobody else has written
        return after
    if stored is None or stored.state.ended or stored.created_at != after.created_at:
        return stored
    return carry_over_changes(before, after, stored)


def record_failed_creation(before: Call, failed: Call, stored: Call | None) -> Call | None:
    """Return the record to store of a call that failed because it was not known in time whether its first commit held.

    `before` is the call as that commit has it, `stored` its record by now: None if the commit has not held so far.
    """
    return failed if stored is None else merge_change(before, failed, stored)


def complete(call: Call, result: bytes, now: float) -> Call:
    """Return the call completed with its result. Raises IllegalTransition."""
    return move(call, CallState.COMPLETED, now, result=result)


def fail(call: Call, fault: Fault, now: float) -> Call:
    """Return the call ended with a fault: cancelled if that is its category, else failed. Raises IllegalTransition."""
    state = CallState.CANCELLED if fault.category is Category.CANCELLED else CallState.FAILED
    return move(call, state, now, fault=fault)


def describe_ending(call: Call) -> str | None:
    """Return how the call ended, as the reason of its requests' withdrawal; None while it has not."""
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


def find_obstacle(
    call: Call,
    server_fingerprint: str | None,
    *,
    resume: bool,
    task_fingerprint: str | None = None,
    has_answers: bool = True,
) -> str | None:
    """Return why an unfinished call cannot be resumed after a restart, as the end of a sentence; None when it can.

    `server_fingerprint` identifies the server that has the name now (None: no server has it), `task_fingerprint` the
    server that holds the call as a task. `resume` says whether the call may be sent a second time (at-least-once),
    `has_answers` whether the store still has the questions for which the call waits, and their answers.
    """
    if was_never_sent(call) or is_held(call):
        if server_fingerprint is None:
            return "it was never sent, and its server is not configured any more"
        if call.fingerprint != server_fingerprint:
            return "it was never sent, and its server is another one now"
        return None if has_answers or was_never_sent(call) else "the question whether it may be sent has been deleted"
    if server_fingerprint is None:
        return "its server is not configured any more"
    if call.task_id is None and call.rounds is None:
        return "the server may have carried it out already"
    if call.task_id is not None and task_fingerprint is None:
        return "its task is not known any more"
    # The server that holds the task, or that asked the questions of the rounds, must be the one that has the name now.
    if (task_fingerprint if call.rounds is None or call.task_id else call.rounds.fingerprint) != server_fingerprint:
        return "its server is another one now"
    if call.task_id is not None:
        return None
    if not resume:
        return "it may not be sent to its server once more (resume = false)"
    return None if has_answers else "answers that it needs have been deleted"


def was_never_sent(call: Call) -> bool:
    """Return whether it is certain that the server never received an unfinished call.

    Only for detached calls and those that were approved: their IN_PROGRESS state is durable before they are sent.
    Records of older versions have no fingerprint and do not have that guarantee.
    """
    if call.state is not CallState.QUEUED or call.started_at is not None or call.rounds or call.task_id:
        return False
    return (call.detached or call.approval is not None) and bool(call.fingerprint)


def hold(call: Call, approval: CallApproval) -> Call:
    """Return a new call in the state in which it waits for its approval; only then is it queued."""
    pending_ids = (*call.pending_ids, approval.request_id)
    return replaced(call, state=CallState.WAITING_INPUT, approval=approval, pending_ids=pending_ids)


def is_held(call: Call) -> bool:
    """Return whether a call waits for its approval, and its server has not received it."""
    is_parked = call.state is CallState.WAITING_INPUT and call.started_at is None
    return is_parked and call.approval is not None and not call.rounds and not call.task_id


def as_resumed(call: Call) -> Call:
    """Return an unfinished call as resumed after a restart: detached, and parked if it was sent or held.

    A parked call waits for the answers of its rounds or for its approval. The state of a call that is a task at its
    server, or was never sent, stays as it was.
    """
    is_parked = call.task_id is None and not was_never_sent(call)
    return replaced(
        call, detached=True, perhaps_pending_ids=(), state=CallState.WAITING_INPUT if is_parked else call.state
    )


@dataclass(slots=True)
class CallClock:
    """The two time budgets of a call, in seconds: without progress (`timeout_s`) and in all (`max_s`).

    A person's time is not charged to the server: each open question holds the clock once, and it runs only without
    holds. Times are those of the event loop's clock.
    """

    timeout_s: float
    max_s: float
    _running_since: float
    _timeout_left: float = 0.0
    _hold_count: int = 0

    def __post_init__(self) -> None:
        self._timeout_left = self.timeout_s

    def deadline(self) -> float | None:
        """Return when the first of the two budgets runs out; None while the clock is held, and so stands still."""
        return None if self._hold_count else self._running_since + min(self._timeout_left, self.max_s)

    def has_used_up_max(self, now: float) -> bool:
        """Return whether the budget `max_s` has run out; False while the clock is held."""
        return not self._hold_count and now >= self._running_since + self.max_s

    def restart(self, now: float) -> None:
        """Refill the first budget (`timeout_s`), as the call was sent or the server reported progress."""
        self._charge_elapsed(now)
        self._timeout_left = self.timeout_s

    def drop_timeout(self, now: float) -> None:
        """Drop the first budget (`timeout_s`): a task is polled, and need not report progress."""
        self.timeout_s = math.inf
        self.restart(now)

    def hold(self, now: float) -> None:
        """Stop the clock until `release` has been called as often."""
        self._charge_elapsed(now)
        self._hold_count += 1

    def release(self, now: float) -> None:
        """Undo one hold; the last one restarts the clock. Raises ValueError when there is none."""
        if self._hold_count == 0:
            raise ValueError("the clock is not held")
        self._hold_count -= 1
        self._running_since = now

    def _charge_elapsed(self, now: float) -> None:
        """Subtract the time since the last change from both budgets, unless the clock was held."""
        if not self._hold_count:
            self._timeout_left -= now - self._running_since
            self.max_s -= now - self._running_since
        self._running_since = now
