"""A server of FastMCP whose tools run as tasks (tasks extension), as the public conformance suite wants them.

    fastmcp_tasks_server.py        (PORT in the environment)

It runs in the environment of `hosts.txt`.
"""

import asyncio
import os

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

FAILS_AFTER_S = 1.0

mcp = FastMCP("tasks")
mcp.add_extension(TasksExtension())


@mcp.tool
async def greet(name: str) -> str:
    """Greets at once."""
    return f"Hello, {name}!"


@mcp.tool(task=True)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds} s"


@mcp.tool(task=TaskConfig(mode="required"))
async def failing_job() -> str:
    """Fails as a tool does."""
    await asyncio.sleep(FAILS_AFTER_S)
    raise ToolError("This job intentionally fails")


@mcp.tool(task=True)
async def protocol_error_job() -> str:
    """Fails as a server does."""
    raise MCPError(INTERNAL_ERROR, "This job intentionally breaks")


@mcp.tool(task=True)
async def confirm_delete(filename: str, ctx: Context) -> str | InputRequiredResult:
    """Asks before it deletes."""
    if not ctx.input_responses:
        return asks(confirm=f"Delete {filename}?")
    return f"{answers(ctx)['confirm']}: {filename}"


@mcp.tool(task=True)
async def multi_input(ctx: Context) -> str | InputRequiredResult:
    """Asks two questions at once."""
    if not ctx.input_responses:
        return asks(first="The first?", second="The second?")
    return f"Answered: {answers(ctx)}"


@mcp.tool(task=TaskConfig(mode="required"))
async def test_tool_with_task(ctx: Context) -> str | InputRequiredResult:
    """Asks for a name, and greets."""
    if not ctx.input_responses:
        return asks(user_name="What is your name?")
    return f"Hello, {answers(ctx)['user_name']}!"


def asks(**messages: str) -> InputRequiredResult:
    """A form for each of these, with the fields that the suite fills in."""
    schema = {"type": "object", "properties": {"confirm": {"type": "boolean"}, "name": {"type": "string"}}}
    return InputRequiredResult(
        input_requests={
            key: ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))
            for key, message in messages.items()
        }
    )


def answers(ctx: Context) -> dict[str, object]:
    """What was answered, by key; None for a question that was not accepted."""
    given = ctx.input_responses or {}
    return {key: answer.content if isinstance(answer, ElicitResult) else None for key, answer in given.items()}


if __name__ == "__main__":
    mcp.run("http", host="127.0.0.1", port=int(os.environ["PORT"]), show_banner=False, log_level="warning")
