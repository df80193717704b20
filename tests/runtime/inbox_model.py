"""A model of the inbox: what it knows of each request, what happens by itself, and what must hold."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis.stateful import initialize, invariant

from hubbubd.config import ServerConfig
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept, ClientAnswer, Decline, Reject, Text
from hubbubd.core.inbox.request_states import Delivery, PendingRequest, RequestState
from hubbubd.errors import NotFound
from hubbubd.upstream.ports import Era, ReplyError

from .conftest import FORM, SAMPLING, server
from .model import SETTLE_S, HubModel, View
from .peer import Outcome, Question, Sent
from .true_states import check_causes

ANSWER_S = 100.0
TASK_S = 300.0
GRACE_S = 60.0
MOST_OPEN = 5
HISTORY = 12
RECONNECT_S = 3.0
RETRY_S = 2.5
SAME_MOMENT_S = 0.1
EVERYTHING = RequestFilter()
OPEN_ONES = RequestFilter(states=frozenset({RequestState.OPEN}))

METHODS = {"form": ("elicitation/create", FORM), "sampling": ("sampling/createMessage", SAMPLING)}
STATES = {
    None: RequestState.OPEN,
    "ALREADY_ANSWERED": RequestState.ANSWERED,
    "REQUEST_WITHDRAWN": RequestState.WITHDRAWN,
    "REQUEST_EXPIRED": RequestState.EXPIRED,
}
NOBODY = {"form": {"action": "cancel"}, "sampling": {"error": {"code": -1, "message": "Nobody answered in time"}}}


@dataclass
class Tool:
    """A call that is answered with questions, and sent again with what people say."""

    name: str
    keys: tuple[str, ...]
    call_id: str = ""
    ended: bool = False
    # Whether it goes on in another hub, from which the server has nothing of it yet.
    taken_up: bool = False


@dataclass(eq=False)
class Asked:
    """What the model knows of one thing that the server has asked."""

    id: str
    kind: str
    deadline: float
    question: Question | None = None
    task_id: str | None = None
    tool: Tool | None = None
    # The calls that the server knew of when it asked on the wire: one of them may have caused it.
    perhaps: list[Tool] = field(default_factory=list[Tool])
    key: str = ""
    ended: str | None = None
    ended_at: float = 0.0
    held: tuple[str, str, float] | None = None
    claims: dict[str, str] = field(default_factory=dict[str, str])
    answer: Any = None
    by: str | None = None
    answer_id: str | None = None
    delivery: Delivery = Delivery.NONE
    asker_gone: bool = False
    forgotten: bool = False
    waiting: list[Question] = field(default_factory=list[Question])
    unsure: bool = False
    pruned: bool = False

    @property
    def open(self) -> bool:
        return self.ended is None

    def holder(self, now: float) -> tuple[str, str, float] | None:
        return self.held if self.held and now < self.held[2] else None

    def end(self, why: str, at: float, answer: Any = None) -> None:
        assert self.open, "ended twice"
        self.ended, self.ended_at, self.held, self.answer = why, at, None, answer
        self.delivery = Delivery.NONE if answer is None else Delivery.PENDING

    def lose(self, at: float) -> None:
        """Nobody can use an answer any more."""
        if self.open:
            self.end("REQUEST_WITHDRAWN", at)
        elif self.delivery is Delivery.PENDING:
            self.delivery = Delivery.FAILED


def bare(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what the hub says beside it."""
    return {key: value for key, value in answer.items() if key != "_meta"}


def said(kind: str, yes: bool, number: int) -> tuple[ClientAnswer, Any]:
    """What somebody answers, and what the server is to get for it."""
    if kind == "form":
        accepted = {"action": "accept", "content": {"name": f"n{number}"}}
        return (Accept({"name": f"n{number}"}), accepted) if yes else (Decline(), {"action": "decline"})
    content = {"type": "text", "text": f"n{number}"}
    text = {"role": "assistant", "content": content, "model": "human", "stopReason": "endTurn"}
    error = {"error": {"code": -1, "message": f"n{number}"}}
    return (Text(f"n{number}"), text) if yes else (Reject(f"n{number}"), error)


class InboxStory(HubModel):
    """One server that asks in every form, three people, and a store that fails at times."""

    def servers(self) -> list[ServerConfig]:
        options = {"max_in_flight": 100, "call_timeout_s": 10**6, "call_max_s": 10**6, "ping_interval_s": 0}
        return [server(answer_timeout_s=ANSWER_S, retries=-1, backoff_s=(1,), backoff_max_s=1, **options)]

    @initialize()
    def begin(self) -> None:
        self.asked: list[Asked] = []
        self.made = 0
        self.up = True
        self.able_since = 0.0
        self.tools: dict[str, Tool] = {}
        self.resent: dict[str, dict[str, Any]] = {}
        self.steady, self.visitor = View[PendingRequest](), View[PendingRequest]()
        self.world.settings = {"open_requests_per_server": MOST_OPEN, "request_history_count": HISTORY}
        self.world.peer.behaviour = self.serve
        self.world.peer.era = Era.STATELESS  # so that calls in rounds outlive the hub
        self.start()
        self.follow()

    def follow(self) -> None:
        self.do(lambda: asyncio.create_task(self.steady.follow(self.hub.inbox.watch(EVERYTHING, self.steady.token))))

    async def serve(self, sent: Sent) -> Outcome:
        tool = self.tools[sent.params["name"]]
        if "requestState" not in sent.params:
            asks = {key: {"method": m, "params": p} for key in tool.keys for m, p in [METHODS[key.rstrip("12")]]}
            return {"resultType": "input_required", "inputRequests": asks, "requestState": tool.name}
        assert sent.params["requestState"] == tool.name
        answers = self.resent.get(tool.name, sent.params["inputResponses"])
        assert sent.params["inputResponses"] == answers, "a call went on with other answers"
        self.resent[tool.name] = sent.params["inputResponses"]
        return {"content": []}

    # What happens by itself

    def pick(self, number: int) -> Asked:
        """One of the requests that are still there, the newest first."""
        there = self.there()
        return there[-1 - number % len(there)]

    def there(self) -> list[Asked]:
        return [each for each in self.asked if not each.pruned]

    def pass_on(self, seconds: float = SETTLE_S) -> None:
        """Time passes, and the model follows."""
        self.rest(seconds)
        times = [each.deadline for each in self.asked] + [self.forgets_at(each) for each in self.asked]
        if any(0 <= self.now() - at < 0.01 for at in times):
            self.rest(0.05)  # what is due at this very moment has its turn, too
        if not self.blocked:
            self.catch_up_with(self.steady, self.records)
            self.catch_up()
        for tool in self.tools.values():
            self.go_on(tool)

    def records(self) -> dict[str, PendingRequest]:
        return {request.id: request for request in self.hub.inbox.select(EVERYTHING)}

    def new_ones(self) -> list[PendingRequest]:
        known = {each.id for each in self.asked}
        return [request for request in self.hub.inbox.select(EVERYTHING)[::-1] if request.id not in known]

    def catch_up(self) -> None:
        """What was due has happened."""
        now = self.now()
        for each in self.asked:
            # A task may be forgotten before its question expires when neither could be written for long.
            too_late = each.task_id is not None and self.able_since >= each.deadline + GRACE_S
            if each.open and (each.asker_gone or (now >= each.deadline and too_late)):
                self.withdrawn_or_expired(each)
            elif each.open and now >= each.deadline:
                each.end("REQUEST_EXPIRED", self.expired_at(each), NOBODY[each.kind])
                self.hand_over(each)
            if each.task_id and not each.forgotten and now >= self.forgets_at(each):
                each.forgotten = True
                each.lose(now)

    def expired_at(self, each: Asked) -> float:
        """When the hub came to it: at the deadline, or soon after the store took it again, each request by itself."""
        record = self.hub.inbox.get(each.id)
        latest = max(each.deadline, record.deadline or 0, self.able_since)
        if record.state is not RequestState.EXPIRED or record.closed_at is None:
            return latest
        assert each.deadline <= record.closed_at <= latest + SAME_MOMENT_S
        return record.closed_at

    def withdrawn_or_expired(self, each: Asked) -> None:
        """When the deadline came and the asker went while neither could be written, either may be first."""
        late = self.now() >= each.deadline
        if late and self.hub.inbox.get(each.id).state is RequestState.EXPIRED:
            each.end("REQUEST_EXPIRED", self.expired_at(each), NOBODY[each.kind])
        if each.task_id is None or each.open:
            each.forgotten = each.task_id is not None
            each.lose(self.now())

    def forgets_at(self, each: Asked) -> float:
        """When the hub may forget the task of a request."""
        if each.task_id is None or each.open:
            return float("inf")
        return max(each.deadline, each.ended_at + GRACE_S)

    def hand_over(self, each: Asked) -> None:
        """An answer is there: a server that waits for it on the wire gets it."""
        waiting, each.waiting = each.waiting, []
        for question in waiting:
            self.got(question, each.answer)
            each.delivery = Delivery.DELIVERED
        if each.question is not None:
            self.got(each.question, each.answer)
            each.delivery = Delivery.FAILED if self.world.peer.link.undeliverable else self.in_time(each)

    def in_time(self, each: Asked) -> Delivery:
        """Late is what began its way after the last call that may have asked; at that very moment, either is right."""
        ends = [self.ended_at(tool) for tool in each.perhaps]
        if not ends or max(ends) > each.ended_at + SAME_MOMENT_S:
            return Delivery.DELIVERED
        if max(ends) < each.ended_at - SAME_MOMENT_S:
            return Delivery.LATE
        return self.hub.inbox.get(each.id).delivery

    def ended_at(self, tool: Tool) -> float:
        """When the call was over; one that goes on is over some day."""
        at = self.hub.calls.get(tool.call_id).completed_at
        return float("inf") if at is None else at

    def got(self, question: Question, answer: Any) -> None:
        """The server has exactly this answer."""
        if "error" in answer:
            assert isinstance(question.error, ReplyError)
            assert {"code": question.error.code, "message": str(question.error)} == answer["error"]
        else:
            assert question.reply is not None
            assert bare(question.reply) == answer

    def go_on(self, tool: Tool) -> None:
        """A call whose questions are all answered is sent again; one of which a question was refused has failed."""
        mine = [each for each in self.asked if each.tool is tool]
        if tool.ended or not mine:
            return
        if any("error" in (each.answer or {}) for each in mine):
            self.end_tool(tool)
        elif self.up and not any(each.open for each in mine):
            tool.ended = True
            sent = {key: bare(answer) for key, answer in self.resent[tool.name].items()}
            assert sent == {each.key: each.answer for each in mine}
            for each in mine:
                each.delivery = Delivery.DELIVERED
                each.unsure = self.blocked

    def end_tool(self, tool: Tool) -> None:
        """The call has ended, so nobody can use its answers."""
        tool.ended = True
        for each in self.asked:
            if each.tool is tool:
                each.lose(self.now())

    # What must hold

    @invariant()
    def the_inbox_tells_the_same_story(self) -> None:
        if not hasattr(self, "asked"):
            return
        for each in self.there():
            try:
                record = self.hub.inbox.get(each.id)
            except NotFound:
                self.check_pruned(each)
                continue
            assert record.state is STATES[each.ended]
            assert record.delivery is each.delivery
            assert (record.answered_by, record.answer_id) == (each.by, each.answer_id)
            if each.answer is None:
                assert record.answer is None
            else:
                assert bare(json.loads(record.answer.payload)) == each.answer
                assert record.answer.refused == ("error" in each.answer)
            holder = record.valid_claim(self.now())
            assert ((holder.id, holder.by, holder.expires_at) if holder else None) == each.holder(self.now())
        assert not self.new_ones()

    def check_pruned(self, each: Asked) -> None:
        assert not each.open
        assert each.delivery is not Delivery.PENDING
        assert sum(not other.open for other in self.asked if other is not each) >= HISTORY
        each.pruned = True

    @invariant()
    def no_request_waits_for_a_call_that_is_over(self) -> None:
        if hasattr(self, "asked") and not self.blocked:
            check_causes(self.hub)

    @invariant()
    def who_watches_knows_what_is_there(self) -> None:
        if hasattr(self, "asked") and not self.blocked:
            assert self.steady.records == self.records()
