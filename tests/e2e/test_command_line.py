"""The command line against a real hub: what scripts rely on."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd.config import ServerConfig

from .conftest import LIMIT_S, POLL_S
from .terminals import terminal

pytestmark = pytest.mark.usefixtures("started_for_real")


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any, peer_scripts: Path) -> Any:
    """A hub with a server that asks, sleeps and counts."""
    asking = {"command": sys.executable, "args": [str(peer_scripts / "asking_server.py"), "stdio"]}
    return await start_shared_hub(
        {"asking": asking | {"protocol": "2025-11-25"}},
        hub={
            "allow_commands": [{"command": sys.executable, "args": ["**"]}],
            "allow_hosts": ["127.0.0.1"],
            "trust_local": False,
        },
        connected=True,
    )


def good(peer_scripts: Path) -> list[str]:
    return ["-I", "-S", str(peer_scripts / "bad.py"), "good"]


def becomes(state: str) -> Callable[[Any], bool]:
    """Whether a line of a watch shows a record in this state."""
    return lambda line: line["type"] == "upsert" and line["record"]["state"] == state


async def asleep(hub: Any, name: str) -> None:
    """Waits until the server has begun a call of `sleep`: it takes no note of one that is cancelled before."""
    with anyio.fail_after(LIMIT_S):
        while f"sleeping {name}" not in [line.params.get("line") for line in await hub.client.events.logs("asking")]:
            await anyio.sleep(POLL_S)


async def heard(hub: Any, name: str) -> None:
    """Waits until the server has heard that a call of `sleep` was cancelled."""
    with anyio.fail_after(LIMIT_S):
        while True:
            result = await hub.client.call_tool("asking", "cancelled_calls")
            if name in result.text.split(","):
                return


async def detach(hub: Any, tool: str, **arguments: Any) -> str:
    """Starts a call by the command line; its id."""
    return (await hub.hubbub("call", "asking", tool, json.dumps(arguments), "--detach")).record["id"]


async def test_an_update_replaces_all_that_a_server_was_added_with(hub: Any, peer_scripts: Path) -> None:
    spec = ("near", "--", sys.executable, *good(peer_scripts))
    assert (await hub.hubbub("servers", "add", "--set", "max_in_flight=2", *spec)).status == 0
    await hub.connected("near")
    before = (await hub.hubbub("servers", "get", "near")).record["pid"]
    refused = await hub.hubbub("servers", "update", "--set", "call_timeout_s=-1", *spec)
    assert (refused.status, refused.error["code"]) == (1, "INVALID_ARGUMENT")
    assert "spec.timeouts.call" in refused.error["message"]
    options = ("--set", "call_timeout_s=0.2", "--set", "retries=7")
    updated = await hub.hubbub("servers", "update", *options, *spec)
    assert updated.record["name"] == "near"
    assert updated.record["pid"] == before  # these need no other connection
    updated = await hub.hubbub("servers", "update", *options, "--set", "sampling=false", *spec)
    assert updated.record["name"] == "near"
    watch = hub.client.servers.watch(["near"])
    await hub.watched(watch, lambda each: each.state == "connected" and each.pid != before)
    read_only = await hub.hubbub("servers", "update", "asking", "--url", "http://127.0.0.1:9/mcp")
    assert (read_only.status, read_only.error["reason"]) == (1, "SERVER_READ_ONLY")
    unknown = await hub.hubbub("servers", "update", "nobody", "--url", "http://127.0.0.1:9/mcp")
    assert (unknown.status, unknown.error["code"]) == (1, "NOT_FOUND")
    assert (await hub.hubbub("servers", "remove", "near")).status == 0


async def test_a_server_takes_every_option_that_a_file_can_give_it(hub: Any, peer_scripts: Path) -> None:
    elsewhere = {"name", "command", "args", "env", "cwd", "url", "transport", "headers", "oauth"}
    elsewhere |= {"ca", "cookies"}  # of files only
    defaults = ServerConfig.model_validate({"name": "x", "command": "x"}).model_dump(mode="json")
    given = {name: 1000 if value is None else value for name, value in defaults.items() if name not in elsewhere}
    given["retryable_errors"] = ["PING_TIMEOUT"]
    words = [
        word
        for name, value in given.items()
        for word in ("--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    ]
    added = await hub.hubbub("servers", "add", "all", *words, "--", sys.executable, *good(peer_scripts))
    assert added.record["name"] == "all"
    await hub.connected("all")
    assert (await hub.hubbub("servers", "remove", "all")).status == 0


async def test_the_queue_is_counted_and_cleared_and_calls_are_aborted_only_when_asked(hub: Any) -> None:
    at_work = await detach(hub, "sleep", name="at work")
    await hub.call(at_work, "in_progress")
    await asleep(hub, "at work")
    waiting = [await detach(hub, "count", steps=1) for _ in range(2)]
    counts = (await hub.hubbub("queue", "asking")).record
    assert (counts["queued"], counts["in_progress"]) == (2, 1)
    cleared = (await hub.hubbub("queue", "asking", "--clear")).record
    assert (cleared["queued"], cleared["in_progress"]) == (0, 1)
    assert cleared["cancelled"] == counts["cancelled"] + 2
    for call_id in waiting:
        assert (await hub.hubbub("calls", "get", call_id)).record["state"] == "cancelled"
    refused = await hub.hubbub("calls", "cancel", at_work)
    assert (refused.status, refused.error["reason"]) == (1, "CALL_IN_PROGRESS")
    assert (await hub.hubbub("calls", "cancel", at_work, "--abort")).record["state"] == "cancelled"
    await heard(hub, "at work")


async def test_a_watched_call_ends_the_watch(hub: Any) -> None:
    call_id = await detach(hub, "ask")
    (asked,) = await hub.asked(call_id=call_id)
    watching = await hub.start_hubbub("calls", "watch", call_id)
    await watching.until(becomes("waiting_input"))
    await hub.answer(asked, "--accept", '{"name": "Ada"}')
    lines = await watching.until(becomes("completed"))
    assert lines[-1]["record"]["result"]["content"][0]["text"] == "accept Ada"
    assert await watching.wait() == 0
    listed = (await hub.hubbub("calls", "list", "--server", "asking", "--state", "completed", "--limit", "1")).lines
    assert [call["id"] for call in listed] == [call_id]


async def test_what_a_tool_says_is_read_at_a_terminal_and_a_program_gets_all_of_it(hub: Any) -> None:
    async with terminal(hub, "call", "asking", "count", '{"steps": 1}', stdin=False) as person:
        assert await person.ends() == 0
        assert "structuredContent" not in person.shown
    async with terminal(hub, "call", "asking", "no_such_tool", stdin=False) as person:
        await person.sees("the tool says that this is an error")
        assert await person.ends() == 1
    piped = await hub.hubbub("call", "asking", "cancelled_calls")
    assert piped.record["content"][0]["type"] == "text"


async def test_a_command_answers_every_question_that_a_watch_shows(hub: Any) -> None:
    answer = (
        f'{Path(sys.executable).with_name("hubbub")} inbox answer $HUBBUB_REQUEST_ID --accept \'{{"name": "Bot"}}\''
    )
    watching = await hub.start_hubbub("inbox", "watch", "--state", "open", "--exec", answer)
    await watching.until(lambda line: line["type"] == "synced")
    for _ in range(2):
        result = await hub.client.call_tool("asking", "ask")
        assert result.text == "accept Bot"
    assert await watching.interrupt() == 0
