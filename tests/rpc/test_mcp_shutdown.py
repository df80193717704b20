"""What hosts get while the hub shuts down."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ..runtime.peer import gives, never
from .mcp_host import NEW, OLD, Host, Stage, envelope, request, stage, tool


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Stage]:
    """A hub with hosts."""
    async with stage(tmp_path) as made_:
        yield made_


@pytest.mark.parametrize("new", [False, True], ids=[OLD, NEW])
async def test_requests_under_way_get_their_responses_and_new_ones_are_refused(made: Stage, new: bool) -> None:
    go = anyio.Event()
    made.peers["one"].behaviour = gives({"content": []}, once=go)
    host = made.host() if new else await made.host().begin()
    answers: list[Any] = []

    async def call() -> None:
        answers.append(await (host.new(tool(1)) if new else host.post(tool(1))))

    async with anyio.create_task_group() as tasks, anyio.create_task_group() as drained:
        tasks.start_soon(call)
        await made.arrived()
        drained.start_soon(made.hub.drain, 60)
        refused = await told_to_go(host, new)
        assert refused["data"]["reason"] == "SHUTTING_DOWN"
        if not new:
            told = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
            assert (await host.post(told)).status_code == 202
        go.set()
    assert answers[0].json()["result"]["content"] == []


async def told_to_go(host: Host, new: bool) -> Any:
    """The refusal, once there is one."""
    while True:
        said = await (host.new(request(2, "tools/list")) if new else host.post(request(2, "ping")))
        if said.status_code != 200:
            assert said.status_code == 503
            assert said.headers["retry-after"] == "1"
            return said.json()["error"]
        await anyio.sleep(0)


async def test_streams_of_hosts_end_and_none_begins(made: Stage) -> None:
    host = await made.host().begin()
    async with host.stream("GET") as own, anyio.create_task_group() as tasks:
        tasks.start_soon(made.hub.drain, 60)
        assert await own.rest() == []
    assert (await host.send("GET")).status_code == 503


async def test_a_host_that_listens_is_told_that_it_is_over(made: Stage) -> None:
    listening = envelope(request(1, "subscriptions/listen", notifications={"toolsListChanged": True}))
    about = {"mcp_protocol_version": NEW, "mcp_method": "subscriptions/listen"}
    async with made.host().stream("POST", listening, **about) as own, anyio.create_task_group() as tasks:
        acknowledged = await own.next()
        assert acknowledged.data["method"] == "notifications/subscriptions/acknowledged"
        tasks.start_soon(made.hub.drain, 60)
        (over,) = [each.data["result"] for each in await own.rest()]
    assert over == {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": 1}}


async def test_a_request_that_does_not_end_is_told_when_the_grace_is_over(made: Stage) -> None:
    made.peers["one"].behaviour = never
    host = await made.host().begin()
    answers: list[Any] = []

    async def call() -> None:
        answers.append(await host.post(tool(1)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await made.arrived()
        await made.hub.drain(0)
    assert answers[0].json()["error"]["data"]["reason"] == "SHUTTING_DOWN"
