"""What servers tell, and what they offer besides tools: the reference server over both transports."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from .told import Told

LIMIT_S = 60
RESOURCE = "demo://resource/dynamic/text/1"


@pytest.fixture(scope="module", params=["stdio", "http"])
async def hub(
    request: pytest.FixtureRequest, start_shared_hub: Any, everything_command: list[str], shared_http_peer: Any
) -> Any:
    """A hub with the reference server."""
    if request.param == "stdio":
        server: dict[str, Any] = {"command": everything_command[0], "args": [*everything_command[1:], "stdio"]}
    else:
        server = {"url": f"{shared_http_peer([*everything_command, 'streamableHttp']).url}/mcp"}
    hub = await start_shared_hub({"everything": server})
    await hub.connected("everything")
    return hub


async def call(hub: Any, tool: str, **arguments: Any) -> str:
    result = await hub.client.call_tool("everything", tool, arguments)
    assert not result.is_error, result
    return result.text


async def test_progress_of_a_call_is_an_event_that_names_the_call(hub: Any) -> None:
    async with anyio.create_task_group() as tasks:
        told = Told(hub, tasks, kinds=["progress"])
        await told.listening.wait()
        arguments = {"name": "trigger-long-running-operation", "arguments": {"duration": 1, "steps": 3}}
        started = await hub.client.start("everything", "tools/call", arguments)
        await told.until(lambda event: event.params["progress"] == 3)
        tasks.cancel_scope.cancel()
    assert [event.params["progress"] for event in told.events] == [1, 2, 3]
    assert {event.call_id for event in told.events} == {started.id}
    assert {event.method for event in told.events} == {"notifications/progress"}


async def test_log_messages_come_from_the_level_on_that_was_set(hub: Any) -> None:
    async with anyio.create_task_group() as tasks:
        told = Told(hub, tasks, server="everything", kinds=["log"])
        await told.listening.wait()
        done = await hub.hubbub("log-level", "everything", "debug")
        assert done.record == {"server": "everything", "level": "debug"}
        await call(hub, "toggle-simulated-logging")
        first = await told.until(lambda event: "level" in str(event.params["data"]).lower())
        await call(hub, "toggle-simulated-logging")
        tasks.cancel_scope.cancel()
    assert first.method == "notifications/message"
    rows = (await hub.hubbub("logs", "everything")).lines
    assert [row["params"] for row in rows if row["params"] == first.params]
    assert {row["server"] for row in rows} == {"everything"}
    refused = await hub.hubbub("log-level", "everything", "loud")
    assert (refused.status, refused.error["reason"]) == (2, "USAGE")


async def test_a_resource_that_is_watched_is_read_again_after_each_change(hub: Any) -> None:
    lines = await hub.start_hubbub("subscribe", "everything", RESOURCE)
    first = await lines.next()
    assert (first["server"], first["uri"], first["error"]) == ("everything", RESOURCE, None)
    assert first["result"]["contents"][0]["text"].startswith("Resource 1")
    await call(hub, "toggle-subscriber-updates")
    second = await lines.next()
    assert second["result"]["contents"][0]["uri"] == RESOURCE
    assert await lines.interrupt() == 0
    await call(hub, "toggle-subscriber-updates")
    # The hub hears a moment later that the last watcher is gone.
    calls = hub.client.calls.watch(server="everything")
    await hub.watched(calls, lambda c: (c.method, c.params) == ("resources/unsubscribe", {"uri": RESOURCE}))
    about = [c for c in await hub.client.calls.list(server="everything") if (c.params or {}).get("uri") == RESOURCE]
    methods = [c.method for c in about]
    assert methods.count("resources/subscribe") == methods.count("resources/unsubscribe") == 1
    assert methods.count("resources/read") >= 2


async def test_a_resource_that_is_watched_twice_is_subscribed_once_and_again_after_a_reconnect(hub: Any) -> None:
    async def subscriptions() -> int:
        calls = await hub.client.calls.list(server="everything")
        return sum(c.method == "resources/subscribe" and c.params == {"uri": f"{RESOURCE}0"} for c in calls)

    one, other = hub.client.subscribe("everything", f"{RESOURCE}0"), hub.client.subscribe("everything", f"{RESOURCE}0")
    with anyio.fail_after(LIMIT_S):
        before, _ = await anext(one), await anext(other)
        assert await subscriptions() == 1
        await hub.client.servers.disconnect("everything")
        await hub.client.servers.connect("everything")
        await hub.connected("everything")
        after = await anext(one)
    assert after.at > before.at
    assert await subscriptions() == 2
    await one.aclose()
    await other.aclose()


async def test_roots_are_changed_while_the_hub_runs_and_the_server_is_told(hub: Any) -> None:
    async with anyio.create_task_group() as tasks:
        told = Told(hub, tasks, server="everything", kinds=["log"])
        await told.listening.wait()
        roots = [{"uri": "file:///srv/one", "name": "one"}]
        assert (await hub.hubbub("roots", "everything")).record == []
        assert (await hub.hubbub("roots", "everything", "set", json.dumps(roots))).record == roots
        await told.until(lambda event: "1 root" in str(event.params["data"]))
        tasks.cancel_scope.cancel()
    assert "file:///srv/one" in await call(hub, "get-roots-list")
    assert (await hub.hubbub("roots", "everything", "list")).record == roots
    assert (await hub.hubbub("roots", "everything", "set", "configured")).record == []
    wrong = await hub.hubbub("roots", "everything", "set", '[{"uri": "https://example.com"}]')
    assert (wrong.status, wrong.error["code"]) == (1, "INVALID_ARGUMENT")


async def test_resources_prompts_and_completions_have_commands_of_their_own(hub: Any) -> None:
    read = (await hub.hubbub("read", "everything", RESOURCE)).record
    assert read["contents"][0]["uri"] == RESOURCE
    prompt = (await hub.hubbub("prompt", "everything", "args-prompt", '{"city": "Graz"}')).record
    assert "Graz" in prompt["messages"][0]["content"]["text"]
    words = ("complete", "everything", "department", "En", "--prompt", "completable-prompt")
    assert (await hub.hubbub(*words)).record["completion"]["values"] == ["Engineering"]
    missing = await hub.hubbub("complete", "everything", "department")
    assert (missing.status, missing.error["reason"]) == (2, "USAGE")


async def test_binary_and_embedded_content_passes_through_unharmed(hub: Any) -> None:
    blob = await hub.client.read_resource("everything", "demo://resource/dynamic/blob/1")
    assert base64.b64decode(blob["contents"][0]["blob"], validate=True)
    image = await hub.client.call_tool("everything", "get-tiny-image")
    (picture,) = [part for part in image.content if part["type"] == "image"]
    assert base64.b64decode(picture["data"], validate=True).startswith(b"\x89PNG")
    arguments = {"resourceType": "Text", "resourceId": "1"}
    embedded = await hub.client.get_prompt("everything", "resource-prompt", arguments)
    assert [m["content"]["resource"]["uri"] for m in embedded["messages"] if m["content"]["type"] == "resource"]


async def test_events_are_watched_at_the_command_line_until_it_is_interrupted(hub: Any) -> None:
    lines = await hub.start_hubbub("events", "watch", "--server", "everything", "--kind", "progress")
    row: list[Any] = []
    async with anyio.create_task_group() as tasks:

        async def until_seen() -> None:
            while not row:  # each call reports progress: one of them comes after the watch has begun
                await call(hub, "trigger-long-running-operation", duration=0.2, steps=2)

        tasks.start_soon(until_seen)
        row.append(await lines.next())
    assert set(row[0]) == {"server", "kind", "params", "method", "call_id", "at"}
    assert (row[0]["server"], row[0]["kind"]) == ("everything", "progress")
    assert await lines.interrupt() == 0


async def test_the_standard_error_of_a_server_is_its_log(start_hub: Any, everything_command: list[str]) -> None:
    command, *arguments = everything_command
    hub = await start_hub({"everything": {"command": command, "args": [*arguments, "stdio"]}})
    await hub.connected("everything")
    lines = await hub.start_hubbub("logs", "everything", "--follow")
    row = (await lines.until(lambda row: row["kind"] == "stderr"))[-1]
    assert "Starting" in row["params"]["line"]
    assert await lines.interrupt() == 0
    unknown = await hub.hubbub("logs", "nobody")
    assert (unknown.status, unknown.error["code"]) == (1, "NOT_FOUND")


async def test_a_stateless_server_is_told_the_log_level_with_each_call_and_its_resources_are_listened_to(
    start_hub: Any, peer_scripts: Path
) -> None:
    hub = await start_hub({"one": {"command": sys.executable, "args": [str(peer_scripts / "telling_server.py")]}})
    await hub.connected("one")
    assert (await hub.client.servers.get("one")).protocol_version == "2026-07-28"
    async with anyio.create_task_group() as tasks:
        told = Told(hub, tasks, kinds=["log"])
        await told.listening.wait()
        await hub.client.call_tool("one", "say", {"text": "quiet"})
        await hub.client.call_tool("one", "say", {"text": "loud"}, log_level="info")
        first = await told.until(lambda _: True)
        tasks.cancel_scope.cancel()
    assert first.params["data"] == "loud"

    with anyio.fail_after(LIMIT_S):
        updates = hub.client.subscribe("one", "note://today")
        before = await anext(updates)
        await hub.client.call_tool("one", "write", {"text": "new"})
        after = await anext(updates)
        await updates.aclose()
    assert before.result["contents"][0]["text"] == "old"
    assert after.result["contents"][0]["text"] == "new"
