"""Calls that the reference server carries out as tasks, over stdio and streamable HTTP."""

from typing import Any

import pytest

RESEARCH = "simulate-research-query"


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


async def start(hub: Any, **arguments: Any) -> Any:
    params = {"name": RESEARCH, "arguments": {"topic": "python", **arguments}}
    return await hub.client.start("everything", "tools/call", params, as_task=True)


async def task_of(hub: Any, call: Any, *statuses: str) -> Any:
    """The task of a call, once it has one of these statuses."""
    watch = hub.client.tasks.watch(role="client")
    return (await hub.watched(watch, lambda t: t.call_id == call.id and t.status in statuses))[0]


async def test_a_task_asks_in_its_course_and_goes_on_with_the_answer(hub: Any) -> None:
    call = await start(hub, ambiguous=True)
    (asked,) = await hub.asked(call_id=call.id)
    assert asked.kind == "elicitation_form"
    assert asked.cause_source == "wire"
    task = await task_of(hub, call, "input_required")
    assert (asked.task_id, task.role, task.method) == (task.id, "client", "tools/call")
    assert task.pending_ids == (asked.id,)
    waiting = await hub.call(call.id, "waiting_input")
    assert (waiting.task_id, waiting.pending_ids) == (task.id, (asked.id,))
    await hub.answer(asked, "--accept", '{"interpretation": "snake"}')
    result = (await hub.call(call.id)).result
    assert "python (snake)" in result["content"][0]["text"]
    assert (await hub.hubbub("tasks", "get", task.id)).record["status"] == "completed"
    assert (await hub.hubbub("tasks", "result", task.id)).record == result
    assert (await hub.request(asked.id, delivery="delivered")).state == "answered"


async def test_the_command_line_waits_for_a_task(hub: Any) -> None:
    ran = await hub.hubbub("call", "everything", RESEARCH, '{"topic": "tea"}', "--as-task")
    assert "Research Report: tea" in ran.record["content"][0]["text"]
