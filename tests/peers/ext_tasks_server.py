"""A server of the 2026-07-28 revision that makes every call a task (tasks extension), for the SDK's second generation.

ext_tasks_server.py stdio | http        (PORT in the environment for the latter)

greet      asks for a name, then for an age; the report says which keys were answered, and how often
fails      ends with a JSON-RPC error
endless    works until it is cancelled
"""

import os
import secrets
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from journal import note
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY as CAPABILITIES
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams, RequestParams

NAME = "io.modelcontextprotocol/tasks"
QUESTIONS = {"name": "string", "age": "integer"}


class TaskParams(RequestParams):
    """Params that name a task."""

    task_id: str


class UpdateParams(TaskParams):
    """Params of tasks/update."""

    input_responses: dict[str, Any]


@dataclass
class Task:
    """A task that the client's polls move on."""

    tool: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    updates: Counter[str] = field(default_factory=Counter[str])
    polls: int = 0
    cancelled: bool = False

    def look(self) -> dict[str, Any]:
        """What tasks/get tells."""
        self.polls += 1
        if self.cancelled:
            return self.wire("cancelled")
        if self.tool == "fails" and self.polls > 1:
            return self.wire("failed", error={"code": -32603, "message": "it broke", "data": {"part": 7}})
        if self.tool != "greet" or self.polls < 2:
            return self.wire("working", statusMessage=f"step {self.polls}")
        asked = next((key for key in QUESTIONS if key not in self.answers), None)
        if asked is not None:
            schema = {"type": "object", "properties": {asked: {"type": QUESTIONS[asked]}}, "required": [asked]}
            form = {"mode": "form", "message": f"Your {asked}?", "requestedSchema": schema}
            return self.wire("input_required", inputRequests={asked: {"method": "elicitation/create", "params": form}})
        told = {key: answer.get("content", {}).get(key) for key, answer in self.answers.items()}
        content = [{"type": "text", "text": f"{told['name']} is {told['age']}"}]
        return self.wire("completed", result={"content": content, "structuredContent": dict(self.updates)})

    def wire(self, status: str, **more: Any) -> dict[str, Any]:
        """The Task object."""
        now = datetime.now(UTC).isoformat()
        basic = {"taskId": self.id, "status": status, "createdAt": now, "lastUpdatedAt": now}
        return {**basic, "ttlMs": 600_000, "pollIntervalMs": 100, **more}


class Tasks(Extension):
    """Makes each call a task when the client can follow one."""

    identifier = NAME

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}

    def methods(self) -> list[MethodBinding]:
        return [
            MethodBinding("tasks/get", TaskParams, self.get),
            MethodBinding("tasks/update", UpdateParams, self.update),
            MethodBinding("tasks/cancel", TaskParams, self.cancel),
        ]

    async def intercept_tool_call(self, params: CallToolRequestParams, ctx: Any, call_next: Any) -> Any:
        declared = (ctx.meta or {}).get(CAPABILITIES, {}).get("extensions", {})
        if NAME not in declared:
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability")
        task = Task(params.name)
        self.tasks[task.id] = task
        return {"resultType": "task", **task.wire("working")}

    async def get(self, ctx: Any, params: TaskParams) -> Any:
        return self.find(params).look()

    async def update(self, ctx: Any, params: UpdateParams) -> Any:
        task = self.find(params)
        task.updates.update(params.input_responses.keys())
        task.answers.update(params.input_responses)
        for answer in params.input_responses.values():
            note("ext", answer)
        return {}

    async def cancel(self, ctx: Any, params: TaskParams) -> Any:
        self.find(params).cancelled = True
        return {}

    def find(self, params: TaskParams) -> Task:
        if params.task_id not in self.tasks:
            raise MCPError(INVALID_PARAMS, "Task not found")
        return self.tasks[params.task_id]


mcp = MCPServer("ext-tasks", log_level="WARNING", extensions=[Tasks()])


@mcp.tool()
async def greet() -> str:
    """Asks twice."""
    return ""


@mcp.tool()
async def fails() -> str:
    """Breaks."""
    return ""


@mcp.tool()
async def endless() -> str:
    """Goes on."""
    return ""


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        mcp.run("stdio")
    else:
        mcp.run("streamable-http", host="127.0.0.1", port=int(os.environ["PORT"]))
