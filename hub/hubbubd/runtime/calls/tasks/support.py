"""Which calls may, must or must not be tasks at their server.

Up to 2025-11-25 the caller decides, within what the server's capabilities and each tool's `execution.taskSupport` allow
(tasks, tool-level negotiation). From 2026-07-28 on the server decides (tasks extension, SEP-2663); a caller can only
insist on a server that has the extension.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.core.calls.call_states import Call
from hubbubd.core.servers.catalog import CatalogKind, Freshness, list_id
from hubbubd.core.tasks import EXTENSION
from hubbubd.errors import Category, FailedPrecondition, Fault, NotFound, UpstreamError
from hubbubd.runtime.catalog import Catalog
from hubbubd.upstream.ports import Era, Hello


class TaskSupport:
    """What the catalog knows of the task support of tools."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._read: dict[str, tuple[tuple[bytes, ...], Mapping[str, str]]] = {}

    def refusal(self, hello: Hello, call: Call, params: Mapping[str, Any]) -> Fault | None:
        """Return why the call cannot be made as requested, as far as is known now; None when it can."""
        wanted = wants_task(call, params)
        if call.method != "tools/call":
            return _unsupported(call, "only tools/call can be a task") if wanted else None
        if not _declared(hello):
            return _unsupported(call, f"{call.server} does not carry out tools as tasks") if wanted else None
        if hello.era is Era.STATELESS:
            return None
        tool = str(params.get("name"))
        support = self._of(call.server, tool)
        if wanted and support == "forbidden":
            return _unsupported(call, f"{call.server} does not carry out the tool {tool!r} as a task")
        if not wanted and support == "required":
            return _fault("TASK_REQUIRED", call, f"{call.server} carries out the tool {tool!r} only as a task")
        return None

    async def check(self, hello: Hello, call: Call, params: Mapping[str, Any]) -> None:
        """Do the same as `refusal`, after fetching the server's tools if the tool is unknown.

        Raises UpstreamError: TASK_REQUIRED, TASK_NOT_SUPPORTED.
        """
        known = call.method != "tools/call" or hello.era is Era.STATELESS or not _declared(hello)
        tool = str(params.get("name"))
        if not known and self._of(call.server, tool) is None:
            with suppress(FailedPrecondition, NotFound):
                if not self._is_whole(call.server):
                    await self._catalog.refresh(call.server)
            if wants_task(call, params) and self._of(call.server, tool) is None:
                raise UpstreamError(_unsupported(call, f"{call.server} does not list a tool {tool!r}"))
        fault = self.refusal(hello, call, params)
        if fault is not None:
            raise UpstreamError(fault)

    def of(self, hello: Hello, server: str, tool: str) -> str | None:
        """Return a tool's `taskSupport` where callers decide; None for an unknown tool, or where the server does."""
        return self._of(server, tool) if hello.era is Era.HANDSHAKE and _declared(hello) else None

    def _is_whole(self, server: str) -> bool:
        tools = self._catalog.record(server, CatalogKind.TOOL)
        return tools is not None and tools.freshness in (Freshness.FRESH, Freshness.EMPTY)

    def _of(self, server: str, tool: str) -> str | None:
        """Return a tool's taskSupport; None when the tool is unknown."""
        entries = self._catalog.entries(list_id(server, CatalogKind.TOOL))
        read = self._read.get(server)
        if read is None or read[0] is not entries:
            read = self._read[server] = entries, dict(map(_support, entries))
        return read[1].get(tool)


def wants_task(call: Call, params: Mapping[str, Any]) -> bool:
    """Return whether the caller requests a task."""
    return call.as_task or (call.method == "tools/call" and "task" in params)


def with_task(hello: Hello, config: ServerConfig, call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Return the params to send, with `task` if requested. Its ttl (ms) covers the call and a person's answer."""
    if hello.era is Era.STATELESS or not call.as_task or "task" in params:
        return params
    return {**params, "task": {"ttl": int((call.max_s + config.answered_within_s(durable=True)) * 1000)}}


def _declared(hello: Hello) -> bool:
    path = ("extensions", EXTENSION) if hello.era is Era.STATELESS else ("tasks", "requests", "tools", "call")
    step: Any = hello.capabilities
    for key in path:
        if not isinstance(step, dict):
            return False
        step = cast("dict[str, Any]", step).get(key)
    return step is not None


def _support(entry: bytes) -> tuple[str, str]:
    tool = payload.loads(entry)
    execution = tool.get("execution")
    support = cast("Mapping[str, Any]", execution).get("taskSupport") if isinstance(execution, Mapping) else None
    return str(tool.get("name")), support if support in ("optional", "required") else "forbidden"


def _unsupported(call: Call, message: str) -> Fault:
    return _fault("TASK_NOT_SUPPORTED", call, message)


def _fault(code: str, call: Call, message: str) -> Fault:
    return Fault(code=code, category=Category.PROTOCOL, message=message, details={"server": call.server})
