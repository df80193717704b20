"""Any story that servers, people, the clock, the store and the hub's own ends make of the inbox, beside a model."""

import asyncio
from typing import Any

import anyio
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery, PendingRequest
from hubbubd.errors import HubError, UpstreamError

from ..raising import raising
from .conftest import spec
from .inbox_model import (
    ANSWER_S,
    METHODS,
    MOST_OPEN,
    OPEN_ONES,
    RECONNECT_S,
    RETRY_S,
    TASK_S,
    Asked,
    InboxStory,
    Tool,
    said,
)
from .model import FOREVER, SETTLE_S, bounded
from .peer import LOST, REFUSED

people = st.sampled_from(["ann", "bob", "cem"])
answer_ids = st.sampled_from([None, "a1", "a2"])
which = st.integers(0, 30)
ttls = st.integers(1, 150)


class InboxModel(InboxStory):
    """One server that asks in every form, three people, and a store that fails at times."""

    # What the server does

    def room(self) -> int:
        return 0 if self.blocked else MOST_OPEN - sum(each.open for each in self.asked)

    @precondition(lambda self: self.up)
    @rule(kind=st.sampled_from(["form", "sampling"]), as_task=st.booleans())
    def ask(self, kind: str, as_task: bool) -> None:
        method, params = METHODS[kind]
        asked = self.do(self.world.peer.link.ask, method, {**params, "task": {"ttl": 1}} if as_task else params)
        fits = self.room() > 0
        self.rest()
        if not fits:
            assert asked.error.code == -32603
            assert not self.new_ones()
        else:
            (request,) = self.new_ones()
            new = Asked(request.id, kind, request.created_at + (TASK_S if as_task else ANSWER_S), asked)
            self.asked.append(new)
            if as_task:
                new.task_id, new.question = asked.reply["task"]["taskId"], None
            else:
                new.perhaps = [tool for tool in self.tools.values() if not tool.ended and not tool.taken_up]
        self.pass_on()

    @precondition(lambda self: self.up)
    @rule(keys=st.sampled_from([("form1",), ("form1", "form2"), ("sampling1",)]))
    def call_that_asks(self, keys: tuple[str, ...]) -> None:
        tool = Tool(f"tool{len(self.tools)}", keys)
        self.tools[tool.name] = tool
        fits = self.room() >= len(keys)
        if call := self.outcome(None, self.hub.calls.start(spec(tool.name), "me")):
            tool.call_id = call.id
        self.rest()
        new = self.new_ones()
        if not fits:
            assert not new
            tool.ended = True
        else:
            assert len(new) == len(keys)
            rounds = self.hub.calls.get(tool.call_id).rounds
            assert rounds is not None
            names = {request_id: key for key, request_id in rounds.questions}
            for request in new:
                key, deadline = names[request.id], request.created_at + ANSWER_S
                self.asked.append(Asked(request.id, key.rstrip("12"), deadline, tool=tool, key=key))
        self.pass_on()

    @precondition(lambda self: self.up and self.there())
    @rule(number=which)
    def server_cancels(self, number: int) -> None:
        each = self.pick(number)
        if each.question is not None:
            self.do(each.question.withdraw)
            each.asker_gone = each.open
        elif each.task_id is not None:
            cancelling = self.do(self.world.peer.link.ask, "tasks/cancel", {"taskId": each.task_id})
            allowed = each.open and not self.blocked
            self.rest()
            assert (cancelling.reply is not None) is allowed
            if allowed:
                each.end("REQUEST_WITHDRAWN", self.now() - SETTLE_S)
                assert all(question.error and question.error.code == -32800 for question in each.waiting)
        self.pass_on()

    @precondition(lambda self: self.up and any(each.task_id for each in self.asked))
    @rule(number=which, stays=st.booleans())
    def server_fetches(self, number: int, stays: bool) -> None:
        tasks = [each for each in self.asked if each.task_id]
        each = tasks[-1 - number % len(tasks)]
        fetching = self.do(self.world.peer.link.ask, "tasks/result", {"taskId": each.task_id})
        self.rest()
        if each.open:
            assert not fetching.done.is_set()
            if stays:
                each.waiting.append(fetching)
            else:
                self.do(fetching.withdraw)
        elif each.forgotten or each.answer is None:
            assert fetching.error.code == (-32602 if each.forgotten else -32800)
        else:
            self.got(fetching, each.answer)
            if each.delivery is Delivery.PENDING:
                each.delivery, each.unsure = Delivery.DELIVERED, self.blocked
        self.pass_on()

    # What people do

    def outcome(self, reason: str | None, work: Any) -> Any:
        """What the work returns when nothing speaks against it; otherwise it is refused with the reason."""
        reason = reason or ("STORE_UNAVAILABLE" if self.blocked else None)
        if reason is None:
            return self.run(work)
        with raising(HubError, reason):
            self.run(work)
        return None

    def closed(self, each: Asked) -> str | None:
        return each.ended or ("REQUEST_EXPIRED" if self.now() >= each.deadline else None)

    def not_held(self, each: Asked, claim_id: str) -> str | None:
        holder = each.holder(self.now())
        return self.closed(each) or (None if holder and holder[0] == claim_id else "CLAIM_LOST")

    def lease(self, each: Asked, record: PendingRequest, by: str, ttl: int) -> None:
        assert record.claim is not None
        until = min(self.now() + ttl, each.deadline)
        assert record.claim.expires_at == pytest.approx(until, abs=1e-3)
        each.held = (record.claim.id, record.claim.by, record.claim.expires_at)
        each.claims[by] = record.claim.id

    @precondition(lambda self: self.there())
    @rule(number=which, by=people, ttl=ttls, whose=st.none() | people, take_over=st.booleans())
    def claim(self, number: int, by: str, ttl: int, whose: str | None, take_over: bool) -> None:
        """Under an id that the hub makes, or one that somebody has had before."""
        each = self.pick(number)
        chosen = each.claims.get(whose) if whose else None
        holder = each.holder(self.now())
        own = holder is not None and holder[1] == by
        may = holder is None or (own and (take_over or holder[0] == chosen))
        reason = self.closed(each) or (None if may else "ALREADY_CLAIMED")
        work = self.hub.inbox.claim(each.id, by, ttl, claim_id=chosen, take_over=take_over)
        if record := self.outcome(reason, work):
            self.lease(each, record, by, ttl)
            assert chosen in (None, record.claim and record.claim.id)
        self.pass_on()

    @precondition(lambda self: self.there())
    @rule(number=which, by=people, ttl=ttls)
    def renew(self, number: int, by: str, ttl: int) -> None:
        each = self.pick(number)
        claim_id = each.claims.get(by, "none")
        if record := self.outcome(self.not_held(each, claim_id), self.hub.inbox.renew(each.id, claim_id, ttl)):
            self.lease(each, record, by, ttl)
        self.pass_on()

    @precondition(lambda self: self.there())
    @rule(number=which, by=people)
    def release(self, number: int, by: str) -> None:
        each = self.pick(number)
        claim_id = each.claims.get(by, "none")
        if self.outcome(self.not_held(each, claim_id), self.hub.inbox.release(each.id, claim_id)):
            each.held = None
        self.pass_on()

    @precondition(lambda self: self.there())
    @rule(
        number=which, by=people, answer_id=answer_ids, with_claim=st.booleans(), yes=st.booleans(), fits=st.booleans()
    )
    def answer(self, number: int, by: str, answer_id: str | None, with_claim: bool, yes: bool, fits: bool) -> None:
        each = self.pick(number)
        self.made += 1
        given, answer = said(each.kind, yes, self.made) if fits else (Accept({"name": 5}), None)
        claim_id = each.claims.get(by) if with_claim else None
        work = self.hub.inbox.answer(each.id, given, by, answer_id=answer_id, claim_id=claim_id)
        if each.ended == "ALREADY_ANSWERED" and answer_id and (each.by, each.answer_id) == (by, answer_id):
            assert self.run(work).answered_by == by
            return
        reason = self.not_held(each, claim_id) if claim_id else self.closed(each)
        if reason is None and not claim_id and each.holder(self.now()):
            reason = "ALREADY_CLAIMED"
        if reason is not None and each.open and answer_id and self.blocked:
            reason = "STORE_UNAVAILABLE"  # only the store knows whether an earlier attempt has held
        if each.open and not fits:
            reason = "INVALID_ARGUMENT"
        if self.outcome(reason, work):
            each.end("ALREADY_ANSWERED", self.now(), answer)
            each.by, each.answer_id = by, answer_id
            self.rest()
            self.hand_over(each)
        self.pass_on()

    @precondition(lambda self: self.up and not self.blocked and any(each.open for each in self.there()))
    @rule(
        number=which,
        starts=st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.15]), min_size=2, max_size=4),
        leaves=st.none() | st.sampled_from([0.0, 0.05, 0.1, 0.15]),
    )
    def all_at_once(self, number: int, starts: list[float], leaves: float | None) -> None:
        """Several people answer, and the server may take its question back; the store is slow."""
        open_ones = [each for each in self.there() if each.open]
        each = open_ones[-1 - number % len(open_ones)]
        answers = {f"racer{n}": said(each.kind, True, self.made + n) for n in range(len(starts))}
        self.made += len(starts)

        async def answer(by: str, after: float) -> str:
            await anyio.sleep(after)
            try:
                await self.hub.inbox.answer(each.id, answers[by][0], by, answer_id=None, claim_id=None)
            except HubError as exc:
                return exc.reason
            return by

        async def race() -> list[str]:
            racing = [asyncio.create_task(answer(f"racer{n}", after)) for n, after in enumerate(starts)]
            if leaves is not None and each.question is not None:
                await anyio.sleep(leaves)
                each.question.withdraw()
            return await asyncio.gather(*racing)

        holder, late = each.holder(self.now()), each.deadline - self.now() < 5
        self.world.store.delay_s = 0.1
        outcomes = self.run(race())
        self.rest(2)
        self.world.store.delay_s = 0.0
        winners = [outcome for outcome in outcomes if outcome in answers]
        record = self.hub.inbox.get(each.id)
        if winners:
            (by,) = winners
            assert set(outcomes) <= {by, "ALREADY_ANSWERED", "ALREADY_CLAIMED" if holder else by}
            each.end("ALREADY_ANSWERED", record.answered_at or 0.0, answers[by][1])
            each.by = by
            if each.question is not None and each.question.reply is each.question.error is None:
                assert leaves is not None
                each.lose(self.now())
            else:
                self.hand_over(each)
        elif leaves is not None and each.question is not None:
            assert set(outcomes) <= {"REQUEST_WITHDRAWN", "ALREADY_CLAIMED", "REQUEST_EXPIRED"}
            each.asker_gone = True
        else:
            assert holder or late
        self.pass_on()

    # What happens around them

    @rule(seconds=st.sampled_from([1, 20, 100, 400]))
    def time_passes(self, seconds: int) -> None:
        self.pass_on(seconds)

    @precondition(lambda self: not self.blocked)
    @rule()
    def store_fails(self) -> None:
        self.world.store.failures = FOREVER

    @precondition(lambda self: self.blocked)
    @rule()
    def store_recovers(self) -> None:
        self.world.store.failures = 0
        self.able_since = self.now() + RETRY_S
        self.pass_on(RETRY_S)
        for each in self.asked:
            each.unsure = False

    @precondition(lambda self: self.up)
    @rule(away=st.booleans())
    def connection_is_lost(self, away: bool) -> None:
        self.cut()
        self.world.peer.always = UpstreamError(REFUSED) if away else None
        self.do(self.world.peer.link.lose, LOST)
        self.up = False
        self.pass_on(RECONNECT_S)
        self.up = not away
        self.pass_on()

    def cut(self) -> None:
        """Nobody is at the other end any more."""
        for each in self.asked:
            each.waiting.clear()
            if each.question is not None:
                each.asker_gone = each.asker_gone or each.open

    @precondition(lambda self: not self.up)
    @rule()
    def connection_comes_back(self) -> None:
        self.world.peer.always = None
        self.outcome(None, self.hub.servers.connect("one"))
        if self.hub.servers.get("one").wanted:  # else it was disconnected, and a broken store does not take the wish
            self.rest(RECONNECT_S)
            self.up = True
        self.pass_on()

    @rule()
    def disconnect(self) -> None:
        self.outcome(None, self.hub.servers.disconnect("one"))
        if not self.blocked:
            self.up = False
            for each in self.asked:
                each.forgotten = each.forgotten or each.task_id is not None
                each.lose(self.now())
            for tool in self.tools.values():
                self.end_tool(tool)
            self.cut()
        self.pass_on()

    @rule(killed=st.booleans(), away_s=st.sampled_from([0, 30, 500]))
    def restart(self, killed: bool, away_s: int) -> None:
        self.cut()
        self.stop(killed=killed or self.blocked)
        for tool in self.tools.values():
            tool.taken_up = True
        self.rest(away_s)
        self.start()
        self.able_since = self.now() - SETTLE_S
        self.follow()
        self.rest(RECONNECT_S)
        self.up = not isinstance(self.world.peer.always, UpstreamError) and self.hub.servers.get("one").wanted
        for each in self.asked:
            self.after_restart(each)
        self.pass_on()

    def after_restart(self, each: Asked) -> None:
        """What was handed over while the store was out of order is not known to have been."""
        if each.unsure:
            each.delivery, each.unsure = Delivery.PENDING, False
            if each.tool is not None:
                each.tool.ended = False

    @rule()
    def the_visitor_looks_in(self) -> None:
        for _ in range(4):  # a claim may lapse in the moment in which the visitor leaves
            self.run(self.visitor.look(self.hub.inbox.watch(OPEN_ONES, self.visitor.token)))
            if self.blocked or self.visitor.records == self.open_ones():
                break
        assert self.blocked or self.visitor.records == self.open_ones()
        self.pass_on()

    def open_ones(self) -> dict[str, PendingRequest]:
        return {request.id: request for request in self.hub.inbox.select(OPEN_ONES)}


@pytest.mark.parametrize("looks", range(1, 5))
def test_a_visitor_may_leave_when_a_claim_lapses(looks: int) -> None:
    state = InboxModel()
    try:
        state.begin()
        state.ask(kind="form", as_task=False)
        state.claim(number=0, by="ann", ttl=1, whose=None, take_over=False)
        for _ in range(looks):
            state.the_visitor_looks_in()
        state.who_watches_knows_what_is_there()
    finally:
        state.teardown()


@pytest.mark.parametrize("calls", [1, 3])
def test_what_nobody_answers_is_late_once_each_call_that_may_have_asked_is_over(calls: int) -> None:
    state = InboxModel()
    try:
        state.begin()
        for _ in range(calls):
            state.call_that_asks(keys=("form1",))
        state.ask(kind="form", as_task=False)
        state.time_passes(seconds=100)
        state.time_passes(seconds=20)
        assert [tool.ended for tool in state.tools.values()] == [True] * calls
        assert state.asked[-1].delivery is Delivery.LATE
        state.the_inbox_tells_the_same_story()
    finally:
        state.teardown()


def test_a_task_whose_question_expires_late_as_the_store_was_away_can_still_be_fetched() -> None:
    story = InboxModel()
    try:
        story.begin()
        story.ask(kind="form", as_task=True)
        story.store_fails()
        story.call_that_asks(keys=("form1",))
        story.server_cancels(number=0)
        story.time_passes(seconds=400)
        story.store_recovers()  # the deletion of the task, which was due, comes after the end of its question
        story.the_inbox_tells_the_same_story()
        assert story.asked[0].delivery is Delivery.PENDING
        story.time_passes(seconds=100)
        story.the_inbox_tells_the_same_story()
        assert story.asked[0].delivery is Delivery.FAILED, "its task is not deleted any more"
    finally:
        story.teardown()


TestInboxModel = InboxModel.TestCase
TestInboxModel.settings = bounded(0.4, 30)
