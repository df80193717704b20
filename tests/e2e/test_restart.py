"""What outlives the hub: answers, tasks, watches. What does not: any process that it started."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub_client import Bookmark, Removed, Reset, Synced, Upsert

from .conftest import LIMIT_S, POLL_S


@pytest.fixture
def servers(peer_scripts: Path) -> dict[str, Any]:
    """A server that asks, and one that leaves processes behind."""
    return {
        "asking": {
            "command": sys.executable,
            "args": [str(peer_scripts / "asking_server.py"), "stdio"],
            "protocol": "2025-11-25",
        },
        "family": {"command": sys.executable, "args": ["-I", "-S", str(peer_scripts / "bad.py"), "family"]},
    }


async def ask(hub: Any) -> Any:
    call = await hub.client.start_tool("asking", "ask")
    return (await hub.asked(call_id=call.id))[0]


async def test_an_acknowledged_answer_survives_kill_9_and_no_process_does(start_hub: Any, servers: Any) -> None:
    first = await start_hub(servers)
    await first.connected("asking", "family")
    left = json.loads((await first.client.call_tool("family", "echo")).text)
    asked = await ask(first)
    await first.client.inbox.answer(asked.id, accept={"name": "Ada"})
    await first.kill()
    with anyio.fail_after(LIMIT_S):
        while any(Path(f"/proc/{pid}").exists() for pid in left):  # init takes a moment to bury them
            await anyio.sleep(POLL_S)

    second = await start_hub(servers)
    shown = (await second.hubbub("inbox", "show", asked.id)).record
    assert (shown["state"], shown["answer"]) == ("answered", {"action": "accept", "content": {"name": "Ada"}})
    again = await second.hubbub("inbox", "answer", asked.id, "--decline")
    assert (again.status, again.error["reason"]) == (1, "ALREADY_ANSWERED")


async def test_a_task_is_answered_after_a_restart_and_its_server_finds_it(
    start_hub: Any, mcp1_python: str, peer_scripts: Path, http_peer: Any
) -> None:
    peer = http_peer([mcp1_python, str(peer_scripts / "tasks_server.py"), "http"])
    server = {"tasks": {"url": f"{peer.url}/mcp"}}
    first = await start_hub(server)
    started = await first.client.call_tool("tasks", "start", {"kind": "sampling"})
    task_id = json.loads(started.text)["task"]["taskId"]
    (asked,) = await first.asked()
    await first.kill()

    second = await start_hub(server)
    (kept,) = await second.asked()
    assert (kept.id, kept.task_id) == (asked.id, task_id)
    await second.answer(kept, "--text", "Good day")
    fetched = await second.client.call_tool("tasks", "fetch", {"task_id": task_id})
    seen = json.loads(fetched.text)
    assert seen["get"]["status"] == "completed"
    assert seen["result"]["content"]["text"] == "Good day"


async def test_watches_go_on_over_a_restart_and_lose_nothing(start_hub: Any, servers: Any) -> None:
    """The library and the command line each see both halves of the story once, wherever the hub now listens."""
    server = {"asking": servers["asking"]}
    first = await start_hub(server)
    seen: list[tuple[str, str]] = []
    watching = await first.start_hubbub("inbox", "watch")
    assert (await watching.next())["type"] == "synced"
    library = first.client.inbox.watch()

    async def see(until: tuple[str, str]) -> None:
        with anyio.fail_after(LIMIT_S):
            while until not in seen:
                event = await anext(library)
                if not isinstance(event, Bookmark):  # there is one whenever nothing happens for a while
                    seen.append(step(event))

    await see(("synced", ""))
    asked = await ask(first)
    await see((asked.id, "open"))
    await watching.until(lambda line: step_of(line) == (asked.id, "open"))
    await first.terminate()

    second = await start_hub(server)
    assert second.ready["grpc"] != first.ready["grpc"]
    again = await ask(second)
    await second.answer(again, "--accept", '{"name": "Ada"}')
    await second.request(again.id, delivery="delivered")
    await see((again.id, "answered"))
    lines = await watching.until(lambda line: step_of(line) == (again.id, "answered"))
    story = [(asked.id, "withdrawn"), (again.id, "open"), (again.id, "answered")]
    for steps in (seen[seen.index((asked.id, "open")) + 1 :], [step_of(line) for line in lines]):
        assert not [kind for kind, _ in steps if kind in ("synced", "reset", "removed")]
        assert steps == sorted(steps, key=story.index)
        # A state that has passed before a watcher is back may be folded into the next.
        assert set(steps) >= {story[0], story[2]}
    assert await watching.interrupt() == 0
    await library.aclose()


def step(event: Any) -> tuple[str, str]:
    """The id and state of a record, or what else an event is."""
    match event:
        case Upsert(record=record):
            return record.id, record.state
        case Synced() | Reset() | Removed():
            return event.type, ""
        case _:
            return "", ""


def step_of(line: Any) -> tuple[str, str]:
    """As `step`, of a line of the command line."""
    return (line["record"]["id"], line["record"]["state"]) if line["type"] == "upsert" else (line["type"], "")
