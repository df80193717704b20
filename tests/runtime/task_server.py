"""A scripted server that carries out calls as tasks, in either family of revisions."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import TaskFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.core.tasks import RELATED_TASK, Task, TaskRole
from hubbubd.errors import PeerError
from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from .conftest import World, spec, until
from .peer import Outcome, Sent

ANSWER = Accept({"name": "Ada"})
RESULT: Outcome = {"content": [{"type": "text", "text": "done"}]}
SUPPORT = {"may": "optional", "must": "required", "not": "forbidden", "silent": None}
META = {"_meta": {RELATED_TASK: {"taskId": "T"}}}
ERAS = pytest.mark.parametrize("era", list(Era))


class TaskServer:
    """A server's tasks: one with the id `T`, in the state that the test gives it."""

    def __init__(self, world: World, era: Era = Era.HANDSHAKE) -> None:
        self.peer = world.peer
        self.era = era
        self.stateless = era is Era.STATELESS
        self.status = "working"
        self.more: dict[str, Any] = {}
        self.interval_ms: int | None = 1000
        self.result: Outcome | PeerError = RESULT
        self.ended = anyio.Event()
        self.updates: list[dict[str, Any]] = []
        self.cancelling: PeerError | None = None
        self.lost = False
        self.creating: Callable[[], Any] | None = None
        self.peer.era = era
        self.peer.behaviour = self.serve
        self.peer.listing = self.listing
        tools = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
        extension = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        self.peer.capabilities = {"tools": {}, **(extension if self.stateless else tools)}

    async def listing(self, sent: Sent) -> Outcome:
        tools = [{"name": n, "inputSchema": {}, "execution": {"taskSupport": s}} for n, s in SUPPORT.items() if s]
        tools.append({"name": "silent", "inputSchema": {}})
        return {"tools": tools} if sent.method == "tools/list" else {}

    def wire(self) -> Outcome:
        names = ("ttlMs", "pollIntervalMs") if self.stateless else ("ttl", "pollInterval")
        return {"taskId": "T", "status": self.status, names[0]: None, names[1]: self.interval_ms, **self.more}

    def end(self, status: str = "completed", **more: Any) -> None:
        """The server ends the task."""
        self.status, self.more = status, more
        self.ended.set()

    async def serve(self, sent: Sent) -> Outcome:
        if sent.method != "tools/call" and self.lost:
            raise PeerError(-32602, "Task not found")
        match sent.method:
            case "tools/call" if self.creating is not None:
                return await self.creating()
            case "tools/call" if self.stateless:
                return {"resultType": "task", **self.wire()}
            case "tools/call" if "task" in sent.params:
                return {"task": self.wire()}
            case "tasks/get":
                return self.wire()
            case "tasks/result":
                await self.ended.wait()
                if isinstance(self.result, PeerError):
                    raise self.result
                return self.result
            case "tasks/list":
                return {"tasks": [self.wire()]}
            case "tasks/update":
                self.updates.append(sent.params["inputResponses"])
                return {}
            case "tasks/cancel":
                if self.cancelling is not None:
                    raise self.cancelling
                if not self.stateless:
                    self.end("cancelled")
                return {} if self.stateless else self.wire()
            case _:
                return {"echo": sent.params}

    def asked(self, method: str) -> list[float]:
        """When the hub has asked for this."""
        return [sent.at for sent in self.peer.sent if sent.method == method]


def the_task(hub: Hub) -> Task:
    (task,) = hub.tasks.select(TaskFilter(role=TaskRole.CLIENT))
    return task


async def started(hub: Hub, tool: str = "may", **options: Any) -> Call:
    """A call that has become a task."""
    await until(lambda: hub.catalog.entries("one/tool"))
    call = await hub.calls.start(spec(tool, as_task=True, **options), "me")
    await until(lambda: hub.calls.get(call.id).task_id)
    return call


async def ended(hub: Hub, call: Call) -> Call:
    await until(lambda: hub.calls.get(call.id).state.ended)
    return hub.calls.get(call.id)


async def answer(hub: Hub, request: PendingRequest, given: Any = ANSWER) -> None:
    await hub.inbox.answer(request.id, given, "me", answer_id=None, claim_id=None)
