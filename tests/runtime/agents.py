"""Workers of the tests, which say what they have heard."""

from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.errors import Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.inbox import Assigned, AssignmentOver, Worker

from .conftest import FORM, World, open_requests, until

YES = Accept({"name": "x"})
ANY = RequestFilter()


@dataclass
class Agent:
    """A worker's stream, and what it has heard."""

    name: str
    worker: Worker | None = None
    mine: dict[str, PendingRequest] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    over: list[tuple[str, RequestState]] = field(default_factory=list)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: BaseException | None = None

    async def run(self, hub: Hub, chosen: RequestFilter, capacity: int) -> None:
        try:
            with self.scope, hub.work.join(self.name, chosen, capacity) as self.worker:
                async for step in hub.work.steps(self.worker):
                    match step:
                        case Assigned(request):
                            self.mine[request.id] = request
                            self.given.append(request.id)
                        case AssignmentOver(id=request_id, state=state):
                            del self.mine[request_id]
                            self.over.append((request_id, state))
                        case None:
                            pass
        except Unavailable as exc:
            self.ended = exc

    async def answer(self, hub: Hub, request_id: str) -> PendingRequest:
        claim = self.mine[request_id].claim
        return await hub.inbox.answer(request_id, YES, self.name, answer_id=None, claim_id=claim and claim.id)


async def join(tasks: TaskGroup, hub: Hub, name: str, capacity: int = 1, chosen: RequestFilter = ANY) -> Agent:
    """A worker whose stream is open."""
    agent = Agent(name)
    tasks.start_soon(agent.run, hub, chosen, capacity)
    await until(lambda: agent.worker is not None)
    return agent


async def ask(world: World, hub: Hub, count: int = 1, *, params: dict = FORM, method: str = "elicitation/create"):
    """Has the server ask so many questions that belong to no call."""
    before = len(open_requests(hub))
    for _ in range(count):
        world.peer.link.ask(method, params)
    await until(lambda: len(open_requests(hub)) == before + count)
