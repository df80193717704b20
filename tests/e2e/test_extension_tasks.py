"""A 2026-07-28 server that makes every call a task of its own accord, over stdio and streamable HTTP."""

import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module", params=["stdio", "http"])
async def hub(request: pytest.FixtureRequest, start_shared_hub: Any, peer_scripts: Path, reached: Any) -> Any:
    """A hub with that server."""
    server = reached(request.param, sys.executable, str(peer_scripts / "ext_tasks_server.py"))
    hub = await start_shared_hub({"tasks": server}, connected=True)
    assert (await hub.client.servers.get("tasks")).protocol_version == "2026-07-28"
    return hub


async def start(hub: Any, tool: str, **options: Any) -> Any:
    return await hub.client.start_tool("tasks", tool, **options)


async def test_a_task_asks_twice_and_each_answer_arrives_once(hub: Any) -> None:
    call = await start(hub, "greet")
    (name,) = await hub.asked(call_id=call.id)
    assert (name.kind, name.cause_source) == ("elicitation_form", "wire")
    task = await hub.client.tasks.get(name.task_id)
    assert (task.role, task.call_id, task.pending_ids, task.ttl_ms) == ("client", call.id, (name.id,), 600_000)
    await hub.call(call.id, "waiting_input")
    await hub.answer(name, "--accept", '{"name": "Ada"}')
    (age,) = await hub.asked(call_id=call.id)
    assert age.id != name.id
    await hub.answer(age, "--accept", '{"age": 36}')
    ended = await hub.call(call.id)
    assert ended.state == "completed"
    assert ended.pending_ids == (name.id, age.id)
    assert ended.result["content"][0]["text"] == "Ada is 36"
    assert ended.result["structuredContent"] == {"name": 1, "age": 1}
    for asked in (name, age):
        assert (await hub.request(asked.id, delivery="delivered")).state == "answered"
    assert (await hub.hubbub("tasks", "result", task.id)).record == ended.result


async def test_a_task_and_its_question_survive_kill_9(start_hub: Any, peer_scripts: Path, reached: Any) -> None:
    servers = {"tasks": reached("http", sys.executable, str(peer_scripts / "ext_tasks_server.py"))}
    first = await start_hub(servers, connected=True)
    call = await start(first, "greet")
    (name,) = await first.asked(call_id=call.id)
    await first.kill()

    second = await start_hub(servers)
    (again,) = await second.asked(call_id=call.id)
    assert (again.id, again.task_id) == (name.id, name.task_id)
    await second.answer(again, "--accept", '{"name": "Ada"}')
    (age,) = await second.asked(call_id=call.id)
    await second.answer(age, "--accept", '{"age": 36}')
    ended = await second.call(call.id)
    assert ended.result["content"][0]["text"] == "Ada is 36"
    assert ended.result["structuredContent"] == {"name": 1, "age": 1}
