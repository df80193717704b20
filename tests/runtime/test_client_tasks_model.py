"""Any story that a server, people, connections and restarts make of calls that are tasks at their server, in both
families of revisions, beside what must come of them."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import anyio
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import Call, CallState
from hubbubd.core.filters import RequestFilter, TaskFilter
from hubbubd.core.inbox.forms import Accept, Decline
from hubbubd.core.inbox.request_states import Delivery, RequestState
from hubbubd.core.tasks import RELATED_TASK, Task, TaskRole
from hubbubd.errors import HubError, PeerError, UpstreamError
from hubbubd.upstream.ports import Era

from ..raising import raising
from .conftest import FORM, server, spec
from .model import HubModel, View, bounded
from .peer import LOST, REFUSED, Outcome, Question, Sent

POLLED_S = 2.5
RECONNECT_S = 5.0
ANSWER_S = 300.0
EVERYTHING = TaskFilter(role=TaskRole.CLIENT)
NOT_FOUND = PeerError(-32602, "Task not found")

which = st.integers(0, 30)


@dataclass(eq=False)
class Remote:
    """A task as its server has it, and why its call is to end."""

    name: str
    call_id: str = ""
    status: str = "working"
    result: Outcome | PeerError = field(default_factory=dict[str, Any])
    over: anyio.Event = field(default_factory=anyio.Event)
    asks: dict[str, Any] = field(default_factory=dict[str, Any])
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    lost: bool = False
    why: frozenset[str] = frozenset()
    ended: tuple[Call, Task] | None = None

    @property
    def done(self) -> bool:
        return self.lost or self.status not in ("working", "input_required")

    def end(self, status: str, result: Outcome | PeerError, why: str) -> None:
        self.status, self.result, self.why = status, result, self.why or frozenset({why})
        self.over.set()


@dataclass(eq=False)
class Asked:
    """A question of a task; `key` names it in 2026-07-28, before that it is a request on the wire."""

    id: str
    remote: Remote
    key: str
    deadline: float
    question: Question | None
    answer: Outcome | None = None
    open: bool = True


class ClientTasksModel(HubModel):
    """A server that makes tasks of calls."""

    def servers(self) -> list[ServerConfig]:
        clocks = {"call_max_s": 10**6, "answer_timeout_s": ANSWER_S, "ping_interval_s": 0}
        return [server(retries=-1, backoff_s=(1,), backoff_max_s=1, **clocks)]

    @initialize(era=st.sampled_from(list(Era)))
    def begin(self, era: Era) -> None:
        self.stateless = era is Era.STATELESS
        self.remotes: dict[str, Remote] = {}
        self.asked: list[Asked] = []
        self.made = 0
        self.up = self.wanted = True
        self.seen = View[Task]()
        tasks = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
        extension = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        self.peer = self.world.peer
        self.peer.era, self.peer.behaviour, self.peer.listing = era, self.serve, self.lists
        self.peer.capabilities = {"tools": {}, **(extension if self.stateless else tasks)}
        self.start()
        self.follow()
        self.rest(POLLED_S)

    def follow(self) -> None:
        self.do(lambda: asyncio.create_task(self.seen.follow(self.hub.tasks.watch(EVERYTHING, self.seen.token))))

    # The server

    async def lists(self, sent: Sent) -> Outcome:
        tool = {"name": "t", "inputSchema": {}, "execution": {"taskSupport": "optional"}}
        return {"tools": [tool]} if sent.method == "tools/list" else {}

    def wire(self, remote: Remote) -> Outcome:
        names = ("ttlMs", "pollIntervalMs") if self.stateless else ("ttl", "pollInterval")
        wire = {"taskId": remote.name, "status": remote.status, names[0]: None, names[1]: 1000}
        if self.stateless and remote.status == "completed":
            wire["result"] = remote.result
        if self.stateless and isinstance(remote.result, PeerError):
            wire["error"] = {"code": remote.result.code, "message": remote.result.message}
        if self.stateless and remote.status == "input_required":
            wire["inputRequests"] = {key: remote.asks[key] for key in remote.asks if key not in remote.answers}
        return wire

    async def serve(self, sent: Sent) -> Outcome:
        if sent.method == "tools/call":
            remote = Remote(f"remote{len(self.remotes)}", sent.call_id or "")
            self.remotes[remote.name] = remote
            return {"resultType": "task", **self.wire(remote)} if self.stateless else {"task": self.wire(remote)}
        remote = self.remotes[sent.params["taskId"]]
        if remote.lost:
            raise NOT_FOUND
        match sent.method:
            case "tasks/result":
                await remote.over.wait()
                if isinstance(remote.result, PeerError):
                    raise remote.result
                return remote.result
            case "tasks/update":
                for key, answer in sent.params["inputResponses"].items():
                    assert remote.answers.get(key, answer) == answer, "another answer to the same question"
                    remote.answers[key] = answer
                if not remote.done and remote.answers.keys() == remote.asks.keys():
                    remote.status = "working"
                return {}
            case "tasks/cancel" if remote.done:
                raise PeerError(-32602, "it has ended")
            case "tasks/cancel":
                remote.end("cancelled", PeerError(-32800, "cancelled"), "TASK_CANCELLED")
                return {} if self.stateless else self.wire(remote)
            case _:
                return self.wire(remote)

    # What the model knows

    def going_on(self) -> list[Remote]:
        return [remote for remote in self.remotes.values() if remote.ended is None]

    def at_work(self) -> list[Remote]:
        return [remote for remote in self.going_on() if not remote.done]

    def records(self) -> dict[str, Task]:
        return {task.id: task for task in self.hub.tasks.select(EVERYTHING)}

    def follow_up(self, seconds: float = POLLED_S) -> None:
        """Time passes; what the server did has come to its calls, if there is a connection."""
        self.rest(seconds)
        self.catch_up_with(self.seen, self.records)
        for asked in self.asked:
            record = self.hub.inbox.get(asked.id)
            if asked.open and asked.answer is None and record.state is RequestState.EXPIRED:
                assert self.now() >= asked.deadline
                asked.answer = {"action": "cancel"}
            if asked.open and record.state is not RequestState.OPEN:
                asked.open = False
        for remote in self.going_on():
            call = self.hub.calls.get(remote.call_id)
            task = self.hub.tasks.get(call.task_id or "")
            if not call.state.ended:
                assert not (self.up and remote.done), "its end was not noticed"
                assert not task.status.ended
                assert not self.up or task.status == remote.status
                continue
            assert (call.fault.code if call.fault else "COMPLETED") in remote.why
            assert task.status.ended
            assert not [asked for asked in self.asked if asked.remote is remote and asked.open]
            if call.state is CallState.COMPLETED:
                assert json.loads(call.result or b"") == remote.result
                assert self.hub.tasks.result(task.id) == call.result
            remote.ended = (call, task)

    # What callers do

    @precondition(lambda self: self.up)
    @rule()
    def call(self) -> None:
        self.run(self.hub.calls.start(spec("t", as_task=True), "me"))
        before = len(self.remotes)
        self.rest()
        assert len(self.remotes) == before + 1 or len(self.remotes) == before
        self.follow_up()

    @precondition(lambda self: self.remotes)
    @rule(number=which, whole=st.booleans())
    def cancel(self, number: int, whole: bool) -> None:
        """Cancels the task, or the whole call."""
        remote = [*self.remotes.values()][-1 - number % len(self.remotes)]
        task_id = self.hub.calls.get(remote.call_id).task_id or ""
        refusal = None if remote.ended is None else "CALL_FINISHED" if whole else "TASK_FINISHED"
        if refusal is None and not whole and not self.up:
            refusal = "SERVER_NOT_CONNECTED"
        work = self.hub.calls.cancel(remote.call_id, abort=True) if whole else self.hub.tasks.cancel(task_id)
        if refusal is None:
            was_done = remote.done
            if whole or not was_done:
                remote.why = frozenset({"CALL_CANCELLED" if whole else "TASK_CANCELLED"})
            self.run(work)
            assert was_done or remote.status == ("cancelled" if self.up else remote.status)
        else:
            with raising(HubError, refusal):
                self.run(work)
        self.follow_up()
        assert refusal or remote.ended

    # What the server does

    @precondition(lambda self: self.at_work())
    @rule(number=which, how=st.sampled_from(["completed", "failed", "cancelled", "lost"]), told=st.booleans())
    def server_ends(self, number: int, how: str, told: bool) -> None:
        remote = self.at_work()[number % len(self.at_work())]
        self.made += 1
        if how == "lost":
            # One whose result is being waited for ends with what comes instead.
            remote.lost, remote.result, remote.why = True, NOT_FOUND, frozenset({"TASK_LOST", "SERVER_ERROR"})
            self.do(remote.over.set)
        elif how == "completed":
            self.do(remote.end, how, {"content": [], "n": self.made}, "COMPLETED")
        else:
            error = PeerError(-32000, "no") if how == "failed" else PeerError(-32800, "cancelled")
            self.do(remote.end, how, error, "SERVER_ERROR" if how == "failed" else "TASK_CANCELLED")
        if told and self.up:
            method = "notifications/tasks" if self.stateless else "notifications/tasks/status"
            self.do(self.peer.link.tell, method, {"taskId": remote.name, "status": remote.status})
        self.follow_up()

    @precondition(lambda self: self.up and self.at_work())
    @rule(number=which)
    def server_asks(self, number: int) -> None:
        remote = self.at_work()[number % len(self.at_work())]
        key, question = f"key{len(remote.asks)}", None
        remote.asks[key] = {"method": "elicitation/create", "params": FORM}
        remote.status = "input_required"
        before = {request.id for request in self.hub.inbox.select(RequestFilter())}
        if not self.stateless:
            related = {"_meta": {RELATED_TASK: {"taskId": remote.name}}}
            question = self.do(self.peer.link.ask, "elicitation/create", {**FORM, **related})
        self.rest(POLLED_S)
        (request,) = [r for r in self.hub.inbox.select(RequestFilter()) if r.id not in before]
        task_id = self.hub.calls.get(remote.call_id).task_id
        assert (request.call_id, request.task_id) == (remote.call_id, task_id)
        self.asked.append(Asked(request.id, remote, key, request.deadline or 0, question))
        self.follow_up()

    @precondition(lambda self: any(asked.open and asked.question for asked in self.asked))
    @rule(number=which)
    def server_takes_back(self, number: int) -> None:
        on_the_wire = [asked for asked in self.asked if asked.open and asked.question]
        asked = on_the_wire[number % len(on_the_wire)]
        self.do(asked.question.withdraw)
        self.follow_up()
        assert not asked.open

    # What people do

    @precondition(lambda self: any(asked.open for asked in self.asked))
    @rule(number=which, yes=st.booleans())
    def somebody_answers(self, number: int, yes: bool) -> None:
        open_ones = [asked for asked in self.asked if asked.open]
        asked = open_ones[number % len(open_ones)]
        given = Accept({"name": "x"}) if yes else Decline()
        self.run(self.hub.inbox.answer(asked.id, given, "me", answer_id=None, claim_id=None))
        asked.answer = {"action": "accept", "content": {"name": "x"}} if yes else {"action": "decline"}
        self.follow_up()

    # What happens around them

    @rule(seconds=st.sampled_from([1, 30, 100, 310]))
    def time_passes(self, seconds: int) -> None:
        self.follow_up(seconds + POLLED_S)

    @precondition(lambda self: self.up)
    @rule(away=st.booleans())
    def connection_is_lost(self, away: bool) -> None:
        self.peer.always = UpstreamError(REFUSED) if away else None
        self.up = False
        self.do(self.peer.link.lose, LOST)
        self.follow_up(RECONNECT_S) if away else self.rest(RECONNECT_S)
        self.up = not away
        self.follow_up()

    @precondition(lambda self: not self.up)
    @rule()
    def connect(self) -> None:
        self.peer.always = None
        self.run(self.hub.servers.connect("one"))
        self.rest(RECONNECT_S)
        self.up = True
        self.follow_up()

    @rule()
    def disconnect(self) -> None:
        for remote in self.going_on():
            remote.why = frozenset({"SERVER_DISCONNECTED"})
        self.run(self.hub.servers.disconnect("one"))
        self.up = False
        self.follow_up()
        assert not self.going_on()

    @rule(killed=st.booleans(), away_s=st.sampled_from([0, 30, 500]))
    def restart(self, killed: bool, away_s: int) -> None:
        self.up = False
        self.stop(killed=killed)
        self.rest(away_s)
        self.start()
        self.follow()
        self.rest(RECONNECT_S)
        self.up = self.hub.servers.get("one").wanted and self.peer.always is None
        self.follow_up()

    # What must hold

    @invariant()
    def what_has_ended_stays_so(self) -> None:
        if not hasattr(self, "remotes"):
            return
        for remote in self.remotes.values():
            call = self.hub.calls.get(remote.call_id)
            assert remote.ended in (None, (call, self.hub.tasks.get(call.task_id or "")))
        assert self.seen.records == self.records()
        calls = self.hub.calls
        assert len(calls.exchange.client_tasks._active_tasks) <= len(self.going_on()), (
            "a task is followed after its end"
        )
        assert calls._queues["one"].calls.keys() == {remote.call_id for remote in self.going_on()}

    @invariant()
    def answers_arrive_as_they_were_given(self) -> None:
        if not hasattr(self, "remotes"):
            return
        for asked in self.asked:
            record = self.hub.inbox.get(asked.id)
            assert (record.state is RequestState.OPEN) is asked.open
            got = asked.question.reply if asked.question is not None else asked.remote.answers.get(asked.key)
            if got is not None:
                assert asked.answer == {key: value for key, value in got.items() if key != "_meta"}
            if record.delivery is Delivery.DELIVERED:
                assert got is not None
            elif asked.answer is not None and self.up and not asked.remote.ended:
                assert record.delivery is Delivery.FAILED
                assert asked.question is not None, "an answer that outlives its connection was not delivered"


TestClientTasksModel = ClientTasksModel.TestCase
TestClientTasksModel.settings = bounded(0.25, 25)
