"""A pending request: its states, its claim, its one answer.

    open ──> answered | withdrawn | expired        delivery: none ──> pending ──> delivered | late | failed

Every function takes a record and returns the next one, or raises and changes nothing. That exactly one answer is
accepted follows from the commit being guarded by the record's revision: whoever loses plans again, and finds the
request answered.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from hubbubd import bounds
from hubbubd.errors import FailedPrecondition
from hubbubd.telemetry.trace import Trace

DEFAULT_CLAIM_S = 60.0
"""Seconds of a claim that does not say for how long: time to read a form and fill it in."""
MAX_CLAIM_S = 3600.0
"""Seconds of the longest claim, so that one that was forgotten does not block others for more than an hour."""

MOMENTS = 50
"""How many moments of a request are remembered before its end; whatever comes then, its end is."""


class RequestKind(StrEnum):
    """What is asked."""

    ELICITATION_FORM = "elicitation_form"
    ELICITATION_URL = "elicitation_url"
    SAMPLING = "sampling"
    ROOTS = "roots"


class RequestState(StrEnum):
    """Where a pending request stands."""

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
    """Handed over when the call that caused the request was over already."""
    FAILED = "failed"


class CauseSource(StrEnum):
    """How the cause is known: the protocol said so, or there was only one call it could be."""

    WIRE = "wire"
    INFERRED = "inferred"


class Origin(StrEnum):
    """In which form the server asked, and so how it gets its answer."""

    PLAIN = "plain"
    """A request on the wire (to 2025-11-25); it dies with its connection."""
    TASK = "task"
    """A receiver task; the server fetches the result, over a later connection if need be."""
    AUTHORIZATION = "authorization"
    """The hub itself asks, to be let in by a server; it dies with the request or connection that needs it."""
    ROUNDS = "rounds"
    """An `input_required` result (2026-07-28), the call is sent again with the answers; or error -32042 (2025-11-25),
    it is sent again after the consent."""
    TASK_INPUT = "task_input"
    """The inputRequests of a task that the server holds (2026-07-28, tasks extension); it gets them by tasks/update,
    over a later connection if need be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease. Only its holder knows `id`. A worker's lasts as long as its stream, and never longer than the hub.

    `instead_of` is the id of the claim of the same principal that was taken over.
    """

    id: str
    by: str
    expires_at: bounds.Moment
    worker: bool = False
    instead_of: str | None = None

    def is_of(self, by: str) -> bool:
        """Whether a principal holds it in person; what one of their workers holds is not theirs to use."""
        return self.by == by and not self.worker


class RequestEventType(StrEnum):
    """What may happen to a pending request."""

    SHOWN = "shown"
    CLAIMED = "claimed"
    RELEASED = "released"
    LAPSED = "lapsed"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvent:
    """When something happened to a request, in seconds since the epoch, and who did it: an agent where `agent`.

    `trace` is the place of the RPC by which it was answered.
    """

    at: bounds.Moment
    what: RequestEventType
    by: str | None = None
    agent: bool = False
    trace: Trace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Who was shown which open request, and when: by id of the request and by name, in seconds since the epoch."""

    at: dict[str, dict[str, bounds.Moment]] = field(default_factory=dict[str, dict[str, bounds.Moment]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server gets: an MCP result, or with `refused` the JSON object `{"error": {code, message}}`."""

    payload: bytes
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """One thing that a server asks. Times are seconds since the epoch, payloads JSON bytes.

    `principal` is who made the call that caused it. No `deadline` means that it waits for as long as it takes. `trace`
    is the place of its span, from its opening to the delivery of its answer. `candidate_call_ids` are the calls of
    which one may have caused it, where `call_id` is not known. `cause_ended` says why the call that caused it is over;
    the request outlives it where the cause is not certain, or where a task keeps it. `defect` says what of it the store
    could not give back.
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

    def holder(self, now: float) -> Claim | None:
        """The claim, unless it has lapsed."""
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
) -> PendingRequest:
    """Leased to `by`, at most until the deadline.

    The id that `by` holds it under already prolongs that claim. Another id of `by` gets it only with `take_over`, and
    the claim of before is no longer valid. Raises FailedPrecondition.
    """
    _must_be_open(request, now)
    holder = request.holder(now)
    taken_over = None
    if holder is not None:
        own = holder.is_of(by) and not worker
        if own and holder.id == claim_id:
            return renew(request, claim_id, ttl_s, now)
        if not own or not take_over:
            raise _already_claimed(request, holder, by)
        taken_over = holder.id
    lease = Claim(id=claim_id, by=by, expires_at=_lease_end(request, ttl_s, now), worker=worker, instead_of=taken_over)
    return replace(noted(request, RequestEventType.CLAIMED, now, by, agent=worker), claim=lease)


def renew(request: PendingRequest, claim_id: str, ttl_s: float, now: float) -> PendingRequest:
    """Leased for longer. Raises FailedPrecondition."""
    _must_be_open(request, now)
    held = _must_hold(request, claim_id, now)
    return replace(request, claim=replace(held, expires_at=_lease_end(request, ttl_s, now)))


def release(request: PendingRequest, claim_id: str, now: float) -> PendingRequest:
    """Free for others. Raises FailedPrecondition."""
    _must_be_open(request, now)
    held = _must_hold(request, claim_id, now)
    return replace(noted(request, RequestEventType.RELEASED, now, held.by, agent=held.worker), claim=None)


def answer(
    request: PendingRequest,
    given: Answer,
    by: str,
    now: float,
    *,
    answer_id: str | None,
    claim_id: str | None,
    trace: Trace | None = None,
) -> PendingRequest:
    """With its one answer, on its way. The same `answer_id` of the same person again changes nothing.

    A claimed request takes an answer only with the claim's id. `trace` is the place of what answers it.
    Raises FailedPrecondition.
    """
    if (
        request.state is RequestState.ANSWERED
        and answer_id
        and (request.answer_id, request.answered_by) == (answer_id, by)
    ):
        return request
    _must_be_open(request, now)
    holder = request.holder(now)
    if claim_id:
        _must_hold(request, claim_id, now)
    elif holder is not None:
        raise _already_claimed(request, holder, by)
    agent = holder is not None and holder.worker
    return replace(
        noted(request, RequestEventType.ANSWERED, now, by, agent=agent, trace=trace),
        state=RequestState.ANSWERED,
        delivery=Delivery.PENDING,
        claim=None,
        answer=given,
        answered_by=by,
        answered_at=now,
        closed_at=now,
        answer_id=answer_id,
    )


def expire(request: PendingRequest, given: Answer, reason: str, now: float) -> PendingRequest:
    """Past its deadline, with the refusal given on the user's behalf. One that is not open stays as it is."""
    if request.state is not RequestState.OPEN:
        return request
    return replace(
        noted(request, RequestEventType.EXPIRED, now),
        state=RequestState.EXPIRED,
        delivery=Delivery.PENDING,
        claim=None,
        answer=given,
        reason=reason,
        closed_at=now,
    )


def withdraw(request: PendingRequest, reason: str, now: float) -> PendingRequest:
    """No longer wanted. One that is not open stays as it is."""
    if request.state is not RequestState.OPEN:
        return request
    ended = noted(request, RequestEventType.WITHDRAWN, now)
    return replace(ended, state=RequestState.WITHDRAWN, claim=None, reason=reason, closed_at=now)


def call_over(request: PendingRequest, call_id: str, why: str, now: float) -> PendingRequest:
    """After the end of a call that it names. One that is over stays as it is.

    Withdrawn where it is certain that this call asked. Where that is only inferred, the server may wait for the answer
    all the same, and a task of the hub waits whatever becomes of the call: the request stays, and is marked. An answer
    that would have been sent with the call itself can reach nobody any more.

    A candidate is taken out. One that is left does not become the cause: the one that has gone may have been it.
    """
    if over(request):
        return request
    if call_id in request.candidate_call_ids:
        left = tuple(each for each in request.candidate_call_ids if each != call_id)
        return replace(
            request, candidate_call_ids=left, cause_ended=None if left else "each call that may have asked is over"
        )
    if call_id != request.call_id:
        return request
    if request.origin in _SENT_WITH_THE_CALL:
        return not_delivered(withdraw(request, why, now), why, now)
    certain = request.cause_source is CauseSource.WIRE and request.origin is not Origin.TASK
    if certain and request.state is RequestState.OPEN:
        return withdraw(request, why, now)
    return request if request.cause_ended else replace(request, cause_ended=why)


_SENT_WITH_THE_CALL = frozenset({Origin.ROUNDS, Origin.TASK_INPUT})


def delivered(request: PendingRequest, now: float, *, late: bool = False) -> PendingRequest:
    """The answer was handed over; `late` says that the call that caused the request was over before that began."""
    if request.delivery is not Delivery.PENDING:
        return request
    return replace(
        noted(request, RequestEventType.DELIVERED, now), delivery=Delivery.LATE if late else Delivery.DELIVERED
    )


def not_delivered(request: PendingRequest, reason: str, now: float) -> PendingRequest:
    """The answer could not be handed over."""
    if request.delivery is not Delivery.PENDING:
        return request
    return replace(noted(request, RequestEventType.FAILED, now), delivery=Delivery.FAILED, reason=reason)


def over(request: PendingRequest) -> bool:
    """Whether nothing more can happen: it is closed, and no answer is on its way."""
    return request.state is not RequestState.OPEN and request.delivery is not Delivery.PENDING


def shown_to(request: PendingRequest, by: str) -> bool:
    """Whether it is known that somebody has seen the request."""
    return any(event.what is RequestEventType.SHOWN and event.by == by for event in request.moments)


def noted(
    request: PendingRequest,
    what: RequestEventType,
    at: float,
    by: str | None = None,
    *,
    agent: bool = False,
    trace: Trace | None = None,
) -> PendingRequest:
    """With one moment more, while there is room; an end always has room."""
    if len(request.moments) >= MOMENTS and what in _PASSING:
        return request
    return replace(request, moments=(*request.moments, RequestEvent(at=at, what=what, by=by, agent=agent, trace=trace)))


_PASSING = frozenset(
    {RequestEventType.SHOWN, RequestEventType.CLAIMED, RequestEventType.RELEASED, RequestEventType.LAPSED}
)


def lapse(request: PendingRequest, now: float) -> PendingRequest:
    """Without a claim that has lapsed."""
    if request.claim is None or request.holder(now) is not None:
        return request
    held = request.claim
    return replace(noted(request, RequestEventType.LAPSED, now, held.by, agent=held.worker), claim=None)


def without_worker(request: PendingRequest) -> PendingRequest:
    """Without a claim of a worker: its stream ended with the hub that gave it."""
    return replace(request, claim=None) if request.claim is not None and request.claim.worker else request


def due_at(request: PendingRequest) -> float | None:
    """When time alone changes the request next: its claim lapses, or its deadline comes."""
    if request.state is not RequestState.OPEN:
        return None
    times = [t for t in (request.deadline, request.claim.expires_at if request.claim else None) if t is not None]
    return min(times, default=None)


def overdue(request: PendingRequest, now: float) -> bool:
    """Whether an open request has reached its deadline."""
    return request.state is RequestState.OPEN and request.deadline is not None and now >= request.deadline


def _lease_end(request: PendingRequest, ttl_s: float, now: float) -> float:
    lapses_at = now + min(ttl_s if ttl_s > 0 else DEFAULT_CLAIM_S, MAX_CLAIM_S)
    return lapses_at if request.deadline is None else min(lapses_at, request.deadline)


def _must_be_open(request: PendingRequest, now: float) -> None:
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
            if overdue(request, now):  # its timer is about to say so; the deadline wins over a late answer
                raise FailedPrecondition("this request has expired", reason="REQUEST_EXPIRED")


def _already_claimed(request: PendingRequest, holder: Claim, by: str) -> FailedPrecondition:
    """The refusal of whoever does not bring the claim's id; `own` tells those who hold it themselves."""
    if not holder.is_of(by):
        return FailedPrecondition(
            f"{holder.by} has claimed this request", reason="ALREADY_CLAIMED", metadata={"claimed_by": holder.by}
        )
    return FailedPrecondition(
        "you have claimed this request already, under another claim id: answer with that id (--claim), or take the "
        f"claim over (hubbub inbox claim {request.id} --take-over)",
        reason="ALREADY_CLAIMED",
        metadata={"claimed_by": holder.by, "own": "true"},
    )


def _must_hold(request: PendingRequest, claim_id: str, now: float) -> Claim:
    holder = request.holder(now)
    if holder is not None and holder.id == claim_id:
        return holder
    if holder is not None and holder.instead_of == claim_id:
        raise FailedPrecondition(
            f"{holder.by} has taken this claim over in another window or program; it is no longer valid here",
            reason="CLAIM_LOST",
            metadata={"claimed_by": holder.by, "own": "true"},
        )
    raise FailedPrecondition("this claim is no longer valid; claim the request again", reason="CLAIM_LOST")
