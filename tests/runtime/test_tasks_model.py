"""Any story that two servers make of the tasks which the hub holds for them, beside a plain model of MCP's rules."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hubbubd.config import ServerConfig
from hubbubd.core.filters import RequestFilter, TaskFilter
from hubbubd.core.inbox.forms import Accept, ClientAnswer, Decline, Reject, Text
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.core.tasks import Task
from hubbubd.errors import HubError, NotFound

from ..raising import raising
from .conftest import FORM, SAMPLING, server
from .model import SETTLE_S, HubModel, View, bounded
from .peer import LOST, Outcome, PeerLink, Question

MOST_OPEN = 3
GRACE_S = 60.0
DEFAULT_TTL_S = 3600.0
RECONNECT_S = 3.0
EVERYTHING = TaskFilter()

INVALID = -32602
INTERNAL = -32603
CANCELLED = -32800
METHODS = {"form": ("elicitation/create", FORM), "sampling": ("sampling/createMessage", SAMPLING)}
TTLS = {1: 300.0, 300_000: 300.0, 600_000: 600.0, None: DEFAULT_TTL_S, "soon": DEFAULT_TTL_S}
NOBODY = "Nobody answered in time"

names = st.sampled_from(["one", "two"])
which = st.integers(0, 30)


@dataclass(eq=False)
class Held:
    """What the model knows of one task that the hub holds."""

    id: str
    server: str
    kind: str
    created: float
    ttl_s: float
    request_id: str
    status: str = "working"
    ended_at: float = 0.0
    outcome: Outcome | int = CANCELLED
    message: str | None = None
    waiting: list[Question] = field(default_factory=list[Question])

    @property
    def open(self) -> bool:
        return self.status == "working"

    @property
    def deadline(self) -> float:
        return self.created + self.ttl_s

    @property
    def forgotten_at(self) -> float:
        return float("inf") if self.open else max(self.deadline, self.ended_at + GRACE_S)


class TasksModel(HubModel):
    """Two servers that make, fetch, cancel and list their tasks, and people who answer."""

    version = 1

    def servers(self) -> list[ServerConfig]:
        options = {"retries": -1, "backoff_s": (1,), "backoff_max_s": 1, "ping_interval_s": 0}
        return [server("one", args=(f"--version={self.version}",), **options), server("two", **options)]

    @initialize()
    def begin(self) -> None:
        self.tasks: dict[str, Held] = {}
        self.gone: list[Held] = []
        self.told: list[tuple[str, str]] = []
        self.perhaps: list[tuple[str, str]] = []
        self.up = {"one", "two"}
        self.able_since = 0.0
        self.seen = View[Task]()
        self.world.settings = {"receiver_tasks_per_server": MOST_OPEN}
        self.start()
        self.follow()

    def follow(self) -> None:
        self.do(lambda: asyncio.create_task(self.seen.follow(self.hub.tasks.watch(EVERYTHING, self.seen.token))))

    # What happens by itself

    def pass_on(self, seconds: float = SETTLE_S) -> None:
        """Time passes, and the model follows."""
        self.rest(seconds)
        times = [t for held in self.tasks.values() for t in (held.deadline, held.forgotten_at)]
        if any(0 <= self.now() - at < 0.01 for at in times):
            self.rest(0.05)  # what is due at this very moment has its turn, too
        self.catch_up_with(self.seen, self.records)
        now = self.now()
        for held in list(self.tasks.values()):
            if held.open and now >= held.deadline:
                nobody = {"action": "cancel"} if held.kind == "form" else -1
                self.end(held, max(held.deadline, self.able_since), nobody, NOBODY if nobody == -1 else None)
            if now >= held.forgotten_at:
                self.forget(held)

    def records(self) -> dict[str, Task]:
        return {task.id: task for task in self.hub.tasks.select(EVERYTHING)}

    def end(self, held: Held, at: float, outcome: Outcome | int, message: str | None = None) -> None:
        """A task ends with a result, or the code of an error; those who wait for it are notified."""
        assert held.open, "ended twice"
        held.status = "completed" if isinstance(outcome, dict) else "cancelled" if outcome == CANCELLED else "failed"
        held.ended_at, held.outcome, held.message = at, outcome, message
        # What ends while the server is being connected, at the start of a hub, may come too early for it.
        (self.told if held.server in self.up else self.perhaps).append((held.id, held.status))
        for question in held.waiting:
            self.got(question, held)
        held.waiting.clear()

    def forget(self, held: Held) -> None:
        self.gone.append(self.tasks.pop(held.id))

    def got(self, question: Question, held: Held) -> None:
        """The server has exactly what the task ended with."""
        if isinstance(held.outcome, dict):
            assert question.reply["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": held.id}
            assert {k: v for k, v in question.reply.items() if k != "_meta"} == held.outcome
        else:
            assert question.error.code == held.outcome

    # What servers do

    def link(self, name: str) -> PeerLink:
        return self.world.peers[name].link

    def ask(self, name: str, method: str, params: dict[str, Any]) -> Question:
        """Has a server ask, and gives the hub the time to answer."""
        asked = self.do(self.link(name).ask, method, params)
        self.rest()
        return asked

    def refused(self, asked: Question, code: int) -> None:
        assert asked.error.code == code

    def pick(self, number: int) -> Held:
        """A task of a server that is there; rarely one that is forgotten."""
        known = [held for held in [*self.gone[-2:], *self.tasks.values()] if held.server in self.up]
        return known[-1 - number % len(known)]

    def any_known(self) -> bool:
        return any(held.server in self.up for held in [*self.gone[-2:], *self.tasks.values()])

    @rule(name=names, kind=st.sampled_from(["form", "sampling"]), ttl=st.sampled_from([*TTLS]))
    def create(self, name: str, kind: str, ttl: int | str | None) -> None:
        if name not in self.up:
            return
        method, params = METHODS[kind]
        fits = sum(held.open for held in self.tasks.values() if held.server == name) < MOST_OPEN
        fits = fits and sum(held.server == name for held in self.tasks.values()) < 10 * MOST_OPEN
        asked = self.ask(name, method, {**params, "task": {"ttl": ttl}})
        if not fits:
            self.refused(asked, INTERNAL)
        else:
            wire = asked.reply["task"]
            assert (wire["status"], wire["ttl"]) == ("working", TTLS[ttl] * 1000)
            task = self.hub.tasks.get(wire["taskId"])
            held = Held(task.id, name, kind, task.created_at, TTLS[ttl], task.pending_ids[0])
            self.tasks[held.id] = held
        self.pass_on()

    @precondition(lambda self: self.any_known())
    @rule(number=which, stays=st.booleans())
    def fetch(self, number: int, stays: bool) -> None:
        held = self.pick(number)
        fetching = self.ask(held.server, "tasks/result", {"taskId": held.id})
        if held.id not in self.tasks:
            self.refused(fetching, INVALID)
        elif not held.open:
            self.got(fetching, held)
        else:
            assert not fetching.done.is_set()
            if stays:
                held.waiting.append(fetching)
            else:
                self.do(fetching.withdraw)
        self.pass_on()

    @precondition(lambda self: self.any_known())
    @rule(number=which, by=names)
    def server_cancels(self, number: int, by: str) -> None:
        held = self.pick(number)
        if by not in self.up:
            return
        at = self.now()
        cancelling = self.ask(by, "tasks/cancel", {"taskId": held.id})
        if by == held.server and held.id in self.tasks and held.open:
            assert (cancelling.reply["taskId"], cancelling.reply["status"]) == (held.id, "cancelled")
            self.end(held, at, CANCELLED, "cancelled by the server")
        else:
            self.refused(cancelling, INVALID)
        self.pass_on()

    # What people do

    @precondition(lambda self: self.any_known())
    @rule(number=which)
    def somebody_cancels(self, number: int) -> None:
        held = self.pick(number)
        reason = "TASK_FINISHED" if held.id in self.tasks else "TASK_NOT_FOUND"
        if held.id in self.tasks and held.open:
            assert self.run(self.hub.tasks.cancel(held.id)).status == "cancelled"
            self.rest()
            self.end(held, self.now() - SETTLE_S, CANCELLED, "cancelled on request")
        else:
            with raising(HubError, reason):
                self.run(self.hub.tasks.cancel(held.id))
        self.pass_on()

    @precondition(lambda self: any(held.open for held in self.tasks.values()))
    @rule(number=which, yes=st.booleans())
    def somebody_answers(self, number: int, yes: bool) -> None:
        open_ones = [held for held in self.tasks.values() if held.open]
        held = open_ones[-1 - number % len(open_ones)]
        given: ClientAnswer
        if held.kind == "form":
            accepted = {"action": "accept", "content": {"name": "x"}}
            given, outcome = (Accept({"name": "x"}), accepted) if yes else (Decline(), {"action": "decline"})
        elif yes:
            content = {"type": "text", "text": "hi"}
            given = Text("hi")
            outcome = {"role": "assistant", "content": content, "model": "human", "stopReason": "endTurn"}
        else:
            given, outcome = Reject("not now"), -1
        at = self.now()
        self.run(self.hub.inbox.answer(held.request_id, given, "me", answer_id=None, claim_id=None))
        self.rest()
        self.end(held, at, outcome, "not now" if outcome == -1 else None)
        self.pass_on()

    # What happens around them

    @rule(seconds=st.sampled_from([1, 20, 59, 100, 301, 3700]))
    def time_passes(self, seconds: int) -> None:
        self.pass_on(seconds)

    def cut(self, *servers: str) -> None:
        for held in self.tasks.values():
            if held.server in servers:
                held.waiting.clear()

    @rule(name=names)
    def connection_is_lost(self, name: str) -> None:
        if name not in self.up:
            return
        self.cut(name)
        self.up.discard(name)
        self.do(self.link(name).lose, LOST)
        self.pass_on(RECONNECT_S)
        self.up.add(name)

    @rule(name=names)
    def disconnect(self, name: str) -> None:
        self.cut(name)
        self.run(self.hub.servers.disconnect(name))
        self.up.discard(name)
        self.clear(name)
        self.pass_on()

    def clear(self, name: str) -> None:
        """All that the hub held for a server is gone."""
        for held in [held for held in self.tasks.values() if held.server == name]:
            if held.open:
                self.end(held, self.now(), CANCELLED)
            self.forget(held)

    @rule(name=names)
    def connect(self, name: str) -> None:
        self.run(self.hub.servers.connect(name))
        self.pass_on(RECONNECT_S)
        self.up.add(name)

    @rule(killed=st.booleans(), away_s=st.sampled_from([0, 30, 500]), another=st.booleans())
    def restart(self, killed: bool, away_s: int, another: bool) -> None:
        self.cut("one", "two")
        self.up.clear()
        self.stop(killed=killed)
        self.rest(away_s)
        self.version += another
        if another:
            self.clear("one")
        self.start()
        self.able_since = self.now() - SETTLE_S
        self.follow()
        self.pass_on()
        self.up = {name for name in ("one", "two") if self.hub.servers.get(name).wanted}
        self.pass_on(RECONNECT_S)

    # What must hold

    @invariant()
    def the_hub_holds_what_it_should(self) -> None:
        if not hasattr(self, "tasks"):
            return
        records = self.records()
        assert records.keys() == self.tasks.keys()
        assert self.seen.records == records
        for held in self.tasks.values():
            task, request = records[held.id], self.request(held)
            assert (task.status, task.status_message) == (held.status, held.message)
            if request is not None:
                assert (request.state is RequestState.OPEN) is held.open
        questions = self.hub.inbox.select(RequestFilter(states=frozenset({RequestState.OPEN})))
        assert {request.task_id for request in questions} == {held.id for held in self.tasks.values() if held.open}

    def request(self, held: Held) -> PendingRequest | None:
        try:
            return self.hub.inbox.get(held.request_id)
        except NotFound:
            return None

    @invariant()
    def each_server_sees_its_own_and_no_others(self) -> None:
        if not hasattr(self, "tasks"):
            return
        for name in self.up:
            listed = self.run(self.link(name).asked("tasks/list", {}))["tasks"]
            own = [held for held in self.tasks.values() if held.server == name]
            assert [wire["taskId"] for wire in listed] == [held.id for held in sorted(own, key=lambda h: h.created)]
            for wire in listed:
                held = self.tasks[wire["taskId"]]
                assert (wire["status"], wire["ttl"]) == (held.status, held.ttl_s * 1000)
                assert self.run(self.link(name).asked("tasks/get", {"taskId": held.id})) == wire

    @invariant()
    def servers_that_are_there_were_told_of_each_end(self) -> None:
        if not hasattr(self, "tasks"):
            return
        links = [*self.world.peers["one"].links, *self.world.peers["two"].links]
        notified = [
            params for link in links for method, params in link.notified if method.startswith("notifications/t")
        ]
        told = [(params["taskId"], params["status"]) for params in notified if params]
        assert len(told) == len(set(told)), "told twice"
        assert set(self.told) <= set(told) <= {*self.told, *self.perhaps}


TestTasksModel = TasksModel.TestCase
TestTasksModel.settings = bounded(0.25, 30)
