"""A server over streamable HTTP that loses its sessions while many call it: back by itself, with all that was there."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

import hubbub_client

from .conftest import LIMIT_S, RunningHub

WORKERS = 8
AFTERWARDS = 50


@dataclass
class Load:
    """Callers that go on whatever happens, and what they met."""

    hub: RunningHub
    well: int = 0
    failures: list[hubbub_client.HubbubError] = field(default_factory=list[hubbub_client.HubbubError])
    stopped: bool = False
    went_well: anyio.Event = field(default_factory=anyio.Event)

    async def work(self) -> None:
        while not self.stopped:
            try:
                await told(self.hub)
            except hubbub_client.HubbubError as exc:
                self.failures.append(exc)
            else:
                self.well += 1
                self.went_well.set()
                self.went_well = anyio.Event()

    async def more(self, count: int) -> None:
        """Returns when so many more calls went well."""
        wanted = self.well + count
        with anyio.fail_after(LIMIT_S):
            while self.well < wanted:
                await self.went_well.wait()


async def tool(hub: RunningHub, name: str, **arguments: Any) -> Any:
    result = await hub.client.call_tool("tasks", name, arguments)
    assert not result.is_error, result
    return json.loads(result.text)


async def told(hub: RunningHub) -> list[Any]:
    """A short call; which tasks the server has heard of since it started."""
    return [status["taskId"] for status in (await tool(hub, "told"))["statuses"]]


async def listed(hub: RunningHub, after: datetime | None = None) -> Any:
    """The list of tools, once it is one that was fetched after this time."""
    watch = hub.client.catalog.watch(server="tasks", kinds=["tool"])
    return (await hub.watched(watch, lambda r: r.freshness == "fresh" and (after is None or r.fetched_at > after)))[0]


@pytest.mark.parametrize("way", ["the process restarts", "the session is ended"])
async def test_a_server_whose_sessions_are_gone_comes_back_with_its_tasks_and_lists(
    way: str, start_hub: Any, http_peer: Any, mcp1_python: str, peer_scripts: Path, free_port: int
) -> None:
    command = [mcp1_python, str(peer_scripts / "tasks_server.py"), "http"]
    first = http_peer(command, port=free_port)
    hub = await start_hub(
        {"tasks": {"url": f"{first.url}/mcp", "retries": -1, "backoff_s": [0.1], "max_in_flight": 4}}, connected=True
    )
    before = await listed(hub)
    made = {kind: (await tool(hub, "start", kind=kind))["task"]["taskId"] for kind in ("elicitation", "sampling")}
    load = Load(hub)
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as workers:
            for _ in range(WORKERS):
                workers.start_soon(load.work)
            await load.more(20)
            if way == "the process restarts":
                first.stop()
                http_peer(command, port=free_port)
            else:
                session = {"mcp-session-id": await tool(hub, "session")}
                assert (
                    httpx2.delete(f"{first.url}/mcp", headers=session, trust_env=False, timeout=LIMIT_S).status_code
                    == 200
                )
            after = await listed(hub, before.fetched_at)
            await load.more(20)
            load.stopped = True
    # Only what was on the wire may have failed: nobody knows whether the server had done it.
    assert {exc.reason for exc in load.failures} <= {"CONNECTION_LOST"}, load.failures
    for _ in range(AFTERWARDS):
        await told(hub)
    assert (after.count, after.error) == (before.count, None)
    for task_id in made.values():
        assert (await tool(hub, "fetch", task_id=task_id))["get"]["status"] == "working"
    asked = {request.task_id: request for request in await hub.asked(2)}
    assert set(asked) == set(made.values())
    await asked[made["elicitation"]].accept({"name": "Ada"})
    await hub.answer(asked[made["sampling"]], "--text", "Good day")
    fetched = await tool(hub, "fetch", task_id=made["elicitation"])
    assert (fetched["get"]["status"], fetched["result"]["content"]) == ("completed", {"name": "Ada"})
    fetched = await tool(hub, "fetch", task_id=made["sampling"])
    assert fetched["result"]["content"] == {"type": "text", "text": "Good day"}
    assert set(made.values()) <= set(await told(hub))
