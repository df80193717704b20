"""McpService: MCP hosts behind the bridge `hubbub mcp`, and for operators the hosts that are connected."""

import gc
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from hubbub.v1 import mcp_pb2 as pb
from hubbubd.core.access import Principal
from hubbubd.rpc.mcp import connected_hosts
from hubbubd.rpc.methods import Write
from hubbubd.runtime.hub import Hub
from hubbubd.store.vault.state_keys import StateKeyRing

if TYPE_CHECKING:
    from hubbubd.rpc.mcp.bridge import BridgeEndpoints


class McpService:
    """Implements hubbub.v1.McpService. `charge` counts a request, and raises HubError beyond its principal's rate."""

    def __init__(
        self, hub: Hub, state_keys: StateKeyRing, charge: Callable[[Principal], None], max_message_bytes: int
    ) -> None:
        self._hub = hub
        self._state_keys = state_keys
        self._charge = charge
        self._max_message_bytes = max_message_bytes
        self._bridge_endpoints: BridgeEndpoints | None = None
        self._import_lock = anyio.Lock()

    async def serve(self, frames: AsyncIterator[pb.ServeRequest], write: Write) -> None:
        """Carry one host's messages until it leaves or the stream breaks (`BridgeEndpoints.serve`)."""
        await (await self._open_bridge_endpoints()).serve(frames, write)

    async def list_hosts(self, request: pb.ListHostsRequest) -> pb.ListHostsResponse:
        """Return a page of the hosts that are connected, newest first."""
        return connected_hosts.list_page(self._hub, request)

    async def _open_bridge_endpoints(self) -> "BridgeEndpoints":
        """Return what serves bridges; for the first one it is imported."""
        async with self._import_lock:
            if self._bridge_endpoints is None:
                self._bridge_endpoints = (await to_thread.run_sync(_import_bridge_endpoints))(
                    self._hub, self._state_keys, self._charge, self._max_message_bytes
                )
        return self._bridge_endpoints


def _import_bridge_endpoints() -> "type[BridgeEndpoints]":
    """Import what serves bridges; called in a thread, since it takes a tenth of a second."""
    from hubbubd.rpc.mcp.bridge import BridgeEndpoints  # lazy: 2 MB, and needed with the first bridge

    gc.freeze()  # as at the start of the hub: what imports create is permanent
    return BridgeEndpoints
