"""Spans that are easily lost, or told twice: what happens in the moment in which something is written or taken back."""

import asyncio
from typing import Any

import anyio
import pytest

from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import TaskFilter
from hubbubd.runtime.calls import inbound_request_span
from hubbubd.telemetry.trace import CURRENT_RPC, CURRENT_TRACE, RpcSpan, Span, SpanKind
from hubbubd.upstream.ports import Era, InboundRequest, ReplyError

from .conftest import World, server, settle, spec, until
from .noted import Noted
from .peer import Outcome, Sent, never

TASK = {"resultType": "task", "taskId": "remote", "status": "working", "createdAt": "2026-07-28T00:00:00Z"}
TASK |= {"lastUpdatedAt": "2026-07-28T00:00:00Z", "ttlMs": 60000, "pollIntervalMs": 100}


@pytest.fixture
def tracer(world: World) -> Noted:
    """What the hub tells."""
    world.tracer = Noted()
    return world.tracer


async def test_a_call_that_ends_while_its_task_is_written_leaves_no_task_behind(world: World, tracer: Noted) -> None:
    async def becomes_a_task(sent: Sent) -> Outcome:
        if sent.method == "tools/call":
            world.store.delay_s = 1.0
            return dict(TASK)
        await anyio.sleep(0.01)
        return {}

    world.peer.era = Era.STATELESS
    world.peer.behaviour = becomes_a_task
    async with world.linked() as hub:
        call = await hub.calls.start(spec(call_id="c"), "me")
        await until(lambda: world.store.delay_s)
        await anyio.sleep(0.5)
        await hub.calls.cancel(call.id, abort=True)
        world.store.delay_s = 0.0
        await settle(1)
        (task,) = hub.tasks.select(TaskFilter())
        assert task.status.ended
        assert hub.calls.get("c").task_id == task.id
        assert world.peer.sent[-1].method == "tasks/cancel"
    assert tracer.ends()["task tools/call"] == "TASK_CANCELLED"
    assert tracer.ends()["call tools/call t"] == "CALL_CANCELLED"
    tracer.check()


async def test_the_rpc_of_a_caller_who_hung_up_is_not_left_to_the_next_hub(world: World, tracer: Noted) -> None:
    async def reluctant(sent: Sent) -> Outcome:
        try:
            return await never(sent)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(5)

    world.peer.behaviour = reluctant
    trace = tracer.begin(None)
    rpc = Span(name="rpc", kind=SpanKind.SERVER, trace=trace, start=0.0)

    async def call(hub: Any) -> None:
        CURRENT_TRACE.set(trace)
        CURRENT_RPC.set(RpcSpan(rpc))
        await hub.calls.call(spec(call_id="c"), "me")

    async with world.hub(server()) as hub:
        waiting = asyncio.create_task(call(hub))
        await until(lambda: world.peer.sent)
        assert rpc in hub.calls.get("c").under_way
        waiting.cancel()
        await settle()
        assert hub.calls.get("c").state is CallState.IN_PROGRESS
        assert rpc not in hub.calls.get("c").under_way
        await until(lambda: hub.calls.get("c").state is CallState.CANCELLED)


async def test_a_call_that_ends_before_it_is_admitted_tells_of_its_wait(world: World, tracer: Noted) -> None:
    world.peer.behaviour = never
    async with world.hub(server()) as hub:
        busy = asyncio.create_task(hub.calls.call(spec(call_id="busy"), "me"))
        await until(lambda: world.peer.sent)
        world.store.delay_s = 1.0
        starting = asyncio.create_task(hub.calls.start(spec(call_id="c"), "me"))
        await settle()
        assert await hub.calls.clear_queue("one") == 1
        assert (await starting).id == "c"
        waits = [told for told in tracer.told if told.span.name == "queue" and told.attributes["hubbub.call.id"] == "c"]
        assert len(waits) == 1
        assert hub.calls.get("c").started_at is None
        busy.cancel()


def test_a_request_of_a_server_that_is_refused_says_with_which_code() -> None:
    tracer = Noted()
    request = InboundRequest(method="tasks/get", params={}, trace=tracer.begin(None))
    with pytest.raises(ReplyError), inbound_request_span(tracer, "one", request):
        raise ReplyError(-32602, "Task not found")
    (told,) = tracer.told
    assert (told.error, told.attributes["rpc.response.status_code"]) == ("-32602", "-32602")
