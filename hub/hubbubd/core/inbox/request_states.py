"""A pending request: its states, its claim (a lease), its one answer.

    open ──> answered | withdrawn | expired        delivery: none ──> pending ──> delivered | late | failed

Every function takes a record and returns the next one, or raises. Exactly one answer is accepted because commits use
optimistic concurrency: each is a compare-and-swap on the record's revision, and the loser of a race plans again and
finds the request answered. `answer_id` is the idempotency key of an answer, a claim's `id` its fencing token.
"""

from dataclasses import dataclass
from enum import StrEnum

from hubbubd import bounds
from hubbubd.core.approvals.vote import Vote
from hubbubd.core.inbox.asked_hosts import AskedHost
from hubbubd.core.inbox.claims import Claim, already_claimed_error, require_claim
from hubbubd.errors import FailedPrecondition
from hubbubd.frozen import replaced
from hubbubd.telemetry.trace import Trace

DEFAULT_CLAIM_S = 60.0
"""Seconds of a claim that does not say for how long: time to read a form and fill it in."""
MAX_CLAIM_S = 3600.0
"""Seconds of the longest claim, so that one that was forgotten does not block others for more than an hour."""

FULL_HISTORY_EVENTS = 50
"""Number of events in a request's history (`moments`) from which on _PASSING_EVENTS are no longer added."""


class RequestKind(StrEnum):
    """What the server asks for."""

    ELICITATION_FORM = "elicitation_form"
    ELICITATION_URL = "elicitation_url"
    SAMPLING = "sampling"
    ROOTS = "roots"
    APPROVAL = "approval"
    """The hub asks, by a rule: whether a call may be sent."""


class RequestState(StrEnum):
    """State of a pending request."""

    OPEN = "open"
    ANSWERED = "answered"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


class Delivery(StrEnum):
    """Whether the answer reached the server."""

    NONE = "none"
    PENDING = "pending"
    DELIVERED = "delivered"
    LATE = "late"
    """Handed over after the call that caused the request had ended."""
    FAILED = "failed"


class CauseSource(StrEnum):
    """How the causing call is known: the protocol named it, or it was the only candidate."""

    WIRE = "wire"
    INFERRED = "inferred"


class Origin(StrEnum):
    """How the server asked, which decides how it gets its answer and what outlives what."""

    PLAIN = "plain"
    """A JSON-RPC request on the wire (up to 2025-11-25); withdrawn when its connection ends."""
    TASK = "task"
    """A receiver task; the server fetches the result, over a later connection if need be."""
    AUTHORIZATION = "authorization"
    """The hub itself asks, for OAuth access to a server; withdrawn with the request or connection that needs it."""
    ROUNDS = "rounds"
    """An `input_required` result (2026-07-28): the call is sent again with the answers. Or error -32042 (2025-11-25):
    the call is sent again after the consent."""
    TASK_INPUT = "task_input"
    """The inputRequests of a task that the server holds (2026-07-28, tasks extension), answered by `tasks/update`, over
    a later connection if need be."""
    HUB = "hub"
    """The hub itself asks whether a call may be sent; the answer is delivered to the call, which waits for it."""


class RequestEventType(StrEnum):
    """What happened to a pending request."""

    SHOWN = "shown"
    CLAIMED = "claimed"
    RELEASED = "released"
    LAPSED = "lapsed"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    DELIVERED = "delivered"
    FAILED = "failed"
    NOT_COUNTED = "not_counted"
    """A host answered, and no person did."""
    APPROVED = "approved"
    """Somebody approved, and more have to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvent:
    """An entry in a request's history. `at` is seconds since the epoch; `agent` says that a worker did it.

    `trace` is the place of the span of the RPC that answered. `via` is the program through which `by` acted, as the
    program calls itself; for NOT_COUNTED also what that host answered.
    """

    at: bounds.Moment
    what: RequestEventType
    by: str | None = None
    agent: bool = False
    trace: Trace | None = None
    via: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server gets: an MCP result, or with `refused` the JSON object `{"error": {code, message}}`."""

    payload: bytes
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """One request of a server that waits for an answer. Times are seconds since the epoch, payloads JSON bytes.

    `principal` made the call that caused it; if it was `alone`, the server was at work for nobody else. Without
    `deadline` it never expires. `trace` is the place of its span, from its opening to the delivery of the answer.
    `candidate_call_ids` are the calls of which one may be the cause, while `call_id` is unknown. `cause_ended` says how
    the causing call ended, where the request outlives it: its cause is not certain, or a task keeps it.
    """

    id: str
    server: str
    kind: RequestKind
    origin: Origin
    request: bytes
    created_at: bounds.Moment
    deadline: bounds.Moment | None
    state: RequestState = RequestState.OPEN
    delivery: Delivery = Delivery.NONE
    call_id: str | None = None
    cause_source: CauseSource | None = None
    candidate_call_ids: tuple[str, ...] = ()
    alone: bool = False
    cause_ended: str | None = None
    principal: str | None = None
    task_id: str | None = None
    claim: Claim | None = None
    answer: Answer | None = None
    answered_by: str | None = None
    answered_at: bounds.Moment | None = None
    closed_at: bounds.Moment | None = None
    answer_id: str | None = None
    reason: str | None = None
    moments: tuple[RequestEvent, ...] = ()
    trace: Trace | None = None
    defect: str = ""
    """What could not be loaded from the store."""
    hosts: tuple[AskedHost, ...] = ()
    """The hosts that it concerns: those that were asked, and why others were not."""
    caller_left_at: bounds.Moment | None = None
    """When the host that made the causing call hung up, so that its result may reach nobody."""
    votes: tuple[Vote, ...] = ()
    """Who has approved so far, of a call that more have to approve."""
    changed: bytes | None = None
    """The call's arguments as a voter has changed them, as JSON; None if nobody has changed them."""

    @property
    def is_cause_certain(self) -> bool:
        """Whether a call of `principal` is certain to be the cause: the wire says so, or there was no other caller."""
        return self.cause_source is CauseSource.WIRE or self.alone

    def valid_claim(self, now: float) -> Claim | None:
        """Return the claim if it is valid at `now`; None without a claim, and once it has expired."""
        return self.claim if self.claim is not None and now < self.claim.expires_at else None


def claim(
    request: PendingRequest,
    claim_id: str,
    by: str,
    ttl_s: float,
    now: float,
    *,
    worker: bool = False,
    take_over: bool = False,
    host: str = "",
) -> PendingRequest:
    """Return the request leased to `by` for `ttl_s` (0: the default), at most until the request's deadline.

    A principal that claims again under the same id renews its lease; under another id it needs `take_over`, which
    invalidates the earlier claim. With `worker`, the claim is for a program of the principal to which the hub assigns
    requests: then any claim that is valid stands in the way. `host` is the MCP host for which the request is held.
    Raises FailedPrecondition (ALREADY_CLAIMED, or the request is closed).
    """
    _require_open(request, now)
    current_claim = request.valid_claim(now)
    taken_over = None
    if current_claim is not None:
        may_reuse = current_claim.is_held_by(by) and not worker  # a claim in person is not for the person's workers
        if may_reuse and current_claim.id == claim_id:
            return renew(request, claim_id, ttl_s, now)
        if not may_reuse or not take_over:
            raise already_claimed_error(request.id, current_claim, by)
        taken_over = current_claim.id
    lease = Claim(
        id=claim_id, by=by, expires_at=_lease_end(request, ttl_s, now), worker=worker, instead_of=taken_over, host=host
    )
    return replaced(with_event(request, RequestEventType.CLAIMED, now, by, agent=worker), claim=lease)


def renew(request: PendingRequest, claim_id: str, ttl_s: float, now: float) -> PendingRequest:
    """Return the request with its lease extended. Raises FailedPrecondition (CLAIM_LOST, or the request is closed)."""
    _require_open(request, now)
    current_claim = require_claim(request.valid_claim(now), claim_id)
    return replaced(request, claim=replaced(current_claim, expires_at=_lease_end(request, ttl_s, now)))


def release(request: PendingRequest, claim_id: str, now: float) -> PendingRequest:
    """Return the request without its claim. Raises FailedPrecondition (CLAIM_LOST, or the request is closed)."""
    _require_open(request, now)
    current_claim = require_claim(request.valid_claim(now), claim_id)
    return replaced(
        with_event(request, RequestEventType.RELEASED, now, current_claim.by, agent=current_claim.worker), claim=None
    )


def answer(
    request: PendingRequest,
    content: Answer,
    by: str,
    now: float,
    *,
    answer_id: str | None,
    claim_id: str | None,
    trace: Trace | None = None,
    via: str | None = None,
) -> PendingRequest:
    """Return the request answered. Idempotent: the same `answer_id` from the same principal changes nothing.

    A claimed request accepts an answer only with the claim's id. `trace` is the place of the answering RPC's span.
    Raises FailedPrecondition (ALREADY_ANSWERED, ALREADY_CLAIMED, CLAIM_LOST, REQUEST_WITHDRAWN, REQUEST_EXPIRED).
    """
    is_repeated = answer_id and (request.answer_id, request.answered_by) == (answer_id, by)
    if is_repeated and request.state is RequestState.ANSWERED:
        return request
    current_claim = require_answerable(request, by, claim_id, now)
    return as_answered(request, content, by, now, current_claim, answer_id=answer_id, trace=trace, via=via)


def require_answerable(request: PendingRequest, by: str, claim_id: str | None, now: float) -> Claim | None:
    """Return the claim (lease) under which the request may be answered now; None if nobody has claimed it.

    Raises FailedPrecondition if the request is closed, claimed by others, or the claim `claim_id` is no longer valid.
    """
    _require_open(request, now)
    current_claim = request.valid_claim(now)
    if claim_id:
        require_claim(current_claim, claim_id)
    elif current_claim is not None:
        raise already_claimed_error(request.id, current_claim, by)
    return current_claim


def as_answered(
    request: PendingRequest,
    content: Answer,
    by: str,
    now: float,
    current_claim: Claim | None,
    *,
    answer_id: str | None,
    trace: Trace | None,
    via: str | None,
) -> PendingRequest:
    """Return the request with its answer. `current_claim` is what `require_answerable` returned for it."""
    is_agent = current_claim is not None and current_claim.worker
    return replaced(
        with_event(request, RequestEventType.ANSWERED, now, by, agent=is_agent, trace=trace, via=via),
        state=RequestState.ANSWERED,
        delivery=Delivery.PENDING,
        claim=None,
        answer=content,
        answered_by=by,
        answered_at=now,
        closed_at=now,
        answer_id=answer_id,
    )


def expire(request: PendingRequest, refusal: Answer, reason: str, now: float) -> PendingRequest:
    """Return the request as expired; its answer is the refusal, on the user's behalf. Unchanged unless open."""
    if request.state is not RequestState.OPEN:
        return request
    return replaced(
        with_event(request, RequestEventType.EXPIRED, now),
        state=RequestState.EXPIRED,
        delivery=Delivery.PENDING,
        claim=None,
        answer=refusal,
        reason=reason,
        closed_at=now,
    )


def withdraw(request: PendingRequest, reason: str, now: float) -> PendingRequest:
    """Return the request as withdrawn. Unchanged unless open."""
    if request.state is not RequestState.OPEN:
        return request
    ended = with_event(request, RequestEventType.WITHDRAWN, now)
    return replaced(ended, state=RequestState.WITHDRAWN, claim=None, reason=reason, closed_at=now)


def after_call_ended(request: PendingRequest, call_id: str, reason: str, now: float) -> PendingRequest:
    """Return the request after a call has ended, for this reason; unchanged if it is final or does not name the call.

    The request is withdrawn if the call is certain to be its cause. If the cause is only inferred, the server may still
    wait for the answer, and a receiver task waits whatever becomes of the call: then the request notes the end of the
    call (`cause_ended`). An answer that would have been sent with the call can no longer be delivered.

    A call that is only a candidate is removed from the candidates. A single candidate left does not become the cause:
    the removed call may have been the cause.
    """
    if is_over(request):
        return request
    if call_id in request.candidate_call_ids:
        remaining = tuple(each for each in request.candidate_call_ids if each != call_id)
        return replaced(
            request,
            candidate_call_ids=remaining,
            cause_ended=None if remaining else "each call that may have asked is over",
        )
    if call_id != request.call_id:
        return request
    if request.origin in _SENT_WITH_CALL:
        return as_not_delivered(withdraw(request, reason, now), reason, now)
    ends_with_call = request.cause_source is CauseSource.WIRE and request.origin is not Origin.TASK
    if ends_with_call and request.state is RequestState.OPEN:
        return withdraw(request, reason, now)
    return request if request.cause_ended else replaced(request, cause_ended=reason)


_SENT_WITH_CALL = frozenset({Origin.ROUNDS, Origin.TASK_INPUT, Origin.HUB})  # only the call waits for the answer


def as_delivered(request: PendingRequest, now: float, *, late: bool = False) -> PendingRequest:
    """Return the request as delivered, LATE if its call had ended; unchanged unless its answer is on its way."""
    if request.delivery is not Delivery.PENDING:
        return request
    return replaced(
        with_event(request, RequestEventType.DELIVERED, now), delivery=Delivery.LATE if late else Delivery.DELIVERED
    )


def as_not_delivered(request: PendingRequest, reason: str, now: float) -> PendingRequest:
    """Return the request with its delivery failed; unchanged unless its answer is on its way."""
    if request.delivery is not Delivery.PENDING:
        return request
    return replaced(with_event(request, RequestEventType.FAILED, now), delivery=Delivery.FAILED, reason=reason)


def is_over(request: PendingRequest) -> bool:
    """Return whether the request is final: closed, with no answer on its way."""
    return request.state is not RequestState.OPEN and request.delivery is not Delivery.PENDING


def was_shown_to(request: PendingRequest, by: str) -> bool:
    """Return whether the request is recorded as shown to a principal."""
    return any(event.what is RequestEventType.SHOWN and event.by == by for event in request.moments)


def with_event(
    request: PendingRequest,
    event_type: RequestEventType,
    at: float,
    by: str | None = None,
    *,
    agent: bool = False,
    trace: Trace | None = None,
    via: str | None = None,
) -> PendingRequest:
    """Return the request with an event in its history; from FULL_HISTORY_EVENTS on without _PASSING_EVENTS."""
    if len(request.moments) >= FULL_HISTORY_EVENTS and event_type in _PASSING_EVENTS:
        return request
    event = RequestEvent(at=at, what=event_type, by=by, agent=agent, trace=trace, via=via)
    return replaced(request, moments=(*request.moments, event))


_PASSING_EVENTS = frozenset(map(RequestEventType, ("shown", "claimed", "released", "lapsed", "not_counted")))


def without_expired_claim(request: PendingRequest, now: float) -> PendingRequest:
    """Return the request without its claim, and with an event LAPSED, if the claim has expired; else unchanged."""
    if request.claim is None or request.valid_claim(now) is not None:
        return request
    expired_claim = request.claim
    return replaced(
        with_event(request, RequestEventType.LAPSED, now, expired_claim.by, agent=expired_claim.worker), claim=None
    )


def without_worker_claim(request: PendingRequest) -> PendingRequest:
    """Return the request without its claim if that is a worker's: after a restart the worker's stream is gone."""
    return replaced(request, claim=None) if request.claim is not None and request.claim.worker else request


def due_at(request: PendingRequest) -> float | None:
    """Return when the claim or the request expires next, in seconds since the epoch; None for never, or if closed."""
    if request.state is not RequestState.OPEN:
        return None
    times = [t for t in (request.deadline, request.claim.expires_at if request.claim else None) if t is not None]
    return min(times, default=None)


def is_overdue(request: PendingRequest, now: float) -> bool:
    """Return whether the request is open past its deadline."""
    return request.state is RequestState.OPEN and request.deadline is not None and now >= request.deadline


def _lease_end(request: PendingRequest, ttl_s: float, now: float) -> float:
    """Return when a lease of `ttl_s` (0: the default) that begins now ends: at the request's deadline at the latest."""
    lapses_at = now + min(ttl_s if ttl_s > 0 else DEFAULT_CLAIM_S, MAX_CLAIM_S)
    return lapses_at if request.deadline is None else min(lapses_at, request.deadline)


def _require_open(request: PendingRequest, now: float) -> None:
    """Raise FailedPrecondition unless the request is open and its deadline has not passed."""
    match request.state:
        case RequestState.ANSWERED:
            raise FailedPrecondition(
                f"{request.answered_by} has answered this request",
                reason="ALREADY_ANSWERED",
                metadata={"answered_by": request.answered_by or "", "answered_at": f"{request.answered_at or 0:.3f}"},
            )
        case RequestState.WITHDRAWN:
            raise FailedPrecondition(f"this request was withdrawn: {request.reason}", reason="REQUEST_WITHDRAWN")
        case RequestState.EXPIRED:
            raise FailedPrecondition("this request has expired", reason="REQUEST_EXPIRED")
        case RequestState.OPEN:
            if is_overdue(request, now):  # its timer has not fired yet; the deadline wins over a late answer
                raise FailedPrecondition("this request has expired", reason="REQUEST_EXPIRED")
