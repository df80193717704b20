"""What the gRPC server hands on to the endpoints that bridges reach: its rate and its keys."""

from typing import Any

import anyio
import grpc
import pytest

from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.rpc.mcp import bridge
from hubbubd.runtime.hub import Hub
from hubbubd.store.vault.state_keys import StateKeyRing

from .conftest import LIMIT_S, Caller, gate
from .test_mcp_bridge import Stream, host, request
from .test_oversight import Make, make

__all__ = ["make"]


async def test_each_request_counts_against_the_rate_of_its_principal(make: Make) -> None:
    async with make(rpcs_per_s_per_principal=1.0) as world, host(world.local, server="away") as stream:
        with anyio.fail_after(LIMIT_S):
            while "error" not in (response := await pinged(stream)):
                pass
        assert response["error"]["data"]["reason"] == "RPC_RATE_EXCEEDED"


async def pinged(stream: Stream) -> Any:
    await stream.say(request(2, "ping"))
    return await stream.next()


async def test_the_states_of_hosts_behind_bridges_are_sealed_with_the_keys_of_the_hub(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[StateKeyRing] = []

    class Endpoints(bridge.BridgeEndpoints):
        def __init__(self, hub: Hub, state_keys: StateKeyRing, *others: Any) -> None:
            given.append(state_keys)
            super().__init__(hub, state_keys, *others)

    monkeypatch.setattr(bridge, "BridgeEndpoints", Endpoints)
    keys = StateKeyRing.in_memory(hub.clock)
    async with (
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), state_keys=keys, grace_s=0.1) as address,
        grpc.aio.insecure_channel(address) as channel,
        host(Caller(channel), server="away"),
    ):
        assert given == [keys]
