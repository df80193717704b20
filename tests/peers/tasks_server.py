"""A server that asks with tasks and reports what it saw as JSON. For the first generation of the SDK.

    tasks_server.py stdio | http | sse        (PORT in the environment for the latter two)

Each tool sends a task-augmented sampling or elicitation (`kind`) and then does what its name says. Task requests
go out raw, so that an answer is reported as it came, and an error as `{"error": code, "message": text}`.
"""

import json
import os
import sys
from collections.abc import Awaitable
from typing import Any

import anyio
import anyio.lowlevel
from journal import note
from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.exceptions import McpError
from mcp.shared.message import ServerMessageMetadata

mcp = FastMCP("tasks", log_level="WARNING", host="127.0.0.1", port=int(os.environ.get("PORT", "0")))

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "title": "Name"}},
    "required": ["name"],
}
# What clients told of their tasks, oldest first.
statuses: list[dict[str, Any]] = []


async def keep_status(notification: types.TaskStatusNotification) -> None:
    statuses.append(notification.params.model_dump(mode="json", by_alias=True))


mcp._mcp_server.notification_handlers[types.TaskStatusNotification] = keep_status


def question(kind: str, ttl: int) -> types.ElicitRequest | types.CreateMessageRequest:
    task = types.TaskMetadata(ttl=ttl)
    if kind == "elicitation":
        params = types.ElicitRequestFormParams(message="Who are you?", requestedSchema=SCHEMA, task=task)
        return types.ElicitRequest(params=params)
    content = types.TextContent(type="text", text="Say something")
    message = types.SamplingMessage(role="user", content=content)
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], maxTokens=50, task=task)
    )


async def send(ctx: Context, request: Any, metadata: ServerMessageMetadata | None = None) -> dict[str, Any]:
    """The answer to a request, as it came."""
    return await reported(ctx.session.send_request(types.ServerRequest(request), types.Result, metadata=metadata))


async def reported(answer: Awaitable[types.Result]) -> dict[str, Any]:
    try:
        return (await answer).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except McpError as exc:
        return {"error": exc.error.code, "message": exc.error.message}


async def ask(ctx: Context, kind: str, ttl: int) -> dict[str, Any]:
    """The answer to a new question: a CreateTaskResult, if all is well."""
    return await send(ctx, question(kind, ttl), ServerMessageMetadata(related_request_id=ctx.request_id))


async def get(ctx: Context, task_id: str) -> dict[str, Any]:
    return await send(ctx, types.GetTaskRequest(params=types.GetTaskRequestParams(taskId=task_id)))


async def result(ctx: Context, task_id: str) -> dict[str, Any]:
    return await send(ctx, types.GetTaskPayloadRequest(params=types.GetTaskPayloadRequestParams(taskId=task_id)))


async def cancel(ctx: Context, task_id: str) -> dict[str, Any]:
    return await send(ctx, types.CancelTaskRequest(params=types.CancelTaskRequestParams(taskId=task_id)))


async def list_tasks(ctx: Context, cursor: str | None = None) -> dict[str, Any]:
    return await send(ctx, types.ListTasksRequest(params=types.PaginatedRequestParams(cursor=cursor)))


@mcp.tool()
async def sdk(ctx: Context, kind: str, ttl: int = 600_000) -> str:
    """The SDK's own way: asks, polls until the task has ended, fetches the result."""
    features = ctx.session.experimental
    if kind == "elicitation":
        answer: types.Result = await features.elicit_as_task("Who are you?", SCHEMA, ttl=ttl)
    else:
        content = types.TextContent(type="text", text="Say something")
        answer = await features.create_message_as_task(
            [types.SamplingMessage(role="user", content=content)], max_tokens=50, ttl=ttl
        )
    return answer.model_dump_json(by_alias=True, exclude_none=True)


@mcp.tool()
async def poll(ctx: Context, kind: str, ttl: int = 600_000) -> str:
    """Asks, polls at the interval that the client suggests, fetches the result twice."""
    created = await ask(ctx, kind, ttl)
    if "task" not in created:
        return json.dumps({"created": created})
    task_id = created["task"]["taskId"]
    seen = [await get(ctx, task_id)]
    while seen[-1].get("status") in ("working", "input_required"):
        await anyio.sleep(seen[-1].get("pollInterval", 100) / 1000)
        seen.append(await get(ctx, task_id))
    results = [await result(ctx, task_id), await result(ctx, task_id)]
    return json.dumps({"created": created, "seen": seen, "results": results})


@mcp.tool()
async def blocked_result(ctx: Context, kind: str, ttl: int = 600_000) -> str:
    """Asks and waits in tasks/result; meanwhile gets and lists the task."""
    created = await ask(ctx, kind, ttl)
    task_id = created["task"]["taskId"]
    report: dict[str, Any] = {"created": created}
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            report["result"] = await result(ctx, task_id)
            report["answered_last"] = "list" in report

        tasks.start_soon(wait)
        # Lets tasks/result go out first.
        await anyio.lowlevel.checkpoint()
        report["get"] = await get(ctx, task_id)
        report["list"] = await list_tasks(ctx)
        await ctx.report_progress(1)  # only now may somebody answer
    report["after"] = await get(ctx, task_id)
    return json.dumps(report)


@mcp.tool()
async def cancel_blocked(ctx: Context, kind: str, ttl: int = 600_000) -> str:
    """Asks, waits in tasks/result and cancels the task meanwhile; cancels it once more."""
    created = await ask(ctx, kind, ttl)
    task_id = created["task"]["taskId"]
    report: dict[str, Any] = {"created": created}
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            report["result"] = await result(ctx, task_id)

        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        report["cancel"] = await cancel(ctx, task_id)
    report["get"] = await get(ctx, task_id)
    report["again"] = await cancel(ctx, task_id)
    return json.dumps(report)


@mcp.tool()
async def start(ctx: Context, kind: str, ttl: int = 600_000) -> str:
    """Asks and returns at once what came back."""
    return json.dumps(await ask(ctx, kind, ttl))


@mcp.tool()
async def fetch(ctx: Context, task_id: str) -> str:
    """Gets a task and, if it has ended, its result."""
    report = {"get": await get(ctx, task_id)}
    if report["get"].get("status") in ("completed", "failed", "cancelled"):
        report["result"] = await result(ctx, task_id)
        note("tasks", report["result"])
    return json.dumps(report)


@mcp.tool()
async def pages(ctx: Context, cursor: str | None = None) -> str:
    """Lists all tasks page by page, from a cursor if one is given."""
    found = [await list_tasks(ctx, cursor)]
    while found[-1].get("nextCursor"):
        found.append(await list_tasks(ctx, found[-1]["nextCursor"]))
    return json.dumps(found)


@mcp.tool()
async def unknown(ctx: Context, task_id: str = "no-such-task") -> str:
    """Gets, fetches and cancels a task that is not this server's, and lists from a cursor that is none."""
    report = {"get": await get(ctx, task_id), "result": await result(ctx, task_id)}
    report |= {"cancel": await cancel(ctx, task_id), "list": await list_tasks(ctx, "no-such-cursor")}
    return json.dumps(report)


@mcp.tool()
async def told(ctx: Context) -> str:
    """What came in notifications/tasks/status so far, and what the client declared."""
    params = ctx.session.client_params
    declared = params.capabilities.model_dump(mode="json", by_alias=True, exclude_none=True) if params else None
    return json.dumps({"statuses": statuses, "capabilities": declared})


@mcp.tool()
async def session(ctx: Context) -> str:
    """The id of the HTTP session of this call."""
    request = ctx.request_context.request
    return json.dumps(request.headers.get("mcp-session-id") if request else None)


if __name__ == "__main__":
    mcp.run({"stdio": "stdio", "http": "streamable-http", "sse": "sse"}[sys.argv[1]])
