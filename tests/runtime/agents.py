"""Workers of the tests, which say what they have heard."""

from dataclasses import dataclass, field

import anyio

from hubbubd.core.filters import RequestFilter
from hubbubd.core.forms import Accept
from hubbubd.core.inbox import PendingRequest, RequestState
from hubbubd.errors import Unavailable
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.inbox import Assigned, Over, Worker

YES = Accept({"name": "x"})


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
                        case Over(id=request_id, state=state):
                            del self.mine[request_id]
                            self.over.append((request_id, state))
                        case None:
                            pass
        except Unavailable as exc:
            self.ended = exc

    async def answer(self, hub: Hub, request_id: str) -> PendingRequest:
        claim = self.mine[request_id].claim
        return await hub.inbox.answer(request_id, YES, self.name, answer_id=None, claim_id=claim and claim.id)
