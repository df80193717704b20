"""Any story that callers, a server, the clock and the hub's own ends make of a request queue, beside what must hold."""

import asyncio
import json

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.calls.queue import Slot
from hubbubd.core.filters import CallFilter, RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.errors import Fault, HubError, PeerError, Unavailable, UpstreamError
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import FORM, server, spec
from .model import HubModel, View, bounded
from .peer import LOST, REFUSED, SESSION_LOST, Outcome, Sent, fault
from .queue_model import Asked, Made, Sending, length, without_spans
from .true_states import check_causes

TIMEOUT_S = 30.0
MAX_S = 80.0
ANSWER_S = 100.0
MAX_QUEUED = 4
RECONNECT_S = 3.0
FINAL = fault("AUTHENTICATION_FAILED", retryable=False)
EVERYTHING = CallFilter()

which = st.integers(0, 30)


class QueueModel(HubModel):
    """Callers of one server that does what it is asked to."""

    slots = 1
    one_question = False

    def servers(self) -> list[ServerConfig]:
        clocks = {"call_timeout_s": TIMEOUT_S, "call_max_s": MAX_S, "answer_timeout_s": ANSWER_S, "ping_interval_s": 0}
        limits = {
            "max_in_flight": self.slots,
            "one_question_at_a_time": self.one_question,
            "max_queued": MAX_QUEUED,
            "retries": -1,
            "backoff_s": (1,),
            "backoff_max_s": 1,
        }
        return [server(**clocks, **limits)]

    @initialize(slots=st.integers(1, 3), one_question=st.booleans())
    def begin(self, slots: int, one_question: bool) -> None:
        self.slots, self.one_question = slots, one_question
        self.calls: list[Made] = []
        self.questions: list[Asked] = []
        self.up = self.wanted = True
        self.seen = View[Call](without_spans)
        self.world.peer.behaviour = self.serve
        self.world.peer.era = Era.STATELESS
        self.start()
        self.follow()

    def follow(self) -> None:
        self.do(lambda: asyncio.create_task(self.seen.follow(self.hub.calls.watch(EVERYTHING, self.seen.token))))

    async def serve(self, sent: Sent) -> Outcome:
        made = next(each for each in self.calls if each.name == sent.params["name"])
        if not made.sendings:
            earlier = self.calls[: self.calls.index(made)]  # a detached one that has its turn is written down first
            assert all(each.sendings or self.state(each) is not CallState.QUEUED for each in earlier), "out of turn"
        if made.rounds:
            assert sent.params["requestState"] == f"state{len(made.rounds)}"
            assert set(sent.params["inputResponses"]) == {"a"}
        sending = Sending(sent, asyncio.get_running_loop().create_future())
        made.sendings.append(sending)
        made.mark, made.taken_up = self.now(), False
        try:
            return await sending.outcome
        finally:
            sending.over = True

    # What the model knows

    @property
    def live(self) -> list[Made]:
        return [made for made in self.calls if made.ended is None]

    @property
    def on_the_wire(self) -> list[Made]:
        return [made for made in self.live if made.wire]

    def records(self) -> dict[str, Call]:
        return {call.id: without_spans(call) for call in self.hub.calls.select(EVERYTHING)}

    def state(self, made: Made) -> CallState:
        return self.hub.calls.get(made.id).state

    def waiting(self) -> list[Made]:
        return [made for made in self.live if self.state(made) is CallState.QUEUED]

    def held_s(self, made: Made, begin: float, end: float) -> float:
        """For how long the call's clocks stood."""
        holds = [asked for asked in self.questions if made in asked.holds]
        return length([(max(h.since, begin), min(end if h.until is None else h.until, end)) for h in holds])

    def idle_s(self, made: Made, now: float) -> float:
        return now - made.mark - self.held_s(made, made.mark, now)

    def total_s(self, made: Made, now: float) -> float:
        return now - made.since - self.held_s(made, made.since, now)

    def follow_up(self, seconds: float = 0.25, **reasons: str) -> list[Made]:
        """Time passes; which calls have ended in it, each for a reason that it had: those given, or its clocks."""
        self.rest(seconds)
        self.catch_up_with(self.seen, self.records)
        for asked in self.questions:
            record = self.hub.inbox.get(asked.id)
            if asked.until is None and record.state is not RequestState.OPEN:
                asked.until = record.closed_at
        newly: list[Made] = []
        for made in self.live:
            call = self.hub.calls.get(made.id)
            if not call.state.ended:
                continue
            made.ended = call
            newly.append(made)
            code = call.fault.code if call.fault else "COMPLETED"
            at = call.completed_at or 0.0
            if code == "CALL_TIMEOUT":
                assert self.idle_s(made, at) == pytest.approx(TIMEOUT_S, abs=0.1)
            elif code == "CALL_MAX_EXCEEDED":
                assert self.total_s(made, at) == pytest.approx(MAX_S, abs=0.1)
            else:
                assert reasons.get(made.name, reasons.get("every")) == code
        return newly

    # What callers do

    def refusal(self) -> str | None:
        if not self.wanted:
            return "SERVER_NOT_CONNECTED"
        return "QUEUE_FULL" if len(self.waiting()) >= MAX_QUEUED else None

    @rule(detached=st.booleans())
    def call(self, detached: bool) -> None:
        name = f"call{len(self.calls)}"
        wanted = spec(name, call_id=name)
        refusal = self.refusal()
        if refusal is not None:
            with raising(HubError, refusal):
                self.run(self.hub.calls.start(wanted, "me"))
            return
        made = Made(name, name, detached, self.now(), self.now())
        self.calls.append(made)
        if detached:
            assert self.run(self.hub.calls.start(wanted, "me")).id == name
        else:
            self.wait_for(made)
        assert made not in self.follow_up()

    def wait_for(self, made: Made) -> None:
        async def caller() -> Call | HubError:
            try:
                return await self.hub.calls.call(spec(made.name, call_id=made.id), "me")
            except HubError as exc:
                return exc

        made.callers.append(self.do(lambda: asyncio.create_task(caller())))

    @precondition(lambda self: self.calls)
    @rule(number=which, how=st.sampled_from(["start", "call", "other"]))
    def same_id_again(self, number: int, how: str) -> None:
        made = self.calls[-1 - number % len(self.calls)]
        if made.ended is None and not self.wanted:
            return
        if how == "other":
            with raising(HubError, "CALL_ID_REUSED"):
                self.run(self.hub.calls.start(spec("another", call_id=made.id), "me"))
        elif how == "start":
            again = self.run(self.hub.calls.start(spec(made.name, call_id=made.id), "me"))
            assert again.id == made.id
            assert made.ended in (None, again)
            made.detached = made.detached or made.ended is None
        elif made.ended is None:
            self.wait_for(made)
        self.follow_up()

    @precondition(lambda self: any(made.callers for made in self.live))
    @rule(number=which)
    def a_caller_hangs_up(self, number: int) -> None:
        waited_for = [made for made in self.live if made.callers]
        made = waited_for[number % len(waited_for)]
        self.do(made.callers.pop().cancel)
        ends = not made.callers and not made.detached
        assert made in self.follow_up(**({made.name: "CALL_CANCELLED"} if ends else {})) or not ends

    @precondition(lambda self: self.calls)
    @rule(number=which, abort=st.booleans())
    def cancel(self, number: int, abort: bool) -> None:
        made = self.calls[-1 - number % len(self.calls)]
        state = self.state(made)
        refusal = "CALL_FINISHED" if state.ended else None
        if state is CallState.IN_PROGRESS and not abort:
            refusal = "CALL_IN_PROGRESS"
        if refusal is None:
            assert self.run(self.hub.calls.cancel(made.id, abort=abort)).state is CallState.CANCELLED
            assert made in self.follow_up(**{made.name: "CALL_CANCELLED"})
            assert not made.wire
            return
        with raising(HubError, refusal):
            self.run(self.hub.calls.cancel(made.id, abort=abort))

    @rule()
    def clear(self) -> None:
        waiting = self.waiting()
        assert self.run(self.hub.calls.clear_queue("one")) == len(waiting)
        assert set(waiting) <= set(self.follow_up(**{made.name: "CALL_CANCELLED" for made in waiting}))

    # What the server does

    def pick(self, number: int) -> Made:
        return self.on_the_wire[number % len(self.on_the_wire)]

    def reply(self, made: Made, outcome: Outcome | Exception) -> None:
        future = made.wire.outcome
        self.do(future.set_exception if isinstance(outcome, Exception) else future.set_result, outcome)

    @precondition(lambda self: self.on_the_wire)
    @rule(number=which, well=st.booleans())
    def server_answers(self, number: int, well: bool) -> None:
        made = self.pick(number)
        self.reply(made, {"is": made.name} if well else PeerError(-32000, "no"))
        assert made in self.follow_up(**{made.name: "COMPLETED" if well else "SERVER_ERROR"})
        assert made.ended is not None
        assert not well or json.loads(made.ended.result or b"") == {"is": made.name}

    @precondition(lambda self: self.on_the_wire)
    @rule(number=which)
    def server_needs_input(self, number: int) -> None:
        made = self.pick(number)
        if len(made.rounds) > 8:
            return
        asks = {"a": {"method": "elicitation/create", "params": FORM}}
        state = f"state{len(made.rounds) + 1}"
        before = {request.id for request in self.hub.inbox.select(RequestFilter())}
        since = self.now()
        self.reply(made, {"resultType": "input_required", "inputRequests": asks, "requestState": state})
        self.rest()
        (request,) = [r for r in self.hub.inbox.select(RequestFilter()) if r.id not in before]
        assert request.call_id == made.id
        made.rounds.append(Asked(request.id, [made], since))
        self.questions.append(made.rounds[-1])
        assert made not in self.follow_up()
        assert self.state(made) is CallState.WAITING_INPUT

    @precondition(lambda self: self.on_the_wire)
    @rule(number=which, known=st.booleans())
    def server_asks_on_the_wire(self, number: int, known: bool) -> None:
        made = self.pick(number)
        in_rounds = [each for each in self.live if each.in_rounds and each.sendings and not each.taken_up]
        holds = [made] if known else self.on_the_wire + in_rounds
        assert made.wire is not None
        before = {request.id for request in self.hub.inbox.select(RequestFilter())}
        since = self.now()
        question = self.do(lambda: made.wire.sent.ask("elicitation/create", FORM, on_wire=known))
        self.rest()
        (request,) = [r for r in self.hub.inbox.select(RequestFilter()) if r.id not in before]
        assert request.call_id == (holds[0].id if len(holds) == 1 else None)
        assert request.call_id is not None or not self.one_question, "one call at a time: the cause is known"
        if request.call_id is None:
            assert set(request.candidate_call_ids) == {each.id for each in holds}
            assert all(request.id in self.hub.calls.get(each.id).perhaps_pending_ids for each in holds)
        self.questions.append(Asked(request.id, holds, since, question=question))
        assert not {*holds} & {*self.follow_up()}

    @precondition(lambda self: any(asked.until is None for asked in self.questions))
    @rule(number=which, taken_back=st.booleans())
    def a_question_ends(self, number: int, taken_back: bool) -> None:
        open_ones = [asked for asked in self.questions if asked.until is None]
        asked = open_ones[number % len(open_ones)]
        if taken_back and asked.question is not None:
            self.do(asked.question.withdraw)
        else:
            given = Accept({"name": "x"})
            self.run(self.hub.inbox.answer(asked.id, given, "me", answer_id=None, claim_id=None))
        self.follow_up()
        assert asked.until is not None

    @precondition(lambda self: self.on_the_wire)
    @rule(number=which)
    def server_reports_progress(self, number: int) -> None:
        made = self.pick(number)
        assert made.wire is not None
        made.mark = self.now()
        self.do(made.wire.sent.progress, 1.0)
        assert made not in self.follow_up() or self.total_s(made, self.now()) > MAX_S

    # What happens around them

    @rule(seconds=st.sampled_from([1, 12, 29, 31, 75, 150]))
    def time_passes(self, seconds: int) -> None:
        self.follow_up(seconds)

    @precondition(lambda self: self.up)
    @rule()
    def connection_is_lost(self) -> None:
        self.lose(LOST, {made.name: "CONNECTION_LOST" for made in self.on_the_wire})

    @precondition(lambda self: self.up)
    @rule()
    def session_is_lost(self) -> None:
        again = [made for made in self.on_the_wire if not made.met_lost_session]
        failing = {made.name: "SESSION_LOST" for made in self.on_the_wire if made.met_lost_session}
        self.lose(SESSION_LOST, failing)
        for made in again:
            made.met_lost_session = True
            assert made.ended is None or made.ended.fault is not None

    def lose(self, why: Fault, failing: dict[str, str]) -> None:
        self.do(self.world.peer.link.lose, why)
        ended = {made.name for made in self.follow_up(RECONNECT_S, **failing)}
        assert failing.keys() <= ended

    @precondition(lambda self: self.up)
    @rule()
    def server_goes_away(self) -> None:
        failing = {made.name: "CONNECTION_LOST" for made in self.on_the_wire}
        self.world.peer.always = UpstreamError(REFUSED)
        self.do(self.world.peer.link.lose, LOST)
        self.up = False
        self.follow_up(**failing)

    @precondition(lambda self: not self.up and self.wanted)
    @rule()
    def the_hub_gives_up(self) -> None:
        self.world.peer.always = UpstreamError(FINAL)
        self.follow_up(RECONNECT_S, every=FINAL.code)
        self.nothing_is_left()
        self.world.peer.always = UpstreamError(REFUSED)  # the next hub tries again
        self.wanted = False

    @precondition(lambda self: not self.up)
    @rule()
    def connect(self) -> None:
        self.world.peer.always = None
        self.run(self.hub.servers.connect("one"))
        self.up = self.wanted = True
        self.follow_up(RECONNECT_S)

    @rule()
    def disconnect(self) -> None:
        self.run(self.hub.servers.disconnect("one"))
        self.up = self.wanted = False
        self.follow_up(every="SERVER_DISCONNECTED")
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        assert not self.live
        queue = self.hub.calls._queues["one"]
        assert not queue.calls
        assert queue._queue.count(*Slot) == 0
        assert not self.hub.inbox._waits

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        waited_for = {made: made.callers for made in self.live}
        # What has not been sent by now is sent by the next hub; one that stops sends nothing new.
        staying = [made for made in waited_for if made.rounds or (made.detached and not made.sendings)]
        self.stop(killed=killed)
        self.start()
        self.follow()
        self.up = self.wanted = self.hub.servers.get("one").wanted and self.world.peer.always is None
        self.wanted = self.hub.servers.get("one").wanted
        ending = [made for made in waited_for if made not in staying]
        code = "HUB_RESTARTED" if killed else "SHUTTING_DOWN"
        for made in waited_for:
            made.callers, made.detached, made.met_lost_session, made.taken_up = [], True, False, True
            if made in staying:
                made.since = made.mark = max(made.mark, self.now() - 0.25)
        for asked in self.questions:
            asked.holds = [made for made in asked.holds if asked in made.rounds]
        ended = self.follow_up(**{made.name: code for made in ending})
        assert set(ending) <= set(ended)
        for made, callers in waited_for.items():
            for caller in callers:
                if made in staying:
                    assert isinstance(caller.result(), Unavailable)
                else:
                    assert killed or caller.result() == made.ended

    # What must hold

    @invariant()
    def every_call_tells_the_same_story(self) -> None:
        if not hasattr(self, "calls"):
            return
        now = self.now()
        for made in self.calls:
            call = self.hub.calls.get(made.id)
            assert call.state.ended is (made.ended is not None)
            assert made.ended in (None, call), "it ended twice"
            for caller in made.callers:
                assert caller.done() is call.state.ended
                assert not caller.done() or caller.result() == call
            if made.ended is not None:
                assert not made.wire
                continue
            assert self.idle_s(made, now) < TIMEOUT_S + 0.1
            assert self.total_s(made, now) < MAX_S + 0.1
            if made.wire:
                assert call.state in (CallState.IN_PROGRESS, CallState.WAITING_INPUT)
        assert self.seen.records == self.records()

    @invariant()
    def slots_are_used_and_not_exceeded(self) -> None:
        if not hasattr(self, "calls"):
            return
        held = [made for asked in self.questions if asked.until is None for made in asked.holds]
        working = [made for made in self.on_the_wire if made not in held]
        # One that was parked takes its slot back even when all are in use.
        returned = [m for m in working if any(m in a.holds and (a.until or 0) >= m.mark for a in self.questions)]
        slots = 1 if self.one_question else self.slots
        assert len(working) - len(returned) <= slots
        if self.up and self.waiting() and not (self.one_question and held):
            assert len(working) >= slots

    @invariant()
    def no_request_waits_for_a_call_that_is_over(self) -> None:
        if hasattr(self, "calls"):
            check_causes(self.hub)

    @invariant()
    def the_counts_are_right(self) -> None:
        if not hasattr(self, "calls"):
            return
        counts = self.hub.calls.counts("one")
        states = [self.state(made) for made in self.calls]
        for state in CallState:
            assert getattr(counts, state.value) == states.count(state)


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = bounded(0.4, 30)
