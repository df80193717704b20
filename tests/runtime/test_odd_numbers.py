"""Numbers of a server past any sense: its calls go on, lists and watches stay whole, and the next hub starts."""

import math
from dataclasses import replace
from typing import Any

import anyio
import pytest

from hubbubd.core.access import EVERYTHING
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import TaskFilter
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.core.tasks import TaskRole
from hubbubd.errors import Category, Fault, UpstreamError
from hubbubd.rpc.messages import api_records
from hubbubd.upstream.ports import Era

from .conftest import EPOCH, World, server, until
from .task_server import ERAS, RESULT, TaskServer, ended, started, the_task

MAGNITUDES: tuple[Any, ...] = (
    *(0, -1, 2**31, 2**53, 2**63, 2**64 - 1, 10**400, -(10**400)),
    *(1e308, -1e308, math.inf, -math.inf, math.nan),
)


@ERAS
@pytest.mark.parametrize("number", MAGNITUDES, ids=lambda number: str(number)[:24])
async def test_a_task_may_live_and_be_polled_as_odd_as_its_server_says(world: World, era: Era, number: Any) -> None:
    tasks = TaskServer(world, era)
    tasks.interval_ms = number
    tasks.more = {"ttlMs" if tasks.stateless else "ttl": number}
    async with world.hub(server()) as hub:
        call = await started(hub)
        assert api_records.task(the_task(hub)).id == the_task(hub).id
        await anyio.sleep(40)
        assert tasks.asked("tasks/get")
        tasks.end(result=RESULT)
        assert (await ended(hub, call)).state is CallState.COMPLETED
    async with world.hub(server()) as hub:
        (task,) = hub.tasks.select(TaskFilter(role=TaskRole.CLIENT))
        assert not api_records.task(task).defect


@pytest.mark.parametrize("ttl", [2**64 - 1, 2**63, 10**400, 1e308, math.inf])
async def test_a_ttl_past_any_sense_is_for_as_long_as_the_hub_keeps_it(world: World, ttl: Any) -> None:
    tasks = TaskServer(world)
    tasks.more = {"ttl": ttl}
    async with world.hub(server()) as hub:
        await started(hub)
        assert the_task(hub).ttl_ms is None


@pytest.mark.parametrize("wait_s", [999_999_999.0, 1e15, 1e308, math.inf])
async def test_a_server_may_slow_the_hub_down_but_not_send_it_away_for_good(world: World, wait_s: float) -> None:
    fault = Fault(code="RATE_LIMITED", category=Category.SERVER, message="busy", retryable=True, retry_after_s=wait_s)
    world.peer.plan.append(UpstreamError(fault))
    async with world.hub(server(backoff_max_s=60)) as hub:
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.ERROR)
        record = hub.servers.get("one")
        at = record.connection.next_retry_at
        assert at is not None
        assert at <= EPOCH + 3600 + 100
        assert not api_records.server(record, EVERYTHING).defect
        await anyio.sleep(3600 + 100)
        assert hub.servers.get("one").connection.state is ConnectionState.CONNECTED


async def test_a_poll_is_put_off_by_no_more_than_a_server_may_ask_for(world: World) -> None:
    tasks = TaskServer(world)
    async with world.hub(server(call_max_s=100_000)) as hub:
        await started(hub, max_s=100_000)
        busy = Fault(code="RATE_LIMITED", category=Category.SERVER, message="busy", retryable=True)
        answered, failures = world.peer.behaviour, [replace(busy, retry_after_s=999_999_999.0)]

        async def behaviour(sent: Any) -> Any:
            if sent.method == "tasks/get" and failures:
                raise UpstreamError(failures.pop())
            return await answered(sent)

        world.peer.behaviour = behaviour
        await until(lambda: not failures)
        before = len(tasks.asked("tasks/get"))
        await anyio.sleep(3600 + 60)
        assert len(tasks.asked("tasks/get")) > before
