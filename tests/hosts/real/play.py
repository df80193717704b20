"""The script of a model that makes the calls of the cases one after the other, and the people who decide about them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from hubbub_client import ApprovalRequest, PendingRequest

from ...e2e.conftest import RunningHub
from .cases import FETCH, Case
from .dialects import Action, Say, Turn, Use

CALL = re.compile(r"call_id (\w+)")


@dataclass
class Play:
    """One run of the script."""

    hub: RunningHub
    cases: Sequence[Case]
    host: str = ""
    """The program, as it says itself."""
    heard: dict[str, str] = field(default_factory=dict[str, str])
    """By case, what the model was told last."""
    at_first: dict[str, str] = field(default_factory=dict[str, str])
    """By case that is decided late, what it was told before."""
    missing: set[str] = field(default_factory=set[str])
    """Tools that the program did not offer to its model."""
    unexpected: list[str] = field(default_factory=list[str])
    """What people were asked about though it belongs to no case."""

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
        approval = request.approval
        case = next((each for each in self.cases if approval is not None and _is_of(each, approval)), None)
        if approval is None or case is None or case.decide is None:
            self.unexpected.append(str(approval or request.kind))
            return
        self.host = approval.caller.host
        if case.late:
            await self._told.wait()
        if not self._decided[case.name].is_set():
            await case.decide(request)
            self._decided[case.name].set()

    def _use(self, turn: Turn, tool: str, arguments: Mapping[str, Any]) -> Action:
        name = turn.find(tool)
        if name is None:
            self.missing.add(tool)
            return Say(f"there is no {tool}")
        return Use(name, arguments)

    async def _come_back(self, turn: Turn, case: Case) -> Action:
        """Once people have decided: fetch the result of the call that a ticket names, or ask again, as one is told."""
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


def _is_of(case: Case, approval: ApprovalRequest) -> bool:
    """Whether a request is about this case's call; programs add arguments of their own."""
    given: Mapping[str, Any] = approval.arguments
    same = all(given.get(name) == value for name, value in case.arguments.items())
    return same and case.tool.rpartition("__")[2] == approval.tool.name
