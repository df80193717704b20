"""Hosts that declare the tasks extension (2026-07-28), and what they do with a task."""

import asyncio
from typing import Any

from hubbubd.runtime.hub import Hub
from hubbubd.upstream.ports import Era

from ..runtime.conftest import FORM, settle
from .scripted import ABLE, ScriptedHost, host_at

ASKED = ("elicitation/create", FORM)
GIVEN = {"action": "accept", "content": {"name": "x"}}
DONE = [{"type": "text", "text": "done"}]
EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {**ABLE, "extensions": {EXTENSION: {}}}


def host_with_tasks(hub: Hub, capabilities: dict[str, Any] = DECLARED, **options: Any) -> ScriptedHost:
    """A host of 2026-07-28 that declares the extension."""
    return host_at(hub, Era.STATELESS, capabilities=capabilities, **options)


async def result(host: ScriptedHost, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request."""
    response = await host.send(method, params)
    assert "result" in response, response
    return response["result"]


async def made(host: ScriptedHost, tool: str = "t") -> str:
    """The id of the task that a call becomes."""
    task = await result(host, "tools/call", name=tool)
    assert task["resultType"] == "task"
    return task["taskId"]


async def reached(host: ScriptedHost, task_id: str, *statuses: str) -> dict[str, Any]:
    """The task once it has one of these statuses, looked at as often as the hub says."""
    while (task := await result(host, "tasks/get", taskId=task_id))["status"] not in statuses:
        await asyncio.sleep(task["pollIntervalMs"] / 1000)
    return task


async def answered(host: ScriptedHost, task_id: str, given: dict[str, Any] = GIVEN) -> None:
    """Answers what the task asks, as a person does."""
    task = await reached(host, task_id, "input_required")
    await settle(3)
    for key in task["inputRequests"]:
        assert await result(host, "tasks/update", taskId=task_id, inputResponses={key: given}) == {
            "resultType": "complete"
        }
