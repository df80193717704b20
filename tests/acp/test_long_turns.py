"""An hour's turn of a coding agent behind a hub, in virtual time: hub, bridge and agent are in one loop."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hubbub_acp.options import AcpOptions
from hubbub_acp.program import serve
from hubbub_cli.machine.agent_server import OPTIONS
from hubbub_local.stdio import read_lines
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import RequestState
from hubbubd.upstream.ports import Era

from ..runtime.conftest import World, question, server, spec, until, world
from ..runtime.peer import Outcome, Sent, never
from ..runtime.virtual_time import VirtualTimeLoop
from .conftest import STATELESS, Host

__all__ = ["world"]

WORK_S = 1200.0
"""How long the agent works before each thing that it asks, and before it ends."""

THOUGHT_S = 60.0
"""How long a person thinks about an answer."""

CHOICES = [
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


class InlineLoop(VirtualTimeLoop):
    """Virtual time in which what a thread would do is done at once."""

    def run_in_executor(self, *args: Any) -> Any:
        """Carry it out, and return a future that is done."""
        _executor, work, *given = args
        future = self.create_future()
        future.set_result(work(*given))
        return future


class SlowAgent:
    """A coding agent in the test's loop: it works, asks, works, asks, and works again."""

    def __init__(self) -> None:
        source, self.stdin = os.pipe()
        self.stdout, self._output = os.pipe()
        self._source = source
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._tasks = [asyncio.create_task(self._read())]

    async def _read(self) -> None:
        async for line in read_lines(self._source, 1 << 20):
            assert isinstance(line, bytes)
            message = json.loads(line)
            if "method" not in message:
                self._answers[message["id"]].set_result(message["result"]["outcome"])
            elif message["method"] == "session/prompt":
                self._tasks.append(asyncio.create_task(self._work(message["id"])))
            else:
                self._send(id=message["id"], result={"protocolVersion": 1, "sessionId": "S"})

    async def _work(self, request_id: int) -> None:
        chosen: list[str] = []
        for number, kind in enumerate(("edit", "execute")):
            await asyncio.sleep(WORK_S)
            self._answers[number] = asyncio.get_running_loop().create_future()
            call = {"toolCallId": f"call-{number}", "title": f"Step {number}", "kind": kind}
            params = {"sessionId": "S", "toolCall": call, "options": CHOICES}
            self._send(id=number, method="session/request_permission", params=params)
            chosen.append((await self._answers[number])["optionId"])
        await asyncio.sleep(WORK_S)
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": " ".join(chosen)}}
        self._send(method="session/update", params={"sessionId": "S", "update": update})
        self._send(id=request_id, result={"stopReason": "end_turn"})

    def _send(self, **message: Any) -> None:
        os.write(self._output, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def describe_end(self) -> str:
        """It does not end."""
        return ""

    def read_stderr_tail(self) -> str:
        """It writes nothing."""
        return ""

    async def stop(self) -> None:
        """End it."""
        for descriptor in (self.stdin, self._output):
            os.close(descriptor)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for descriptor in (self._source, self.stdout):
            os.close(descriptor)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """A loop of its own for each test, whose time is virtual."""
    return "asyncio", {"loop_factory": InlineLoop}


@asynccontextmanager
async def bridged(world: World) -> AsyncGenerator[None]:
    """The hub's server `one` is a bridge with a slow agent."""
    stdin, to_bridge = os.pipe()
    from_bridge, stdout = os.pipe()
    host = Host(STATELESS, from_bridge, to_bridge)

    async def start_agent(_command: Sequence[str]) -> SlowAgent:
        return SlowAgent()

    async def forward(sent: Sent) -> Outcome:
        response = await host.begin(sent.method, **sent.params)[1]
        return response["result"]

    options = AcpOptions(command=("agent",), name="coder", version="1")
    reading = asyncio.create_task(host.read())
    serving = asyncio.create_task(serve(options, stdin, stdout, start_agent=start_agent))
    world.peer.era, world.peer.behaviour, world.peer.listing = Era.STATELESS, forward, forward
    world.peer.capabilities = (await host.begin("server/discover")[1])["result"]["capabilities"]
    try:
        yield
    finally:
        world.peer.behaviour = world.peer.listing = never
        host.leave()
        await serving
        os.close(stdin)
        os.close(stdout)
        await reading


async def test_an_hours_turn_is_a_task_whose_questions_two_people_answer(world: World, tmp_path: Path) -> None:
    arguments = {"prompt": "work for an hour", "cwd": str(tmp_path)}
    params = json.dumps({"name": "start", "arguments": arguments}).encode()
    async with bridged(world), world.hub(server(**OPTIONS)) as hub:
        await until(lambda: hub.catalog.entries("one/tool"))
        began = asyncio.get_running_loop().time()
        call = await hub.calls.start(spec(params=params, as_task=True), "carol")
        for person, decision in (("ada", "once"), ("bob", "no")):
            asked = await question(hub)
            assert asked.call_id == call.id
            await asyncio.sleep(THOUGHT_S)
            given = Accept({"decision": decision})
            await hub.inbox.answer(asked.id, given, person, answer_id=None, claim_id=None)
        await until(lambda: hub.calls.get(call.id).state.ended)
        ended = hub.calls.get(call.id)
        assert ended.state is CallState.COMPLETED
        assert json.loads(ended.result or b"")["structuredContent"]["text"] == "once no"
        assert asyncio.get_running_loop().time() - began >= 3 * WORK_S + 2 * THOUGHT_S
        answered = hub.inbox.select(RequestFilter(states=frozenset({RequestState.ANSWERED})))
        assert {request.answered_by for request in answered} == {"ada", "bob"}
