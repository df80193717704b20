"""Any story that several people and the clock can make of one pending request, beside a plain model of it."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hubbubd.core.inbox import request_states
from hubbubd.core.inbox.request_states import Answer, Delivery, Origin, PendingRequest, RequestKind, RequestState
from hubbubd.errors import FailedPrecondition

from ..raising import raising

people = st.sampled_from(["ann", "bob", "cem"])
answer_ids = st.sampled_from([None, "a1", "a2"])
ON_BEHALF = Answer(payload=b'{"action":"cancel"}')


class OneRequest(RuleBasedStateMachine):
    @initialize(deadline=st.one_of(st.none(), st.integers(1, 200)))
    def asked(self, deadline: int | None) -> None:
        self.now = 0
        self.deadline = deadline
        self.record = PendingRequest(
            id="r",
            server="s",
            kind=RequestKind.ELICITATION_FORM,
            origin=Origin.PLAIN,
            request=b"{}",
            created_at=0,
            deadline=deadline,
        )
        self.made = 0
        self.ended: str | None = None
        self.held: tuple[str, str, int] | None = None
        self.won: tuple[str, str | None, Answer] | None = None
        self.mine: dict[str, str] = {}

    @property
    def late(self) -> bool:
        return self.deadline is not None and self.now >= self.deadline

    def holder(self) -> tuple[str, str, int] | None:
        return self.held if self.held and self.now < self.held[2] else None

    def why_closed(self) -> str | None:
        return self.ended or ("REQUEST_EXPIRED" if self.late else None)

    def lease_end(self, ttl: int) -> int:
        return self.now + ttl if self.deadline is None else min(self.now + ttl, self.deadline)

    def expect(self, reason: str | None, operation) -> bool:
        """Runs the operation; whether it was to succeed, and did."""
        if reason is None:
            self.record = operation()
            return True
        before = self.record
        with raising(FailedPrecondition, reason):
            operation()
        assert self.record == before
        return False

    @rule(seconds=st.integers(0, 60))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(by=people, ttl=st.integers(1, 90), again=st.booleans(), take_over=st.booleans())
    def claim(self, by: str, ttl: int, again: bool, take_over: bool) -> None:
        self.made += 1
        name = self.mine.get(by) if again else None
        name = name or f"k{self.made}"
        holder = self.holder()
        may = not holder or (holder[1] == by and (take_over or holder[0] == name))
        reason = self.why_closed() or (None if may else "ALREADY_CLAIMED")
        if self.expect(reason, lambda: request_states.claim(self.record, name, by, ttl, self.now, take_over=take_over)):
            self.held = (name, by, self.lease_end(ttl))
            self.mine[by] = name

    def claim_reason(self, name: str) -> str | None:
        holder = self.holder()
        return self.why_closed() or (None if holder and holder[0] == name else "CLAIM_LOST")

    @rule(by=people, ttl=st.integers(1, 90))
    def renew(self, by: str, ttl: int) -> None:
        name = self.mine.get(by, "none")
        if self.expect(self.claim_reason(name), lambda: request_states.renew(self.record, name, ttl, self.now)):
            self.held = (name, by, self.lease_end(ttl))

    @rule(by=people)
    def release(self, by: str) -> None:
        name = self.mine.get(by, "none")
        if self.expect(self.claim_reason(name), lambda: request_states.release(self.record, name, self.now)):
            self.held = None

    @rule(by=people, answer_id=answer_ids, with_claim=st.booleans())
    def answer(self, by: str, answer_id: str | None, with_claim: bool) -> None:
        name = self.mine.get(by) if with_claim else None
        self.made += 1
        given = Answer(payload=f'{{"n":{self.made}}}'.encode())
        if self.won and answer_id and self.won[:2] == (by, answer_id):
            assert self.expect(None, lambda: self.give(given, by, answer_id, name))
            return
        reason = self.claim_reason(name) if name else self.why_closed()
        if reason is None and not name and self.holder():
            reason = "ALREADY_CLAIMED"
        if self.expect(reason, lambda: self.give(given, by, answer_id, name)):
            assert self.won is None, "a second answer was accepted"
            self.won, self.ended, self.held = (by, answer_id, given), "ALREADY_ANSWERED", None

    def give(self, given: Answer, by: str, answer_id: str | None, name: str | None) -> PendingRequest:
        return request_states.answer(self.record, given, by, self.now, answer_id=answer_id, claim_id=name)

    @rule()
    def the_timer_fires(self) -> None:
        due = request_states.due_at(self.record)
        if due is None:
            return
        self.now = max(self.now, int(due))
        if request_states.is_overdue(self.record, self.now):
            assert self.late
            self.record = request_states.expire(self.record, ON_BEHALF, "late", self.now)
            self.ended, self.held = "REQUEST_EXPIRED", None
        else:
            self.record = request_states.without_expired_claim(self.record, self.now)
            assert self.holder() is None
            assert self.record.claim is None

    @rule()
    def withdraw(self) -> None:
        self.record = request_states.withdraw(self.record, "gone", self.now)
        self.ended = self.ended or "REQUEST_WITHDRAWN"

    @rule(arrives=st.booleans())
    def hand_over(self, arrives: bool) -> None:
        before = self.record
        self.record = (
            request_states.as_delivered(before, self.now)
            if arrives
            else request_states.as_not_delivered(before, "lost", self.now)
        )
        if before.delivery is not Delivery.PENDING:
            assert self.record == before

    @invariant()
    def the_record_tells_the_same_story(self) -> None:
        if not hasattr(self, "record"):
            return
        record = self.record
        expected = {
            None: RequestState.OPEN,
            "ALREADY_ANSWERED": RequestState.ANSWERED,
            "REQUEST_WITHDRAWN": RequestState.WITHDRAWN,
            "REQUEST_EXPIRED": RequestState.EXPIRED,
        }
        assert record.state is expected[self.ended]
        assert record.answer == (
            self.won[2] if self.won else ON_BEHALF if record.state is RequestState.EXPIRED else None
        )
        assert (record.answered_by, record.answer_id) == (self.won[:2] if self.won else (None, None))
        assert (record.delivery is Delivery.NONE) == (record.answer is None)
        assert record.claim is None or record.state is RequestState.OPEN
        if record.state is RequestState.OPEN:
            holder = record.valid_claim(self.now)
            assert ((holder.id, holder.by, holder.expires_at) if holder else None) == self.holder()


TestOneRequest = OneRequest.TestCase
