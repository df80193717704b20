"""What happens to one server's question costs the same however many servers, people and questions there are.

Costs are counted, never timed: instructions of Python that ran, those of comprehensions among them.
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.runtime.hub import Hub

from .conftest import FORM, World, open_requests, server, settle, until

FEW, MANY = 4, 256
"""Servers that have a question open each."""

LOOP = str(Path(asyncio.__file__).parent)

TOOL = 4
"""One of the two numbers that Python keeps for nobody."""


async def instructions(work: Callable[[], Awaitable[object]]) -> int:
    """How many a piece of work takes, with all that follows at once; not those of the loop and its heap of timers."""
    with _monitored() if sys.version_info >= (3, 12) else _traced() as count:
        await work()
    return count.total()


@contextmanager
def _traced() -> Iterator[Counter[str]]:
    count = Counter[str]()

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        if frame.f_code.co_filename.startswith(LOOP):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count[event] += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


@contextmanager
def _monitored() -> Iterator[Counter[str]]:
    """By what Python has for it from 3.12 on: there, `f_trace_opcodes` leaves out those of a function's first call."""
    count = Counter[str]()
    tests, monitoring = threading.get_ident(), sys.monitoring

    def add(code: CodeType, _offset: int) -> object:
        if code.co_filename.startswith(LOOP):
            return monitoring.DISABLE
        count["opcode"] += threading.get_ident() == tests
        return None

    monitoring.use_tool_id(TOOL, "steps")
    monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, add)
    monitoring.set_events(TOOL, monitoring.events.INSTRUCTION)
    try:
        yield count
    finally:
        monitoring.set_events(TOOL, monitoring.events.NO_EVENTS)
        monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(TOOL)


async def _of_question(
    world: World, servers: int, work: Callable[[Hub, PendingRequest], Awaitable[object]], *, claimed: bool = True
) -> int:
    names = [f"s{number}" for number in range(servers)]
    # Pings come at random moments: one of 256 servers would be pinged while the step is counted.
    async with world.hub(*(server(name, ping_interval_s=0) for name in names)) as hub:
        await until(lambda: all(world.peers[name].links for name in names))
        for name in names:
            world.peers[name].link.ask("elicitation/create", FORM)
        await until(lambda: len(open_requests(hub)) == servers)
        for request in open_requests(hub)[1:] if claimed else ():
            await hub.inbox.claim(request.id, f"holder of {request.server}", 3600)
        await settle()
        (chosen, *_) = open_requests(hub)
        return await instructions(lambda: work(hub, chosen))


async def _answer(hub: Hub, request: PendingRequest) -> None:
    await hub.inbox.answer(request.id, Accept({"name": "x"}), "me", answer_id=None, claim_id=None)


async def _claim(hub: Hub, request: PendingRequest) -> None:
    await hub.inbox.claim(request.id, "me", 60)


async def _withdraw(hub: Hub, request: PendingRequest) -> None:
    hub.inbox.abandon(request.id, "nobody needs it")
    await settle(0.01)


@pytest.mark.parametrize("work", [_answer, _claim, _withdraw])
async def test_a_step_of_one_question_costs_the_same_beside_many_servers(
    world: World, work: Callable[[Hub, PendingRequest], Awaitable[object]]
) -> None:
    few = await _of_question(world, FEW, work)
    many = await _of_question(world, MANY, work)
    assert many - few < MANY - FEW  # less than one instruction for each server more


async def test_claims_that_are_made_at_once_cost_the_same_each(world: World) -> None:
    world.store.delay_s = 0.1

    async def all_at_once(hub: Hub, _: PendingRequest) -> None:
        waiting = open_requests(hub)
        await asyncio.gather(*(hub.inbox.claim(each.id, each.server, 60) for each in waiting))

    few = await _of_question(world, FEW, all_at_once, claimed=False) / FEW
    many = await _of_question(world, MANY, all_at_once, claimed=False) / MANY
    assert many - few < MANY - FEW
