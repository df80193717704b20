"""What servers offer, over all of them: kept whole and fresh, and honest about the rest."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import RunningHub

Script = Callable[..., dict[str, Any]]


@pytest.fixture
def script(peer_scripts: Path) -> Script:
    """The configuration of one of our servers over stdio: `script("name.py", *arguments, **options)`."""

    def config(name: str, *arguments: str, **options: Any) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(peer_scripts / name), *arguments], **options}

    return config


async def listed(hub: RunningHub, server: str, *freshness: str, kind: str = "tool", **wanted: Any) -> Any:
    """Waits until a list is as wanted, and returns it."""

    def matches(record: Any) -> bool:
        return record.freshness in freshness and all(getattr(record, name) == wanted[name] for name in wanted)

    return (await hub.watched(hub.client.catalog.watch(server=server, kinds=[kind]), matches))[0]


async def names(hub: RunningHub, server: str) -> list[str]:
    return [tool.name for tool in await hub.client.catalog.tools(server)]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_all_that_the_reference_server_offers_is_listed(
    start_hub: Any, everything_command: list[str], http_peer: Any, transport: str
) -> None:
    if transport == "stdio":
        server: dict[str, Any] = {"command": everything_command[0], "args": [*everything_command[1:], "stdio"]}
    else:
        server = {"url": f"{http_peer([*everything_command, 'streamableHttp']).url}/mcp"}
    hub = await start_hub({"everything": server})
    for kind in ("tool", "resource", "template", "prompt"):
        await listed(hub, "everything", "fresh", kind=kind)
    # It adds tools once the hub has said what it can do, and tells of that.
    asked = await hub.client.call("everything", "tools/list")
    await listed(hub, "everything", "fresh", count=len(asked["tools"]))
    ran = await hub.hubbub("catalog", "tools", "--server", "everything")
    assert (ran.status, ran.err) == (0, "")
    assert {row["server"] for row in ran.lines} == {"everything"}
    tools = {row["tool"]["name"]: row["tool"] for row in ran.lines}
    assert tools["get-sum"]["inputSchema"]["required"] == ["a", "b"]
    assert "trigger-elicitation-request" in tools  # added only once the hub had said what it can do
    assert set(tools) == {tool["name"] for tool in asked["tools"]}
    templates = (await hub.hubbub("catalog", "templates")).lines
    assert [row["template"]["uriTemplate"].split("{")[0] for row in templates] == [
        "demo://resource/dynamic/text/",
        "demo://resource/dynamic/blob/",
    ]
    resources = (await hub.hubbub("catalog", "resources")).lines
    assert all(row["resource"]["uri"].startswith("demo://") for row in resources)
    prompts = (await hub.hubbub("catalog", "prompts")).lines
    assert "simple-prompt" in [row["prompt"]["name"] for row in prompts]


CHANGING = [f"{transport}-{revision}" for transport in ("stdio", "http") for revision in ("2025-11-25", "2026-07-28")]


@pytest.fixture(scope="module")
async def changing(start_shared_hub: Any, shared_http_peer: Any, peer_scripts: Path) -> RunningHub:
    """A hub whose servers add a tool to their list and tell, each over its transport by its revision's way."""
    servers: dict[str, Any] = {}
    for name in CHANGING:
        transport, _, revision = name.partition("-")
        command = [sys.executable, str(peer_scripts / "changing_server.py"), transport]
        if transport == "http":
            servers[name] = {"url": f"{shared_http_peer(command).url}/mcp", "protocol": revision}
        else:
            servers[name] = {"command": command[0], "args": command[1:], "protocol": revision}
    return await start_shared_hub(servers)


@pytest.mark.parametrize("name", CHANGING)
async def test_a_tool_that_a_server_adds_and_removes_comes_and_goes(changing: RunningHub, name: str) -> None:
    before = (await listed(changing, name, "fresh")).count
    await changing.client.call_tool(name, "add", {"name": "late"})
    await listed(changing, name, "fresh", count=before + 1)
    assert "late" in await names(changing, name)
    await changing.client.call_tool(name, "remove", {"name": "late"})
    await listed(changing, name, "fresh", count=before)
    assert "late" not in await names(changing, name)


@pytest.mark.parametrize("name", CHANGING)
async def test_a_storm_of_changes_ends_with_the_last_one(changing: RunningHub, name: str) -> None:
    before = (await listed(changing, name, "fresh")).count
    await changing.client.call_tool(name, "storm", {"times": 500})
    await changing.client.call_tool(name, "add", {"name": "last"})
    await listed(changing, name, "fresh", count=before + 1)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_lists_of_a_server_that_was_restarted_are_fetched_again(
    start_hub: Any, http_peer: Any, peer_scripts: Path, free_port: int, revision: str
) -> None:
    command = [sys.executable, str(peer_scripts / "changing_server.py"), "http"]
    first = http_peer(command, port=free_port)
    options = {"url": f"{first.url}/mcp", "protocol": revision, "ping_interval_s": 0.2, "ping_timeout_s": 1}
    hub = await start_hub({"changing": {**options, "retries": -1, "backoff_s": [0.1]}})
    before = (await listed(hub, "changing", "fresh")).count
    first.stop()
    await listed(hub, "changing", "stale", count=before)
    shown = await hub.hubbub("catalog", "tools")
    assert len(shown.lines) == before
    assert "changing: its tools are stale" in shown.err
    http_peer(command, port=free_port, env={"TOOL": "after"})
    await listed(hub, "changing", "fresh", count=before + 1)
    assert "after" in await names(hub, "changing")


async def test_what_was_offered_is_shown_before_the_server_is_back(start_hub: Any, script: Script) -> None:
    offered = script("changing_server.py", "stdio")
    hub = await start_hub({"changing": offered})
    before = (await listed(hub, "changing", "fresh")).count
    await hub.hubbub("servers", "disconnect", "changing")
    await listed(hub, "changing", "stale", count=before)
    await hub.terminate()
    again = await start_hub({"changing": offered})
    ran = await again.hubbub("catalog", "tools")
    assert len(ran.lines) == before
    assert "stale" in ran.err
    refused = await again.hubbub("catalog", "tools", "--server", "nobody")
    assert (refused.status, refused.error["reason"]) == (1, "SERVER_NOT_FOUND")


BAD = {
    "no_list": ("INVALID_RESPONSE", "not MCP"),
    "scalar": ("INVALID_RESPONSE", "not MCP"),
    "hang": ("CALL_TIMEOUT", "call_timeout_s"),
    "lying": ("SERVER_ERROR", "Method not found"),
}


CUT = {
    "endless": (1000, "too long (tools/list, more than 1000 pages)"),
    "repeated": (2, "a page that was there before (tools/list, page 2)"),
    "huge 200000": (100_000, "too long (tools/list, more than 100000 entries)"),
    "many 1000": (100_000, "too long (tools/list, more than 100000 entries)"),
}


async def test_of_lists_without_a_good_end_what_came_is_taken_and_noted(start_hub: Any, script: Script) -> None:
    hub = await start_hub({mode.split()[0]: script("bad_lists.py", *mode.split()) for mode in CUT})
    for mode, (count, says) in CUT.items():
        name = mode.split()[0]
        await listed(hub, name, "fresh", count=count)
        assert (await hub.client.call_tool(name, "any")).text == "called"
        (noted,) = await hub.watched(hub.client.servers.watch([name]), lambda record: record.notes)
        assert says in noted.notes[0]
    for command in (("servers", "get", "repeated"), ("doctor",)):
        assert CUT["repeated"][1] in (await hub.hubbub(*command)).out


async def test_wrong_lists_are_classified_and_disturb_nothing(start_hub: Any, script: Script) -> None:
    servers = {mode.split()[0]: script("bad_lists.py", *mode.split(), protocol="2025-11-25") for mode in BAD}
    servers["hang"]["call_timeout_s"] = 10
    nothing = {
        name: script("bad_lists.py", name, protocol="2025-11-25") for name in ("nothing", "noisy", "wrong_types")
    }
    hub = await start_hub({**servers, **nothing, "good": script("changing_server.py", "stdio")})
    await listed(hub, "good", "fresh")
    await listed(hub, "nothing", "empty", count=0)
    await listed(hub, "wrong_types", "empty", count=0)
    (noted,) = await hub.watched(hub.client.servers.watch(["wrong_types"]), lambda record: record.notes)
    assert "tools/list: no. 1, no. 2" in noted.notes[0]
    for mode, (code, says) in BAD.items():
        name = mode.split()[0]
        found = await listed(hub, name, "error")
        assert (found.error.code, found.count) == (code, 0)
        assert says in found.error.message
        assert found.error.help_url
        assert (await hub.client.call_tool(name, "any")).text == "called"
    ran = await hub.hubbub("catalog", "tools")
    assert ran.status == 0
    assert {row["server"] for row in ran.lines} == {"good", "noisy"}
    assert "nothing: its tools: it says that it has some, and lists none" in ran.err
    assert "hang: its tools could not be fetched (CALL_TIMEOUT" in ran.err
    states = {server.name: server.state for server in await hub.client.servers.list()}
    assert set(states.values()) == {"connected"}


async def test_a_list_at_the_bound_is_served_whole(start_hub: Any, script: Script) -> None:
    hub = await start_hub({"huge": script("bad_lists.py", "huge", "100000", protocol="2025-11-25")})
    await listed(hub, "huge", "fresh", count=100_000)
    tools = await hub.client.catalog.tools("huge")
    assert [tool.name for tool in tools] == [f"tool 0 {at}" for at in range(100_000)]
    (record,) = await hub.client.catalog.refresh("huge")
    assert (record.count, record.freshness) == (100_000, "fresh")
