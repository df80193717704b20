"""Results of servers: checked against the revision, otherwise left as they came."""

import logging
from functools import cache
from typing import Any, Final, cast

from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import (
    CancelTaskResult,
    CreateTaskResult,
    GetTaskPayloadResult,
    GetTaskResult,
    ListTasksResult,
)
from mcp_types import methods as tables
from pydantic import TypeAdapter

from hubbubd.upstream.era import Revision, StatelessRevision

_TASK_RESULTS: Final[dict[str, Any]] = {
    "tasks/get": GetTaskResult,
    "tasks/result": GetTaskPayloadResult,
    "tasks/cancel": CancelTaskResult,
    "tasks/list": ListTasksResult,
}
"""Of 2025-11-25, which the SDK's own tables leave out."""

logger = logging.getLogger(__name__)


def check_result(revision: Revision, method: str, params: dict[str, Any] | None, result: dict[str, Any]) -> None:
    """Completes a result in place and checks it. One of a method that the revision does not define passes.

    Raises pydantic.ValidationError.
    """
    adapter = _adapter(revision.version, method, bool(params and params.get("task")))
    if adapter is None:
        return
    revision.complete(result)
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


@cache
def _adapter(version: str, method: str, as_task: bool) -> TypeAdapter[Any] | None:
    shape: Any = tables.SERVER_RESULTS.get((method, version))
    if version == "2025-11-25":
        shape = shape or _TASK_RESULTS.get(method)
        if as_task and shape is not None:
            shape = CreateTaskResult | shape  # the server may as well answer at once
    return TypeAdapter(shape) if shape is not None else None
