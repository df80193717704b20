"""The processes over and below the servers of a hub, some of which are killed."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from .conftest import LIMIT_S, POLL_S, RunningHub, alive, descendants
from .crowd import bad

SOON = {"backoff_s": [0.05]}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def above(hub: RunningHub, *servers: str) -> set[int]:
    """The launcher and the reapers of these servers."""
    reapers = {parent_of((await hub.client.servers.get(server)).pid) for server in servers}
    return reapers | {parent_of(reaper) for reaper in reapers}


async def gone(*pids: int) -> None:
    with anyio.fail_after(LIMIT_S):
        while any(map(alive, pids)):
            await anyio.sleep(POLL_S)


@pytest.fixture
def servers(peer_scripts: Path) -> dict[str, Any]:
    """One that starts others, among them a daemon; one that echoes; one whose calls last until they are answered."""
    asking = {"command": sys.executable, "args": [str(peer_scripts / "plain_server.py"), "stdio"], **SOON}
    return {"family": bad("family", **SOON), "good": bad("good", **SOON), "asking": asking}


async def test_a_killed_launcher_ends_no_call_and_the_next_server_gets_another(
    start_hub: Callable[..., Any], servers: dict[str, Any]
) -> None:
    hub = await start_hub(servers, connected=True)
    call = (await hub.client.start_tool("asking", "ask", {"message": "Who?"})).started
    (request,) = await hub.asked()
    (launcher,) = {parent_of(parent_of((await hub.client.servers.get(server)).pid)) for server in servers}
    os.kill(launcher, signal.SIGKILL)
    await gone(launcher)
    await hub.client.inbox.answer(request.id, accept={"name": "Ann"})
    assert (await hub.call(call.id)).error is None
    await hub.client.servers.disconnect("good")
    await hub.watched(hub.client.servers.watch(["good"]), lambda s: s.state == "disconnected")
    await hub.client.servers.connect("good")
    await hub.connected("good")
    assert launcher not in await above(hub, *servers)
    await hub.terminate()


async def test_when_all_that_stands_over_the_servers_is_killed_they_come_back(
    start_hub: Callable[..., Any], servers: dict[str, Any]
) -> None:
    hub = await start_hub(servers, connected=True)
    offspring = json.loads((await hub.client.call_tool("family", "echo")).text)
    call = (await hub.client.start_tool("asking", "ask", {"message": "Who?"})).started
    await hub.asked()
    pids = {server: (await hub.client.servers.get(server)).pid for server in servers}
    for pid in await above(hub, *servers):
        os.kill(pid, signal.SIGKILL)
    assert (await hub.call(call.id)).error.code == "CONNECTION_LOST"
    await gone(*pids.values(), *offspring)
    await hub.watched(hub.client.servers.watch(), lambda s: s.state == "connected" and s.pid != pids[s.name], 3)
    assert (await hub.client.call_tool("good", "echo", {"text": "back"})).text == "back"
    await hub.terminate()


async def test_of_two_hubs_the_killed_one_leaves_nothing_and_the_other_everything(
    start_shared_hub: Callable[..., Any], servers: dict[str, Any]
) -> None:
    doomed, other = [await start_shared_hub(servers) for _ in range(2)]
    for hub in (doomed, other):
        await hub.connected(*servers)
        assert len(json.loads((await hub.client.call_tool("family", "echo")).text)) == 3
    left = descendants(other.process.pid)
    await doomed.kill()
    assert all(map(alive, left))
    assert (await other.client.call_tool("good", "echo", {"text": "still"})).text
    await other.terminate()


async def test_a_hub_without_stdio_servers_has_no_process_below_it(start_hub: Callable[..., Any]) -> None:
    hub = await start_hub({})
    assert descendants(hub.process.pid) == []
