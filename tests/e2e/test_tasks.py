"""A server of the first SDK generation that asks by tasks, over stdio and streamable HTTP."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub_client import ToolResult

from .conftest import LIMIT_S

RELATED = "io.modelcontextprotocol/related-task"
KINDS = ["elicitation", "sampling"]
ANSWERS: dict[str, tuple[str, ...]] = {
    "elicitation": ("--accept", '{"name": "Ada"}'),
    "sampling": ("--text", "Good day"),
}


@pytest.fixture(scope="module", params=["stdio", "http"])
async def hub(
    request: pytest.FixtureRequest, start_shared_hub: Any, mcp1_python: str, peer_scripts: Path, reached: Any
) -> Any:
    """A hub with the asking server."""
    server = reached(request.param, mcp1_python, str(peer_scripts / "tasks_server.py"))
    return await start_shared_hub({"tasks": server}, connected=True)


async def start(hub: Any, tool: str, **arguments: Any) -> Any:
    return await hub.client.start_tool("tasks", tool, arguments)


async def report(hub: Any, call_id: str) -> Any:
    call = await hub.call(call_id)
    assert call.state == "completed", call.error
    return parsed(ToolResult(call.result))


def parsed(result: ToolResult) -> Any:
    assert not result.is_error, result
    return json.loads(result.text)


def holds(result: Any, kind: str) -> None:
    """The answer that `ANSWERS` gives has arrived."""
    if kind == "elicitation":
        assert (result["action"], result["content"]) == ("accept", {"name": "Ada"})
    else:
        assert (result["role"], result["content"]) == ("assistant", {"type": "text", "text": "Good day"})


@pytest.mark.parametrize("kind", KINDS)
async def test_the_sdk_polls_until_a_person_has_answered(hub: Any, kind: str) -> None:
    call = await start(hub, "sdk", kind=kind)
    (asked,) = await hub.asked(call_id=call.id)
    task = (await hub.hubbub("tasks", "get", asked.task_id)).record
    assert (task["role"], task["status"], task["call_id"]) == ("receiver", "working", call.id)
    await hub.answer(asked, *ANSWERS[kind])
    holds(await report(hub, call.id), kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_works_while_a_person_is_asked_and_keeps_its_result(hub: Any, kind: str) -> None:
    call = await start(hub, "poll", kind=kind)
    (asked,) = await hub.asked(call_id=call.id)
    await hub.answer(asked, *ANSWERS[kind])
    seen = await report(hub, call.id)
    created = seen["created"]["task"]
    assert (created["taskId"], created["status"], created["ttl"]) == (asked.task_id, "working", 600_000)
    assert {step["status"] for step in seen["seen"]} <= {"working", "completed"}
    assert seen["seen"][-1]["status"] == "completed"
    assert seen["results"][0] == seen["results"][1]
    assert seen["results"][0]["_meta"][RELATED] == {"taskId": asked.task_id}
    holds(seen["results"][0], kind)
    assert (await hub.request(asked.id, delivery="delivered")).state == "answered"


async def test_the_operator_lists_reads_and_cancels_tasks(hub: Any) -> None:
    """The command line's `tasks`, and what the server sees of it."""
    watching = await hub.start_hubbub("tasks", "watch", "--server", "tasks", "--role", "receiver")
    await watching.until(lambda e: e["type"] == "synced")
    calls, made = list[Any](), list[str]()
    for kind in KINDS:  # one after the other, so that it is known which is older
        calls.append(await start(hub, "start", kind=kind))
        made.append((await report(hub, calls[-1].id))["task"]["taskId"])
    kept, dropped = made
    listed = (await hub.hubbub("tasks", "list", "--server", "tasks", "--role", "receiver")).lines
    assert [task["id"] for task in listed][:2] == [dropped, kept]
    early = await hub.hubbub("tasks", "result", kept)
    assert (early.status, early.error["reason"]) == (1, "TASK_NOT_FINISHED")
    assert (await hub.hubbub("tasks", "cancel", dropped)).record["status"] == "cancelled"
    await hub.watched(hub.client.inbox.watch(states=["withdrawn"]), lambda r: r.task_id == dropped)
    (asked,) = await hub.asked(call_id=calls[0].id)
    assert asked.task_id == kept
    await hub.answer(asked, "--decline")
    assert (await hub.hubbub("tasks", "result", kept)).record["action"] == "decline"
    again = await hub.hubbub("tasks", "cancel", kept)
    assert (again.status, again.error["reason"]) == (1, "TASK_FINISHED")
    wanted = {(dropped, "cancelled"), (kept, "completed")}
    with anyio.fail_after(LIMIT_S):
        while True:  # over HTTP a notification and a call have ways of their own
            told = parsed(await hub.client.call_tool("tasks", "told"))
            if {(s["taskId"], s["status"]) for s in told["statuses"]} >= wanted:
                break
    assert parsed(await hub.client.call_tool("tasks", "fetch", {"task_id": dropped}))["get"]["status"] == "cancelled"
    seen = await watching.until(lambda e: (e["record"]["id"], e["record"]["status"]) == (kept, "completed"))
    assert {"type", "resume_token", "record"} == set(seen[-1])
    assert await watching.interrupt() == 0
    unknown = await hub.hubbub("tasks", "get", "nope")
    assert (unknown.status, unknown.error["code"]) == (1, "NOT_FOUND")
