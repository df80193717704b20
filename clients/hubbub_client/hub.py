"""The hub, as a client sees it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hubbub.v1 import admin_pb2
from hubbub_client.calls import Calls, OnPending, OnProgress
from hubbub_client.catalog import Catalog
from hubbub_client.inbox import Inbox
from hubbub_client.link import Link
from hubbub_client.records import Call, HubStatus, read
from hubbub_client.servers import Servers
from hubbub_client.tasks import Tasks


class Admin:
    """AdminService."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def status(self) -> HubStatus:
        """The hub in numbers."""
        return read(HubStatus, await self._link.call(lambda hub: hub.admin.GetStatus, admin_pb2.GetStatusRequest()))


class Hub:
    """One hub, also over its restarts. Made by `connect`."""

    def __init__(self, link: Link) -> None:
        self.servers = Servers(link)
        self.inbox = Inbox(link)
        self.calls = Calls(link)
        self.tasks = Tasks(link)
        self.catalog = Catalog(link)
        self.admin = Admin(link)

    async def call_tool(
        self,
        server: str,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        call_id: str | None = None,
        detached: bool = False,
    ) -> dict[str, Any]:
        """The MCP result of a tool (tools/call); one with `isError` is returned, not raised. Else as `calls.call`."""
        call = await self.calls.call(
            server,
            "tools/call",
            {"name": tool, "arguments": dict(args or {})},
            timeout_s=timeout_s,
            on_progress=on_progress,
            call_id=call_id,
            detached=detached,
        )
        return call.result

    async def call(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_pending: OnPending | None = None,
        call_id: str | None = None,
        detached: bool = False,
    ) -> Any:
        """The MCP result of any request. As `calls.call`."""
        call = await self.calls.call(
            server,
            method,
            params,
            timeout_s=timeout_s,
            on_progress=on_progress,
            on_pending=on_pending,
            call_id=call_id,
            detached=detached,
        )
        return call.result

    async def start(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        call_id: str | None = None,
    ) -> Call:
        """Queues a detached call and returns at once. As `calls.start`."""
        return await self.calls.start(server, method, params, timeout_s=timeout_s, call_id=call_id)


@asynccontextmanager
async def connect(
    address: str | None = None,
    token: str | None = None,
    data_dir: str | Path | None = None,
    *,
    name: str | None = None,
    connect_timeout_s: float = 5.0,
    silence_s: float = 15.0,
) -> AsyncGenerator[Hub, None]:
    """The hub at `address` (HOST:PORT or unix:PATH), as an asynchronous context.

    What is not given comes from HUBBUB_ADDRESS and HUBBUB_TOKEN, else from `client.json` in `data_dir`,
    HUBBUB_DATA_DIR or the default data directory. `name` is who answers and claims are said to come from.
    Each RPC waits up to `connect_timeout_s` for a hub; a watch that is silent for `silence_s` is opened anew.
    Raises Unavailable (HUB_UNREACHABLE) when there is no hub.
    """
    link = Link(address, token, data_dir, name, connect_timeout_s, silence_s)
    try:
        await link.ready()
        yield Hub(link)
    finally:
        await link.close()
