"""Results of servers: checked against the revision, otherwise left as they came."""

import logging
from functools import cache
from typing import Annotated, Any, Final, Literal, cast

from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import (
    CancelTaskResult,
    CreateTaskResult,
    GetTaskPayloadResult,
    GetTaskResult,
    ListTasksResult,
)
from mcp_types import methods as tables
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

from hubbubd.upstream.era import Revision, StatelessRevision

_TASK_RESULTS: Final[dict[str, Any]] = {
    "tasks/get": GetTaskResult,
    "tasks/result": GetTaskPayloadResult,
    "tasks/cancel": CancelTaskResult,
    "tasks/list": ListTasksResult,
}
"""Of 2025-11-25, which the SDK's own tables leave out."""

TASKS_REVISION: Final = "2025-11-25"


class _Task(BaseModel):
    """What a task of the extension always has (SEP-2663, Task)."""

    model_config = ConfigDict(alias_generator=to_camel)

    task_id: Annotated[str, Field(min_length=1)]
    status_message: str | None = None
    ttl_ms: Annotated[int, Field(ge=0)] | None = None
    poll_interval_ms: Annotated[int, Field(ge=0)] | None = None


class _CreatedTask(_Task):
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]


class _OpenTask(_Task):
    status: Literal["working", "cancelled"]


class _AskingTask(_Task):
    status: Literal["input_required"]
    input_requests: dict[str, dict[str, Any]]


class _CompletedTask(_Task):
    status: Literal["completed"]
    result: dict[str, Any]


class _FailedTask(_Task):
    status: Literal["failed"]
    error: "_TaskError"


class _TaskError(BaseModel):
    code: int
    message: str


_CREATED: Final[TypeAdapter[Any]] = TypeAdapter(_CreatedTask)
_EXTENSION_RESULTS: Final[dict[str, TypeAdapter[Any]]] = {
    "tasks/get": TypeAdapter(
        Annotated[_OpenTask | _AskingTask | _CompletedTask | _FailedTask, Field(discriminator="status")]
    ),
}
"""Of the tasks extension of 2026-07-28, which the SDK does not have."""

logger = logging.getLogger(__name__)


def check_result(revision: Revision, method: str, params: dict[str, Any] | None, result: dict[str, Any]) -> None:
    """Completes a result in place and checks it. One of a method that the revision does not define passes.

    Raises pydantic.ValidationError.
    """
    adapter = _adapter(revision.version, method, bool(params and "task" in params))
    if isinstance(revision, StatelessRevision):
        if method == "tools/call" and result.get("resultType") == "task":
            adapter = _CREATED
        adapter = adapter or _EXTENSION_RESULTS.get(method)
    if adapter is None:
        return
    revision.complete(result)
    if revision.version == TASKS_REVISION:
        _fill_in_ttl(result)
    adapter.validate_python(result, by_name=False)


def absorb_tools(revision: StatelessRevision, listing: dict[str, Any]) -> None:
    """Keeps which arguments the listed tools want as headers, and drops from the listing the tools whose annotation
    of it is wrong, as a client must (2026-07-28, tools, x-mcp-header)."""
    kept: list[dict[str, Any]] = []
    for tool in cast("list[dict[str, Any]]", listing["tools"]):
        problem = find_invalid_x_mcp_header(tool.get("inputSchema"))
        if problem is not None:
            logger.warning("tool %r is left out: %s", tool["name"], problem)
            revision.tool_headers.pop(tool["name"], None)
            continue
        revision.tool_headers[tool["name"]] = x_mcp_header_map(tool.get("inputSchema"))
        kept.append(tool)
    listing["tools"] = kept


def _fill_in_ttl(result: dict[str, Any]) -> None:
    """Servers of the SDK's first generation leave out a `ttl` that is null."""
    listed = result.get("tasks")
    for task in (result, result.get("task"), *(cast("list[Any]", listed) if isinstance(listed, list) else ())):
        if isinstance(task, dict) and "taskId" in task:
            cast("dict[str, Any]", task).setdefault("ttl", None)


@cache
def _adapter(version: str, method: str, as_task: bool) -> TypeAdapter[Any] | None:
    shape: Any = tables.SERVER_RESULTS.get((method, version))
    if version == TASKS_REVISION:
        shape = shape or _TASK_RESULTS.get(method)
        if as_task and shape is not None:
            shape = CreateTaskResult | shape  # the server may as well answer at once
    return TypeAdapter(shape) if shape is not None else None
