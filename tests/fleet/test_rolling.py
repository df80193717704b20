"""Members are ended in order and started again, one after the other, while people call: no call is refused."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import grpc
import pytest

import hubbub_client
from hubbub.v1 import call_pb2, call_pb2_grpc
from hubbub_client import HubbubError

from .databases import databases
from .members import NAMES, Members, members
from .storm import Storm
from .torment import PROBES

LEASE_TTL_S = 6.0
LIMIT_S = 300
CALMLY_S = 0.02
SERVERS = tuple(f"{kind}{number}" for kind in PROBES for number in (1, 2))


Call = Callable[[str, str, dict[str, Any]], Awaitable[object]]
"""Calls a tool of a server with these arguments."""


@dataclass
class Caller:
    """Calls a server again and again; `longest_s` is how long it waited for a response at most."""

    call: Call
    server: str
    answered: int = 0
    longest_s: float = 0.0
    refused: list[str] = field(default_factory=list[str])

    async def call_forever(self) -> None:
        tool, arguments = PROBES[self.server[:-1]]
        while True:
            begun = monotonic()
            try:
                await self.call(self.server, tool, arguments)
                self.answered += 1
            except HubbubError as error:
                self.refused.append(f"{error.reason}: {error}")
            except grpc.aio.AioRpcError as error:
                self.refused.append(f"{error.code()}: {error.details()}")
            self.longest_s = max(self.longest_s, monotonic() - begun)
            await anyio.sleep(CALMLY_S)


FOLLOWS_THEIR_HEALTH = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": ""},
    "methodConfig": [{"name": [{}], "waitForReady": True}],
}
"""The service config of docs/fleet.md."""


@asynccontextmanager
async def without_a_stream(fleet: Members) -> AsyncGenerator[Call]:
    """Calls as RPCs of their own, by gRPC alone (https://github.com/grpc/proposal/blob/master/A17-client-side-health-checking.md)."""
    options = [("grpc.service_config", json.dumps(FOLLOWS_THEIR_HEALTH)), ("grpc.max_reconnect_backoff_ms", 100)]
    async with grpc.aio.insecure_channel(f"ipv4:{fleet.address()}", options=options) as channel:
        stub = call_pb2_grpc.CallServiceStub(channel)

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> object:
            params = json.dumps({"name": tool, "arguments": arguments}).encode()
            spec = call_pb2.CallSpec(server=server, method="tools/call", params=params)
            request = call_pb2.CallMethodRequest(spec=spec)
            return await stub.CallMethod(request, metadata=[("authorization", f"Bearer {fleet.token}")])

        yield call


async def all_taken(client: hubbub_client.Hub) -> None:
    """Until there is a member for each server."""
    for server in SERVERS:
        tool, arguments = PROBES[server[:-1]]
        while True:
            try:
                await client.call_tool(server, tool, arguments)
                break
            except HubbubError:
                await anyio.sleep(CALMLY_S)


async def all_answered(callers: list[Caller]) -> None:
    """Until each caller has had a response since now."""
    before = [caller.answered for caller in callers]
    while any(caller.answered <= was for caller, was in zip(callers, before, strict=True)):
        await anyio.sleep(CALMLY_S)


async def test_no_call_is_refused_while_members_are_restarted_in_order(
    tmp_path: Path, processes: None, capsys: pytest.CaptureFixture[str]
) -> None:
    storm = Storm(tmp_path, 0, LEASE_TTL_S)
    async with AsyncExitStack() as stack:
        both = stack.enter_context(databases())
        servers: dict[str, Any] = await storm.servers(stack)
        fleet = await stack.enter_async_context(members(tmp_path, both, servers, lease_ttl_s=LEASE_TTL_S))
        clients = [
            await stack.enter_async_context(hubbub_client.connect(fleet.address(*order), fleet.token))
            for order in (NAMES, NAMES[::-1])
        ]
        ways = [*(client.call_tool for client in clients), await stack.enter_async_context(without_a_stream(fleet))]
        callers = [Caller(call, server) for call in ways for server in SERVERS]
        with anyio.fail_after(LIMIT_S):
            await all_taken(clients[0])
            async with anyio.create_task_group() as calling:
                for caller in callers:
                    calling.start_soon(caller.call_forever)
                for name in NAMES:
                    await fleet.all[name].terminate()
                    await fleet.all[name].start()
                    await all_answered(callers)
                calling.cancel_scope.cancel()
    with capsys.disabled():
        longest_s = max(caller.longest_s for caller in callers)
        print(f"\n{sum(caller.answered for caller in callers)} calls, the longest of {longest_s:.2f} s")
    assert [caller.refused for caller in callers if caller.refused] == []
