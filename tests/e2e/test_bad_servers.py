"""Whatever one server does wrong, the operator reads what it was, the hub stays well, and nobody else notices."""

import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

import hubbub_client

from .conftest import LIMIT_S, POLL_S, RunningHub
from .crowd import MARK, bad, fds, marked, nobody_left, parent, pss_kb, rss_kb

StartHub = Callable[..., Any]

FLOOD_KB = 48 * 1024
"""More than a flood may add to the hub's memory."""


@dataclass(frozen=True)
class Kind:
    """What the record of a server that never connects says in the end; `advice` is a part of the message."""

    code: str
    category: str
    retryable: bool
    advice: str
    details: dict[str, Any] = field(default_factory=dict)


TOO_SLOW = Kind("CONNECTION_TIMEOUT", "timeout", True, "connect_timeout_s", {"elapsed_s": 1})
NO_START = {"exit_code": 3, "stderr": ["cannot start: the license has expired"]}
TRANSIENT_CODES = {"INVALID_RESPONSE"}
"""What is no reason to repeat a call, and one to connect again: a page of maintenance may be in the server's place."""

KINDS = {
    "hang": TOO_SLOW,
    "deaf": TOO_SLOW,
    "flood": TOO_SLOW,
    "endless_line": TOO_SLOW,
    "exit": Kind("CONNECTION_LOST", "connection", True, "exit code 3", NO_START),
    "garbage": Kind("INVALID_RESPONSE", "protocol", False, "not JSON", {"error": "this is no JSON"}),
    "malformed": Kind("INVALID_RESPONSE", "protocol", False, "JSON-RPC"),
    "missing": Kind("COMMAND_NOT_FOUND", "connection", False, "no-such-command"),
    "http 401": Kind("AUTHENTICATION_FAILED", "server", False, "headers", {"status": 401}),
    "http 404": Kind("HTTP_ERROR", "transport", True, "url", {"status": 404}),
    "http 429": Kind("RATE_LIMITED", "server", True, "HTTP 429", {"status": 429}),
    "http 500": Kind("HTTP_ERROR", "transport", True, "HTTP 500", {"status": 500}),
    "http_page": Kind("INVALID_RESPONSE", "protocol", False, "text/html"),
    "http_hang": TOO_SLOW,
    "refused": Kind("CONNECTION_REFUSED", "connection", True, "nothing accepts connections"),
}
IMPATIENT = {"retries": 1, "backoff_s": [0.2], "call_timeout_s": 60}


@pytest.fixture
def reach(http_peer: Callable[..., Any], peer_scripts: Path, free_port: int) -> Callable[[str], dict[str, Any]]:
    """The configuration that leads to a server of a kind."""

    def config(kind: str) -> dict[str, Any]:
        if kind == "refused":
            return {"url": f"http://127.0.0.1:{free_port}/mcp"}
        if kind == "missing":
            return {"command": "no-such-command-here"}
        if kind.startswith("http"):
            peer = http_peer([sys.executable, str(peer_scripts / "bad.py"), *kind.split()])
            return {"url": f"{peer.url}/mcp"}
        return bad(kind)

    return config


async def until_given_up(hub: RunningHub, name: str) -> list[Any]:
    """Connects a server and calls it at once; its records until the hub gave up. The call must fail with the reason."""
    records: list[Any] = []
    code = ""

    async def call() -> None:
        with pytest.raises(hubbub_client.HubbubError) as caught:
            await hub.client.call_tool(name, "echo", {"text": "x"})
        told.append(caught.value)

    told: list[hubbub_client.HubbubError] = []
    await hub.client.servers.connect(name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        watch = hub.client.servers.watch([name])
        async for event in watch:
            if isinstance(event, hubbub_client.Upsert):
                records.append(event.record)
                if event.record.state == "disconnected" and event.record.error:
                    break
        await watch.aclose()
    await call()
    code = records[-1].error.code
    early, late = told
    # Either it waited for the connection that never came, or it came when the hub had given up already.
    assert code in (early.reason, early.metadata.get("cause")), (name, early.to_json())
    assert (late.reason, late.metadata.get("cause")) == ("SERVER_NOT_CONNECTED", code), (name, late.to_json())
    assert records[-1].error.message in late.message
    return records


async def test_a_server_that_does_not_connect_is_given_up_with_a_reason_to_act_on(
    start_hub: StartHub, reach: Callable[[str], dict[str, Any]]
) -> None:
    servers = {kind.replace(" ", "-"): {**reach(kind), **IMPATIENT} for kind in KINDS}
    for kind, wanted in KINDS.items():
        if wanted is TOO_SLOW:
            servers[kind.replace(" ", "-")]["connect_timeout_s"] = 1
    hub = await start_hub({**servers, "good": bad("good")})
    await hub.connected("good")
    stories: dict[str, list[Any]] = {}

    async def follow(name: str) -> None:
        stories[name] = await until_given_up(hub, name)

    async def call_the_good_one() -> None:
        while len(stories) < len(servers):
            text = uuid.uuid4().hex
            result = await hub.client.call_tool("good", "echo", {"text": text})
            assert result.text == text

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_the_good_one)
            for name in servers:
                tasks.start_soon(follow, name)
    for kind, wanted in KINDS.items():
        last = stories[kind.replace(" ", "-")][-1]
        fault = last.error
        assert (fault.code, fault.category, fault.retryable) == (wanted.code, wanted.category, wanted.retryable), kind
        assert wanted.advice in fault.message, (kind, fault.message)
        assert wanted.details.items() <= fault.details.items(), (kind, fault.details)
        assert fault.help_url.endswith(f"/{wanted.code.lower()}.html")
        attempts = 2 if wanted.retryable or wanted.code in TRANSIENT_CODES else 1
        assert (last.attempt, last.next_retry_at, last.pid) == (attempts, None, None), kind
        assert last.desired_state == "connected"
    good = await hub.client.servers.get("good")
    assert (good.state, good.attempt, good.error) == ("connected", 0, None)


async def test_a_server_that_dies_in_each_call_fails_those_calls_alone_and_comes_back(start_hub: StartHub) -> None:
    options = {"retries": -1, "backoff_s": [0.05]}
    hub = await start_hub({"mortal": bad("die_mid_call", **options), "good": bad("good")})
    for _ in range(3):
        await hub.connected("mortal", "good")
        with pytest.raises(hubbub_client.HubbubError) as caught:
            await hub.client.call_tool("mortal", "echo")
        assert caught.value.reason == "CONNECTION_LOST"
        assert "exit code 4" in caught.value.message
        await hub.client.call_tool("good", "echo")
    await hub.connected("mortal")


@pytest.mark.parametrize("kind", ["log_flood", "progress_flood", "stderr_flood", "ping_flood", "flood", "http_flood"])
async def test_a_flood_costs_bounded_memory_and_no_call_of_another_server(
    kind: str, start_hub: StartHub, reach: Callable[[str], dict[str, Any]]
) -> None:
    hub = await start_hub({"good": bad("good"), "bad": {**reach(kind), "connect_timeout_s": 600}})
    await hub.connected("good", *(["bad"] if kind != "flood" else []))
    pid = hub.process.pid

    async def rounds(count: int) -> None:
        for number in range(count):
            result = await hub.client.call_tool("good", "echo", {"text": str(number)})
            assert result.text == str(number)

    with anyio.fail_after(LIMIT_S):
        await rounds(50)
        before = rss_kb(pid)
        await rounds(150)
    assert rss_kb(pid) - before < FLOOD_KB
    if kind not in ("flood", "ping_flood"):  # these two do not listen any more
        await hub.client.call_tool("bad", "echo")


@pytest.mark.parametrize("end", ["disconnect", "terminate", "kill"])
async def test_nothing_that_a_server_started_is_left(end: str, start_hub: StartHub) -> None:
    mark = uuid.uuid4().hex
    config = {"env": {MARK: mark}, "connect_timeout_s": 600}
    hub = await start_hub(
        {name: bad(name, **config) for name in ("family", "good", "hang", "deaf", "log_flood", "flood")}
    )
    await hub.connected("family", "good", "log_flood")
    with anyio.fail_after(LIMIT_S):
        while len(marked(mark)) < 6 + 3:
            await anyio.sleep(POLL_S)
    wrappers = {parent((await hub.client.servers.get(name)).pid) for name in ("family", "good", "log_flood")}
    if end == "disconnect":
        async with anyio.create_task_group() as tasks:
            for server in await hub.client.servers.list():
                tasks.start_soon(hub.client.servers.disconnect, server.name)
    elif end == "terminate":
        await hub.terminate()
    else:
        await hub.kill()
    await nobody_left(mark)
    with anyio.fail_after(LIMIT_S):
        while any(Path(f"/proc/{pid}").exists() for pid in wrappers):
            await anyio.sleep(POLL_S)


async def test_the_wrapper_around_a_server_takes_at_most_6_mb(start_hub: StartHub) -> None:
    names = [f"good-{number}" for number in range(5)]
    hub = await start_hub({name: bad("good") for name in names})
    await hub.connected(*names)
    spent = [pss_kb(parent((await hub.client.servers.get(name)).pid)) for name in names]
    print(f"PSS of the wrappers, kB: {spent}")
    assert max(spent) <= 6 * 1024


async def test_connecting_fifty_times_leaves_no_descriptor_and_no_memory_behind(start_hub: StartHub) -> None:
    hub = await start_hub({"good": bad("good")})
    pid = hub.process.pid

    async def cycle() -> None:
        await hub.connected("good")
        assert (await hub.client.servers.disconnect("good")).state == "disconnected"
        await hub.client.servers.connect("good")

    for _ in range(5):
        await cycle()
    await hub.connected("good")
    # Its lists are fetched, so that nothing of the connection is under way.
    await hub.watched(hub.client.catalog.watch(server="good", kinds=["tool"]), lambda each: each.freshness == "fresh")
    before, memory = fds(pid), rss_kb(pid)
    for _ in range(50):
        await cycle()
    await hub.connected("good")
    with anyio.fail_after(LIMIT_S):
        while fds(pid) != before:  # what the last connection had is closed a moment after its end
            await anyio.sleep(POLL_S)
    assert rss_kb(pid) - memory < 8 * 1024
