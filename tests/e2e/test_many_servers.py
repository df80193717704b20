"""A hundred servers on one hub, some of each bad kind among them: the others answer throughout."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import anyio
import pytest

import hubbub_client

from .conftest import LIMIT_S, POLL_S, RunningHub
from .crowd import bad, cpu_s, rss_kb

COUNT = 100
CROWD_LIMIT_S = 4 * LIMIT_S
"""Bound of what a hundred do, on a machine that does other things too."""
ROUNDS = 6
NEVER_CONNECT = ("hang", "deaf", "flood", "endless_line", "exit", "garbage", "malformed")
BEHAVE_BADLY = ("die_mid_call", "deafened", "silent", "muddled", "huge", "log_flood", "progress_flood", "ping_flood")
OVER_HTTP = ("http 401", "http 404", "http 429", "http 500", "http_page", "http_hang", "http_flood")
FOR_EVER = {"connect_timeout_s": 5, "retries": -1, "backoff_s": [0.5, 1, 2], "call_timeout_s": 5}


@pytest.fixture
def crowd(http_peer: Callable[..., Any], peer_scripts: Path) -> dict[str, dict[str, Any]]:
    """A hundred servers: those called `good-...` are light, those called `sdk-...` are of the SDK, the rest are bad."""
    servers = {kind: bad(kind, **FOR_EVER) for kind in (*NEVER_CONNECT, *BEHAVE_BADLY)}
    servers["asker"] = bad("ask_flood", "5000", **FOR_EVER)
    for kind in OVER_HTTP:
        peer = http_peer([sys.executable, str(peer_scripts / "bad.py"), *kind.split()])
        servers[kind.replace(" ", "-")] = {"url": f"{peer.url}/mcp", **FOR_EVER}
    for number in range(3):
        servers[f"sdk-{number}"] = {
            "command": sys.executable,
            "args": [str(peer_scripts / "asking_server.py"), "stdio"],
        }
    while len(servers) < COUNT:
        servers[f"good-{len(servers)}"] = bad("good")
    return servers


async def call_until_done(hub: RunningHub, server: str, took_s: list[float]) -> None:
    """Calls a good server again and again; each call must succeed."""
    for number in range(ROUNDS):
        begin = time.perf_counter()
        if server.startswith("sdk"):
            result = await hub.client.call_tool(server, "count", {"steps": 2})
            wanted = "done"
        else:
            wanted = f"{server} {number}"
            result = await hub.client.call_tool(server, "echo", {"text": wanted})
        took_s.append(time.perf_counter() - begin)
        assert result.text == wanted


async def test_a_hundred_servers_of_which_some_misbehave_do_not_disturb_each_other(
    start_hub: Callable[..., Any], crowd: dict[str, dict[str, Any]]
) -> None:
    hub = await start_hub(crowd, {"open_requests_per_server": 100, "log_level": "error"})
    good = [name for name in crowd if name.startswith(("good", "sdk"))]
    begin = time.perf_counter()
    await hub.connected(*good)
    print(f"\n{len(good)} good servers of {COUNT} connected after {time.perf_counter() - begin:.1f} s")
    took_s: list[float] = []
    refused: list[str] = []

    async def provoke(server: str) -> None:
        while True:
            try:
                await hub.client.call_tool(server, "echo", {"text": "x" * 300_000})
            except hubbub_client.HubbubError as error:
                refused.append(error.reason)

    with anyio.fail_after(CROWD_LIMIT_S):
        async with anyio.create_task_group() as provoking:
            for server in BEHAVE_BADLY:
                provoking.start_soon(provoke, server)
            async with anyio.create_task_group() as calling:
                for server in good:
                    calling.start_soon(call_until_done, hub, server, took_s)
            while not refused:
                await anyio.sleep(POLL_S)
            provoking.cancel_scope.cancel()
    assert len(took_s) == ROUNDS * len(good)
    assert refused
    cuts = [1000 * cut for cut in quantiles(took_s, n=100)]
    print(f"{len(took_s)} calls, ms: median {cuts[49]:.0f}, 90 % {cuts[89]:.0f}, 99 % {cuts[98]:.0f}")
    print(f"{len(refused)} calls of bad servers failed; the hub has {rss_kb(hub.process.pid) // 1024} MB")
    servers = {server.name: server for server in await hub.client.servers.list()}
    assert len(servers) == COUNT
    for name in good:
        assert (servers[name].state, servers[name].attempt, servers[name].error) == ("connected", 0, None)
        assert servers[name].queue.completed == ROUNDS
    for name in ("exit", "garbage", "malformed", "http-401", "http-404", "http-429", "http-500", "http_page"):
        assert servers[name].error or servers[name].state == "connecting", name


async def test_a_hub_with_a_hundred_idle_servers_sleeps(start_hub: Callable[..., Any]) -> None:
    names = [f"good-{number}" for number in range(COUNT)]
    hub = await start_hub({name: bad("good") for name in names}, {"log_level": "error"})
    await hub.connected(*names)
    idle_s = 3.0
    lists = hub.client.catalog.watch(kinds=["tool"])
    await hub.watched(lists, lambda each: each.freshness == "fresh", COUNT)
    await hub.client.admin.status()
    spent = idle_s
    with anyio.fail_after(LIMIT_S):
        while spent >= idle_s / 4:  # what is left to do at the start takes longer where others are at work, too
            before = cpu_s(hub.process.pid)
            await anyio.sleep(idle_s)  # what is measured is that nothing happens
            spent = cpu_s(hub.process.pid) - before
            print(f"\nidle: {100 * spent / idle_s:.1f} % of a core, {rss_kb(hub.process.pid) // 1024} MB")
