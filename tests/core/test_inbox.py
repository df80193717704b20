"""A pending request: what may be done to it in each state, and what it says when not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hubbubd.core.inbox import request_states
from hubbubd.core.inbox.request_states import (
    Answer,
    Claim,
    Delivery,
    Origin,
    PendingRequest,
    RequestEvent,
    RequestEventType,
    RequestKind,
    RequestState,
)
from hubbubd.errors import FailedPrecondition

from ..raising import raising

YES = Answer(payload=b'{"action":"accept","content":{}}')
NO = Answer(payload=b'{"action":"decline"}')
CANCEL = Answer(payload=b'{"action":"cancel"}')
NOW = 1000.0
OPEN = PendingRequest(
    id="r1",
    server="one",
    kind=RequestKind.ELICITATION_FORM,
    origin=Origin.PLAIN,
    request=b"{}",
    created_at=NOW,
    deadline=NOW + 300,
)
CLAIMED = replace(OPEN, claim=Claim(id="k1", by="ann", expires_at=NOW + 60))
LAPSED = replace(OPEN, claim=Claim(id="k1", by="ann", expires_at=NOW))
OVERDUE = replace(CLAIMED, deadline=NOW)
ANSWERED = request_states.answer(OPEN, YES, "ann", NOW - 1, answer_id="a1", claim_id=None)
WITHDRAWN = request_states.withdraw(OPEN, "the server cancelled it", NOW)
EXPIRED = request_states.expire(OPEN, CANCEL, "nobody answered", NOW)
RECORDS = {
    "open": OPEN,
    "claimed": CLAIMED,
    "lapsed": LAPSED,
    "overdue": OVERDUE,
    "answered": ANSWERED,
    "withdrawn": WITHDRAWN,
    "expired": EXPIRED,
}
Operation = Callable[[PendingRequest], PendingRequest]


def answer(request: PendingRequest, *, by: str = "bob", answer_id: str | None = "a2", claim_id: str | None = None):
    return request_states.answer(request, NO, by, NOW, answer_id=answer_id, claim_id=claim_id)


OPERATIONS: dict[str, Operation] = {
    "claim": lambda request: request_states.claim(request, "k2", "bob", 60, NOW),
    "renew": lambda request: request_states.renew(request, "k1", 120, NOW),
    "release": lambda request: request_states.release(request, "k1", NOW),
    "answer": answer,
    "answer as the holder": lambda request: answer(request, by="ann", claim_id="k1"),
    "answer with another claim": lambda request: answer(request, claim_id="k9"),
    "answer again": lambda request: answer(request, by="ann", answer_id="a1"),
}
OK = None
REFUSALS = {
    #             claim              renew                release              answer
    "open": (OK, "CLAIM_LOST", "CLAIM_LOST", OK, "CLAIM_LOST", "CLAIM_LOST", OK),
    "claimed": ("ALREADY_CLAIMED", OK, OK, "ALREADY_CLAIMED", OK, "CLAIM_LOST", "ALREADY_CLAIMED"),
    "lapsed": (OK, "CLAIM_LOST", "CLAIM_LOST", OK, "CLAIM_LOST", "CLAIM_LOST", OK),
    "overdue": ("REQUEST_EXPIRED",) * 7,
    "answered": (*("ALREADY_ANSWERED",) * 6, OK),
    "withdrawn": ("REQUEST_WITHDRAWN",) * 7,
    "expired": ("REQUEST_EXPIRED",) * 7,
}
CASES = [
    pytest.param(RECORDS[record], operation, reason, id=f"{name} when {record}")
    for record, reasons in REFUSALS.items()
    for (name, operation), reason in zip(OPERATIONS.items(), reasons, strict=True)
]


@pytest.mark.parametrize(("request_", "operation", "reason"), CASES)
def test_an_operation_succeeds_or_is_refused_with_its_reason_and_changes_nothing(
    request_: PendingRequest, operation: Operation, reason: str | None
) -> None:
    before = replace(request_)
    if reason is OK:
        operation(request_)
    else:
        with raising(FailedPrecondition, reason):
            operation(request_)
    assert request_ == before


def test_an_answer_is_kept_with_who_gave_it_and_is_on_its_way() -> None:
    given = request_states.answer(OPEN, YES, "ann", NOW + 5, answer_id="a1", claim_id=None)
    assert given == replace(
        OPEN,
        state=RequestState.ANSWERED,
        delivery=Delivery.PENDING,
        answer=YES,
        answered_by="ann",
        answered_at=NOW + 5,
        closed_at=NOW + 5,
        answer_id="a1",
        moments=(RequestEvent(at=NOW + 5, what=RequestEventType.ANSWERED, by="ann"),),
    )


def test_the_second_to_answer_is_told_who_won_and_when() -> None:
    with pytest.raises(FailedPrecondition) as refusal:
        answer(ANSWERED)
    assert refusal.value.metadata == {"answered_by": "ann", "answered_at": "999.000"}


@pytest.mark.parametrize("operation", ["claim", "answer"])
def test_who_meets_a_claim_is_told_whose_it_is(operation: str) -> None:
    with pytest.raises(FailedPrecondition) as refusal:
        OPERATIONS[operation](CLAIMED)
    assert refusal.value.metadata == {"claimed_by": "ann"}


WORKED = replace(OPEN, claim=Claim(id="k1", by="ann", expires_at=NOW + 60, worker=True))
TAKEN = request_states.claim(CLAIMED, "k2", "ann", 60, NOW, take_over=True)
OWN = {"claimed_by": "ann", "own": "true"}
OTHERS = {"claimed_by": "ann"}
CLAIMS = [
    # record, by, claim's id, take over: the id that holds it then, or what a refusal says
    pytest.param(OPEN, "ann", "k1", False, "k1", id="free"),
    pytest.param(OPEN, "ann", "k1", True, "k1", id="free, taken over from nobody"),
    pytest.param(CLAIMED, "ann", "k1", False, "k1", id="one's own again"),
    pytest.param(CLAIMED, "ann", "k1", True, "k1", id="one's own again, taken over"),
    pytest.param(CLAIMED, "ann", "k2", False, OWN, id="one's own under another id"),
    pytest.param(CLAIMED, "ann", "k2", True, "k2", id="one's own taken over"),
    pytest.param(CLAIMED, "bob", "k1", False, OTHERS, id="another's by its id"),
    pytest.param(CLAIMED, "bob", "k1", True, OTHERS, id="another's by its id, taken over"),
    pytest.param(CLAIMED, "bob", "k2", True, OTHERS, id="another's taken over"),
    pytest.param(WORKED, "ann", "k1", False, OTHERS, id="one's worker's by its id"),
    pytest.param(WORKED, "ann", "k2", True, OTHERS, id="one's worker's taken over"),
    pytest.param(LAPSED, "ann", "k1", False, "k1", id="one's own that has lapsed"),
    pytest.param(LAPSED, "bob", "k1", False, "k1", id="another's that has lapsed"),
    pytest.param(TAKEN, "ann", "k1", False, OWN, id="one's own that was taken over"),
]


@pytest.mark.parametrize(("record", "by", "claim_id", "take_over", "outcome"), CLAIMS)
def test_a_claim_is_of_its_id_and_only_its_principal_gets_it_under_another(
    record: PendingRequest, by: str, claim_id: str, take_over: bool, outcome: str | dict[str, str]
) -> None:
    if isinstance(outcome, str):
        claimed = request_states.claim(record, claim_id, by, 90, NOW, take_over=take_over).claim
        assert (claimed.id, claimed.by, claimed.expires_at) == (outcome, by, NOW + 90)
    else:
        with pytest.raises(FailedPrecondition) as refusal:
            request_states.claim(record, claim_id, by, 90, NOW, take_over=take_over)
        assert (refusal.value.reason, refusal.value.metadata) == ("ALREADY_CLAIMED", outcome)


def test_who_meets_a_claim_is_told_whether_a_person_or_a_worker_has_it() -> None:
    for record, who in ((CLAIMED, "ann"), (WORKED, "a worker of ann")):
        with pytest.raises(FailedPrecondition, match=f"^{who} has claimed this request$"):
            OPERATIONS["answer"](record)


def test_a_worker_does_not_get_what_its_principal_has_claimed_whatever_the_id() -> None:
    for claim_id in ("k1", "k2"):
        with raising(FailedPrecondition, "ALREADY_CLAIMED"):
            request_states.claim(CLAIMED, claim_id, "ann", 60, NOW, worker=True, take_over=True)


def test_a_claim_asked_for_again_is_no_second_moment() -> None:
    first = request_states.claim(OPEN, "k1", "ann", 60, NOW)
    assert request_states.claim(first, "k1", "ann", 60, NOW + 5).moments == first.moments


def test_who_holds_the_claim_and_answers_without_it_is_told_so_and_how_to_go_on() -> None:
    with pytest.raises(
        FailedPrecondition, match=r"you have claimed .* \(--claim\).* inbox claim r1 --take-over"
    ) as own:
        answer(CLAIMED, by="ann")
    assert own.value.metadata == OWN


@pytest.mark.parametrize("operation", ["renew", "release", "answer as the holder"])
def test_a_claim_that_was_taken_over_is_lost_and_says_so(operation: str) -> None:
    with pytest.raises(FailedPrecondition, match="taken this claim over") as lost:
        OPERATIONS[operation](TAKEN)
    assert (lost.value.reason, lost.value.metadata) == ("CLAIM_LOST", OWN)


@pytest.mark.parametrize(
    "later",
    [
        lambda r: request_states.as_delivered(r, NOW),
        lambda r: request_states.as_not_delivered(r, "gone", NOW),
        lambda r: r,
    ],
)
def test_the_same_answer_again_changes_nothing_however_far_it_has_come(later: Operation) -> None:
    record = later(ANSWERED)
    again = request_states.answer(record, NO, "ann", NOW + 9999, answer_id="a1", claim_id="k7")
    assert again is record


@pytest.mark.parametrize(("by", "answer_id"), [("bob", "a1"), ("ann", "a2"), ("ann", None), ("ann", "")])
def test_only_the_same_person_with_the_same_answer_id_is_told_yes_again(by: str, answer_id: str | None) -> None:
    with pytest.raises(FailedPrecondition, match="ann has answered"):
        answer(ANSWERED, by=by, answer_id=answer_id)


def test_answers_without_an_answer_id_are_never_taken_for_each_other() -> None:
    unnamed = request_states.answer(OPEN, YES, "ann", NOW, answer_id=None, claim_id=None)
    with pytest.raises(FailedPrecondition):
        request_states.answer(unnamed, YES, "ann", NOW, answer_id=None, claim_id=None)


def test_answering_or_releasing_takes_the_claim_away() -> None:
    assert answer(CLAIMED, claim_id="k1").claim is None
    assert request_states.release(CLAIMED, "k1", NOW).claim is None
    assert request_states.withdraw(CLAIMED, "gone", NOW).claim is None
    assert request_states.expire(CLAIMED, CANCEL, "late", NOW).claim is None


@pytest.mark.parametrize(
    ("asked", "lease"),
    [
        (30, 30),
        (0, request_states.DEFAULT_CLAIM_S),
        (-5, request_states.DEFAULT_CLAIM_S),
        (float("nan"), request_states.DEFAULT_CLAIM_S),
        (1e9, request_states.MAX_CLAIM_S),
        (float("inf"), request_states.MAX_CLAIM_S),
    ],
)
def test_a_lease_is_as_long_as_asked_within_reason(asked: float, lease: float) -> None:
    unhurried = replace(OPEN, deadline=None)
    claimed = request_states.claim(unhurried, "k1", "ann", asked, NOW)
    assert claimed.claim == Claim(id="k1", by="ann", expires_at=NOW + lease)
    assert request_states.renew(claimed, "k1", asked, NOW + 1).claim == Claim(
        id="k1", by="ann", expires_at=NOW + 1 + lease
    )


def test_a_lease_never_outlasts_the_deadline() -> None:
    claimed = request_states.claim(OPEN, "k1", "ann", 3600, NOW)
    assert claimed.claim.expires_at == OPEN.deadline
    assert request_states.renew(claimed, "k1", 3600, NOW + 10).claim == claimed.claim


def test_a_lapsed_claim_holds_nobody_off_and_can_be_swept() -> None:
    assert CLAIMED.valid_claim(NOW + 59.9) is CLAIMED.claim
    assert CLAIMED.valid_claim(NOW + 60) is None
    assert request_states.without_expired_claim(CLAIMED, NOW + 60).claim is None
    assert request_states.without_expired_claim(CLAIMED, NOW + 59.9) is CLAIMED
    assert request_states.without_expired_claim(OPEN, NOW) is OPEN


@pytest.mark.parametrize("record", [ANSWERED, WITHDRAWN, EXPIRED])
def test_what_has_ended_neither_expires_nor_is_withdrawn(record: PendingRequest) -> None:
    assert request_states.expire(record, CANCEL, "late", NOW) is record
    assert request_states.withdraw(record, "gone", NOW) is record


def test_an_expired_request_is_answered_on_the_users_behalf_and_a_withdrawn_one_is_not() -> None:
    assert (EXPIRED.state, EXPIRED.delivery, EXPIRED.answer) == (RequestState.EXPIRED, Delivery.PENDING, CANCEL)
    assert (EXPIRED.reason, EXPIRED.answered_by) == ("nobody answered", None)
    assert (WITHDRAWN.state, WITHDRAWN.delivery, WITHDRAWN.answer) == (RequestState.WITHDRAWN, Delivery.NONE, None)


@pytest.mark.parametrize("delivery", Delivery)
def test_only_an_answer_on_its_way_is_delivered_or_fails_to_be(delivery: Delivery) -> None:
    record = replace(ANSWERED, delivery=delivery)
    moves = delivery is Delivery.PENDING
    assert request_states.as_delivered(record, NOW).delivery is (Delivery.DELIVERED if moves else delivery)
    late = request_states.as_delivered(record, NOW, late=True)
    assert late.delivery is (Delivery.LATE if moves else delivery)
    failed = request_states.as_not_delivered(record, "the connection was lost", NOW)
    assert failed.delivery is (Delivery.FAILED if moves else delivery)
    assert failed.reason == ("the connection was lost" if moves else None)


@pytest.mark.parametrize(
    ("record", "due"),
    [
        (OPEN, NOW + 300),
        (CLAIMED, NOW + 60),
        (replace(CLAIMED, deadline=NOW + 10), NOW + 10),
        (replace(CLAIMED, deadline=None), NOW + 60),
        (replace(OPEN, deadline=None), None),
        (ANSWERED, None),
        (WITHDRAWN, None),
        (EXPIRED, None),
    ],
)
def test_time_changes_a_request_next_at_its_claims_end_or_its_deadline(
    record: PendingRequest, due: float | None
) -> None:
    assert request_states.due_at(record) == due


def test_a_request_is_overdue_from_its_deadline_on_and_only_while_open() -> None:
    assert not request_states.is_overdue(OPEN, NOW + 299.9)
    assert request_states.is_overdue(OPEN, NOW + 300)
    assert not request_states.is_overdue(replace(OPEN, deadline=None), 1e12)
    assert not request_states.is_overdue(ANSWERED, 1e12)


def test_what_happened_is_remembered_with_who_did_it_and_whether_it_was_an_agent() -> None:
    shown = request_states.with_event(OPEN, RequestEventType.SHOWN, NOW, "bob")
    held = request_states.claim(shown, "k", "ann", 60, NOW + 1, worker=True)
    given = request_states.answer(held, YES, "ann", NOW + 2, answer_id=None, claim_id="k")
    over = request_states.as_delivered(given, NOW + 3)
    assert [(m.what, m.at, m.by, m.agent) for m in over.moments] == [
        (RequestEventType.SHOWN, NOW, "bob", False),
        (RequestEventType.CLAIMED, NOW + 1, "ann", True),
        (RequestEventType.ANSWERED, NOW + 2, "ann", True),
        (RequestEventType.DELIVERED, NOW + 3, None, False),
    ]
    assert request_states.is_over(over)
    assert not request_states.is_over(given)
    assert request_states.was_shown_to(over, "bob")
    assert not request_states.was_shown_to(over, "ann")


def test_many_moments_leave_room_for_the_end() -> None:
    busy = OPEN
    for number in range(10 * request_states.FULL_HISTORY_EVENTS):
        busy = request_states.with_event(busy, RequestEventType.SHOWN, NOW, f"watcher {number}")
    assert len(busy.moments) == request_states.FULL_HISTORY_EVENTS
    assert request_states.withdraw(busy, "gone", NOW).moments[-1].what is RequestEventType.WITHDRAWN
