"""Any story that workers, people, servers, time, the store and the hub's own ends make of work."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from hubbubd.config import ServerConfig
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept, Text
from hubbubd.core.inbox.request_states import PendingRequest, RequestKind, RequestState
from hubbubd.errors import HubError
from hubbubd.runtime.inbox.work import RETRY_S

from .agents import Agent
from .conftest import FORM, SAMPLING, open_requests, server
from .model import HubModel, bounded
from .peer import Question

ANSWERS = {RequestKind.ELICITATION_FORM: Accept({"name": "x"}), RequestKind.SAMPLING: Text("x")}
LONG_MS = 10**9
QUIET_S = 3 * RETRY_S
"""By then everything that follows from a change has happened, over a failed attempt or two."""

MOST_MEMBERS = 4
which = st.integers(0, 30)
names = st.sampled_from(["one", "two"])


@dataclass(eq=False)
class Member:
    """A worker, as its owner knows it."""

    agent: Agent
    chosen: RequestFilter
    capacity: int
    stream: asyncio.Task[None]
    # How often it had been given each request that it skipped.
    skipped: dict[str, int] = field(default_factory=dict)


# What is with a worker, and whether the store has failed often enough, follows from how fast the store's own thread is:
# a precondition that asked for it would have the same story told differently when it is tried again.


class WorkModel(HubModel):
    """Requests with deadlines (`two`) and without, and workers that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Member] = []
        self.number = 0
        self.questions: list[Question] = []
        self.persons: dict[str, str] = {}

    def servers(self) -> list[ServerConfig]:
        patient = {"auto_reject_on_timeout": False, "call_max_s": 10**7, "ping_interval_s": 0}
        return [server(**patient), server("two", answer_timeout_s=200, ping_interval_s=0)]

    @initialize(few=st.integers(1, 2), many=st.integers(1, 3), count=st.integers(0, 5))
    def begin(self, few: int, many: int, count: int) -> None:
        """Most stories worth telling have workers with something to do, and less room than there is to do."""
        self.start()
        self.two_join_who_may_have_the_same(few, many)
        for _ in range(count):
            self.questions.append(self.do(self.world.peers["one"].link.ask, "elicitation/create", FORM))
        self.rest()

    def open(self) -> list[PendingRequest]:
        return self.do(open_requests, self.hub)

    # What happens

    @rule(name=names, sampling=st.booleans(), task=st.booleans(), count=st.integers(1, 4))
    def ask(self, name: str, sampling: bool, task: bool, count: int) -> None:
        method, params = ("sampling/createMessage", SAMPLING) if sampling else ("elicitation/create", FORM)
        more: dict[str, Any] = {"task": {"ttl": LONG_MS}} if task else {}
        link = self.world.peers[name].link
        for _ in range(count):
            self.questions.append(self.do(lambda: link.ask(method, {**params, **more})))
        self.rest()

    @rule(index=which)
    @precondition(lambda self: self.questions)
    def take_back(self, index: int) -> None:
        self.do(self.questions.pop(index % len(self.questions)).withdraw)
        self.rest()

    @rule(capacity=st.integers(1, 3), only=st.sampled_from(["", "one"]), forms=st.booleans())
    @precondition(lambda self: len(self.members) < MOST_MEMBERS)
    def join(self, capacity: int, only: str, forms: bool) -> None:
        self.enter(capacity, only, forms)
        self.rest()

    @rule(few=st.integers(1, 2), many=st.integers(1, 3))
    @precondition(lambda self: len(self.members) <= MOST_MEMBERS - 2)
    def two_join_who_may_have_the_same(self, few: int, many: int) -> None:
        """One for all that one server asks, one for the forms of all servers."""
        self.enter(few, "one", forms=False)
        self.enter(many, "", forms=True)
        self.rest()

    @rule(index=which, at_once=st.booleans())
    @precondition(lambda self: self.members)
    def leave(self, index: int, at_once: bool) -> None:
        self.dies(self.members[index % len(self.members)])
        self.rest(0.0 if at_once else 0.25)

    @rule(index=which, at_once=st.booleans())
    def one_with_something_to_do_dies(self, index: int, at_once: bool) -> None:
        if not (held := self.held()):
            return
        self.dies(held[index % len(held)][0])
        self.rest(0.0 if at_once else 0.25)

    @rule(index=which, count=st.integers(1, 3), turns=st.integers(0, 30))
    @precondition(lambda self: self.members)
    def one_dies_while_it_is_given_something(self, index: int, count: int, turns: int) -> None:
        member, link = self.members[index % len(self.members)], self.world.peers["one"].link

        async def meanwhile() -> None:
            self.questions.extend(link.ask("elicitation/create", FORM) for _ in range(count))
            for _ in range(turns):
                await asyncio.sleep(0)
            member.agent.scope.cancel()

        self.members.remove(member)
        self.run(meanwhile())
        self.rest()

    @rule(index=which, request=which)
    def skip(self, index: int, request: int) -> None:
        if not (held := self.held()):
            return
        member, request_id = held[index % len(held)]
        assert member.agent.worker is not None
        member.skipped[request_id] = member.agent.given.count(request_id)
        self.do(self.hub.work.skip, member.agent.worker, request_id)
        self.rest()

    @rule(index=which)
    def worker_answers(self, index: int) -> None:
        if self.blocked or not (held := self.held()):
            return
        member, request_id = held[index % len(held)]
        request = member.agent.mine[request_id]
        answered = self.hub.inbox.answer(
            request_id, ANSWERS[request.kind], member.agent.name, answer_id=None, claim_id=request.claim.id
        )
        try:
            self.run(answered)
        except HubError:
            # Its server may have withdrawn it since its worker read it.
            now = self.hub.inbox.get(request_id)
            claim_id = now.claim and now.claim.id
            assert now.state is not RequestState.OPEN or claim_id != request.claim.id, "it is the worker's to answer"
        self.rest()

    @rule(index=which, ttl_s=st.integers(1, 5000))
    def person_claims(self, index: int, ttl_s: int) -> None:
        if self.blocked or not (there := self.open()):
            return
        request = there[index % len(there)]
        try:
            claim = self.run(self.hub.inbox.claim(request.id, "ann", ttl_s)).claim
        except HubError:
            # It may have gone to a worker since it was read.
            now = self.hub.inbox.get(request.id)
            assert now.state is not RequestState.OPEN or now.claim is not None, "it is free, and could not be claimed"
            return
        assert claim.by == "ann"
        self.persons[request.id] = claim.id
        self.rest()

    @rule(answers=st.booleans())
    def person_ends(self, answers: bool) -> None:
        if self.blocked or not self.persons:
            return
        request_id, claim_id = self.persons.popitem()
        request = self.hub.inbox.get(request_id)
        try:
            if answers:
                given = ANSWERS[request.kind]
                self.run(self.hub.inbox.answer(request_id, given, "ann", answer_id=None, claim_id=claim_id))
            else:
                self.run(self.hub.inbox.release(request_id, claim_id))
        except HubError:
            assert request.claim is None or request.claim.id != claim_id
        self.rest()

    @rule(seconds=st.sampled_from([1, 150, 250, 3550, 8000]))
    def time_passes(self, seconds: int) -> None:
        self.rest(seconds)

    @rule(failures=st.sampled_from([1, 3, 10**9]))
    def store_fails(self, failures: int) -> None:
        self.world.store.failures = failures

    @rule()
    def store_is_back(self) -> None:
        self.world.store.failures = 0
        self.rest(QUIET_S)

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        if self.blocked:
            self.store_is_back()
        self.stop(killed=killed)
        assert all(member.stream.done() for member in self.members)
        assert all(member.stream.exception() is None for member in self.members)
        self.members.clear()
        self.questions.clear()
        self.start()
        self.rest(QUIET_S)

    # How

    def enter(self, capacity: int, only: str, forms: bool) -> None:
        kinds = frozenset({RequestKind.ELICITATION_FORM}) if forms else frozenset[RequestKind]()
        chosen = RequestFilter(server=only, kinds=kinds)
        self.number += 1
        agent = self.do(Agent, f"agent {self.number}")
        stream = self.do(lambda: asyncio.create_task(agent.run(self.hub, chosen, capacity)))
        self.members.append(Member(agent, chosen, capacity, stream))

    def dies(self, member: Member) -> None:
        self.members.remove(member)
        self.do(member.agent.scope.cancel)

    # What holds

    def held(self) -> list[tuple[Member, str]]:
        return [(member, request_id) for member in self.members for request_id in member.agent.mine]

    @invariant()
    def nobody_has_more_or_other_than_it_asked_for(self) -> None:
        """At any moment, whatever is under way."""
        for member in self.members:
            assert len(member.agent.mine) <= member.capacity
            for request in member.agent.mine.values():
                assert member.chosen.matches(request), "its filter lets this not through"
            for request_id, times in member.skipped.items():
                assert member.agent.given.count(request_id) == times, "it did not want this"

    @rule()
    def each_open_request_is_with_one_worker_or_with_none_that_could_have_it(self) -> None:
        if self.blocked:
            return
        self.rest(QUIET_S)
        held = dict[str, Member]()
        for member, request_id in self.held():
            assert request_id not in held, "two holders"
            held[request_id] = member
            assert len(member.agent.mine) <= member.capacity
            ours, claim = member.agent.mine[request_id].claim, self.hub.inbox.get(request_id).claim
            assert claim is not None, "a worker believes to have what is free"
            assert (claim.id, claim.by, claim.worker) == (ours.id, member.agent.name, True)
        for request in self.open():
            if request.claim is not None and request.claim.worker:
                assert request.id in held, "nobody knows of this claim"
            elif request.claim is None:
                able = [m.agent.name for m in self.members if self.could_have(m, request)]
                assert not able, "it waits, and could be given"

    @staticmethod
    def could_have(member: Member, request: PendingRequest) -> bool:
        room = len(member.agent.mine) < member.capacity
        return room and member.chosen.matches(request) and request.id not in member.skipped

    def teardown(self) -> None:
        if self.life is not None:
            self.world.store.failures = 0
            self.rest(QUIET_S)
            self.each_open_request_is_with_one_worker_or_with_none_that_could_have_it()
        super().teardown()


TestWorkModel = WorkModel.TestCase
TestWorkModel.settings = bounded(0.2, 30)
