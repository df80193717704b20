"""The script of a model that makes the calls of the cases one after the other, and the people who decide about them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from hubbub_client import PendingRequest

from ...e2e.conftest import RunningHub
from .cases import ASK, FETCH, Case
from .dialects import Action, Say, Turn, Use

CALL = re.compile(r"call_id (\w+)")


@dataclass
class Play:
    """One run of the script."""

    hub: RunningHub
    cases: Sequence[Case]
    host_is_asked: bool = False
    """Whether people leave a call to the program first."""
    host: str = ""
    """The program, as it says itself."""
    heard: dict[str, str] = field(default_factory=dict[str, str])
    """By case, what the model saw last."""
    at_first: dict[str, str] = field(default_factory=dict[str, str])
    """By case that is decided late, what it saw before."""
    missing: set[str] = field(default_factory=set[str])
    """Tools that the program did not offer to its model."""
    unexpected: list[str] = field(default_factory=list[str])
    """What people were asked about though it belongs to no case."""
    by_itself: str = ""
    """What the program answered where it was asked first, though nobody was there."""

    def __post_init__(self) -> None:
        self._told = anyio.Event()
        self._decided = {case.name: anyio.Event() for case in self.cases}

    async def act(self, turn: Turn) -> Action:
        """What the model does in a turn: the next call, and when all are made, it says what it has heard."""
        if not turn.tools:  # a title for the conversation, or the like
            return Say("nothing to do")
        left = list(turn.results)
        for case in self.cases:
            if not left:
                return self._use(turn, case.tool, case.arguments)
            self.heard[case.name] = left.pop(0)
            if case.late:
                self.at_first[case.name] = self.heard[case.name]
                if not left:
                    return await self._come_back(turn, case)
                self.heard[case.name] = left.pop(0)
        return Say("\n".join(f"{name}: {text}" for name, text in self.heard.items()))

    async def decide(self) -> None:
        """Decide about each request as its case says, until this is cancelled."""
        async for event in self.hub.client.inbox.watch(states=["open"]):
            request = getattr(event, "record", None)
            if request is not None and request.id:
                await self._decide(request)

    async def _decide(self, request: PendingRequest) -> None:
        case = next((each for each in self.cases if _is_of(each, request)), None)
        if case is None or case.decide is None:
            self.unexpected.append(str(request.approval or request.kind))
            return
        if request.approval is not None:
            self.host = request.approval.caller.host
        if self.host_is_asked and request.approval is not None and not self._is_left_to_people(request):
            return
        if case.late:
            await self._told.wait()
        if not self._decided[case.name].is_set():
            await case.decide(request)
            self._decided[case.name].set()

    def _is_left_to_people(self, request: PendingRequest) -> bool:
        """Whether the program has answered by itself, or is not asked as it did so before."""
        answered = [moment.via or "" for moment in request.moments if moment.what == "not_counted"]
        self.by_itself = self.by_itself or "".join(answered[:1])
        return bool(answered or any(host.why_not for host in request.hosts)) and request.claim is None

    def _use(self, turn: Turn, tool: str, arguments: Mapping[str, Any]) -> Action:
        name = turn.find(tool)
        if name is None:
            self.missing.add(tool)
            return Say(f"there is no {tool}")
        return Use(name, arguments)

    async def _come_back(self, turn: Turn, case: Case) -> Action:
        """Once people have decided: fetch the result of the call of a ticket, or ask again, as the message says."""
        self._told.set()
        told = self.at_first[case.name]
        if case.late not in told:
            return Say(f"{case.name}: {told}")
        await self._decided[case.name].wait()
        if case.late != FETCH:
            return self._use(turn, case.tool, case.arguments)
        found = CALL.search(told)
        if found is None:
            return Say(f"no call_id: {told}")
        await self.hub.call(found[1])
        return self._use(turn, FETCH, {"call_id": found[1]})


def _is_of(case: Case, request: PendingRequest) -> bool:
    """Whether a request is about this case's call; programs add arguments of their own."""
    approval = request.approval
    if approval is None:
        return case.tool == ASK
    same = all(approval.arguments.get(name) == value for name, value in case.arguments.items())
    return same and case.tool.rpartition("__")[2] == approval.tool.name
