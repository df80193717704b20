"""Which calls may, must or must not be tasks at their server.

Up to 2025-11-25 the caller decides, within what the server's capabilities and each tool's `execution.taskSupport` allow
(tasks, tool-level negotiation). From 2026-07-28 on the server decides (tasks extension, SEP-2663); a caller can only
insist on a server that has the extension.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import Call
from hubbubd.core.servers.catalog import CatalogKind, Freshness, list_id
from hubbubd.core.tasks import EXTENSION
from hubbubd.errors import Category, FailedPrecondition, Fault, NotFound, UpstreamError
from hubbubd.runtime.catalog import Catalog
from hubbubd.upstream.ports import Era, Hello


class _ParsedTools(NamedTuple):
    """The entries of a server's list of tools, and the `taskSupport` of each tool."""

    entries: tuple[bytes, ...]
    support_by_tool: Mapping[str, str]


class TaskSupport:
    """Checks whether calls may be tasks, by the server's capabilities and by the catalog's list of tools."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._parsed: dict[str, _ParsedTools] = {}

    def find_refusal(self, hello: Hello, call: Call, params: Mapping[str, Any]) -> Fault | None:
        """Return the fault of a call that cannot be made as requested, as far as is known now; None if it can."""
        as_task = wants_task(call, params)
        if call.method != "tools/call":
            return _unsupported_fault(call, "only tools/call can be a task") if as_task else None
        if not _has_task_support(hello):
            return _unsupported_fault(call, f"{call.server} does not carry out tools as tasks") if as_task else None
        if hello.era is Era.STATELESS:
            return None
        tool = str(params.get("name"))
        support = self._listed_support(call.server, tool)
        if as_task and support == "forbidden":
            return _unsupported_fault(call, f"{call.server} does not carry out the tool {tool!r} as a task")
        if not as_task and support == "required":
            return _task_fault("TASK_REQUIRED", call, f"{call.server} carries out the tool {tool!r} only as a task")
        return None

    def needs_catalog(self, hello: Hello, call: Call) -> bool:
        """Return whether only the server's list of tools says if a call can be made as requested."""
        return call.method == "tools/call" and hello.era is not Era.STATELESS and _has_task_support(hello)

    async def require_supported(self, hello: Hello, call: Call, params: Mapping[str, Any]) -> None:
        """Raise what `find_refusal` returns, after fetching the server's tools if the tool is unknown.

        Raises UpstreamError: TASK_REQUIRED, TASK_NOT_SUPPORTED.
        """
        tool = str(params.get("name"))
        if self.needs_catalog(hello, call) and self._listed_support(call.server, tool) is None:
            tools = self._catalog.record(call.server, CatalogKind.TOOL)
            if tools is None or tools.freshness not in (Freshness.FRESH, Freshness.EMPTY):
                with suppress(FailedPrecondition, NotFound):
                    await self._catalog.refresh(call.server)
            if wants_task(call, params) and self._listed_support(call.server, tool) is None:
                raise UpstreamError(_unsupported_fault(call, f"{call.server} does not list a tool {tool!r}"))
        fault = self.find_refusal(hello, call, params)
        if fault is not None:
            raise UpstreamError(fault)

    def tool_support(self, hello: Hello, server: str, tool: str) -> str | None:
        """Return a tool's `taskSupport` where callers decide; None for an unknown tool, or where the server decides."""
        return self._listed_support(server, tool) if hello.era is Era.HANDSHAKE and _has_task_support(hello) else None

    def _listed_support(self, server: str, tool: str) -> str | None:
        """Return a tool's taskSupport; None when the tool is unknown."""
        entries = self._catalog.entries(list_id(server, CatalogKind.TOOL))
        parsed = self._parsed.get(server)
        if parsed is None or parsed.entries is not entries:  # a changed list is another tuple
            parsed = self._parsed[server] = _ParsedTools(entries, dict(map(_parse_support, entries)))
        return parsed.support_by_tool.get(tool)


def wants_task(call: Call, params: Mapping[str, Any]) -> bool:
    """Return whether the caller requests a task."""
    return call.as_task or (call.method == "tools/call" and "task" in params)


def with_task(hello: Hello, config: ServerConfig, call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Return the params to send, with `task` if requested. Its ttl (ms) covers the call and a person's answer."""
    if hello.era is Era.STATELESS or not call.as_task or "task" in params:
        return params
    return {**params, "task": {"ttl": int((call.max_s + config.find_answer_limit_s(durable=True)) * 1000)}}


def _has_task_support(hello: Hello) -> bool:
    """Return whether the server declares that it carries out tool calls as tasks."""
    path = ("extensions", EXTENSION) if hello.era is Era.STATELESS else ("tasks", "requests", "tools", "call")
    capability: Any = hello.capabilities
    for key in path:
        if not isinstance(capability, dict):
            return False
        capability = cast("dict[str, Any]", capability).get(key)
    return capability is not None


def _parse_support(entry: bytes) -> tuple[str, str]:
    """Return the name of a tool in a list, and its `taskSupport`."""
    tool = payload.loads(entry)
    execution = tool.get("execution")
    support = cast("Mapping[str, Any]", execution).get("taskSupport") if isinstance(execution, Mapping) else None
    return str(tool.get("name")), support if support in ("optional", "required") else "forbidden"


def _unsupported_fault(call: Call, message: str) -> Fault:
    return _task_fault("TASK_NOT_SUPPORTED", call, message)


def _task_fault(code: str, call: Call, message: str) -> Fault:
    return Fault(code=code, category=Category.PROTOCOL, message=message, details={"server": call.server})
