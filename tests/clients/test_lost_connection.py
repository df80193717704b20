"""What the library sends again when its connection to the hub is lost."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from hubbub.v1 import server_pb2
from hubbub_client import Unavailable
from hubbub_client.transport.channel import Stubs, open_channel
from hubbub_client.transport.connection import HubConnection
from hubbub_client.transport.discovery import HubLocation, discover

LIMIT_S = 60


@pytest.fixture
async def link(hub: Any) -> AsyncIterator[HubConnection]:
    made = HubConnection(HubLocation(None, None, hub.data_dir), None, 10, 10)
    yield made
    await made.close()


def _got(request: Any) -> Any:
    return server_pb2.GetServerResponse(server=server_pb2.Server(name=request.name))


def _removed(_: Any) -> Any:
    return server_pb2.RemoveServerResponse()


async def test_an_rpc_that_found_no_connection_is_sent_over_the_next_one(
    link: HubConnection, hub: Any, free_port: int
) -> None:
    hub.replies["RemoveServer"] = _removed
    gone = open_channel(discover(HubLocation(f"127.0.0.1:{free_port}", "t")))
    first = [Stubs(gone)]  # as a channel that says for a moment too long that it is connected
    with anyio.fail_after(LIMIT_S):
        request = server_pb2.RemoveServerRequest(name="a")
        await link.call(lambda stubs: (first.pop() if first else stubs).servers.RemoveServer, request)
    await gone.close()
    assert len(hub.requests("RemoveServer")) == 1


def _dies(hub: Any, method: str) -> None:
    """Let the hub die while it serves the next request of a method, and start again elsewhere."""
    restarting: list[asyncio.Task[None]] = []

    async def restart() -> None:
        await hub.stop()
        await hub.start()

    async def die(_: Any) -> Any:
        hub.replies[method] = _got
        restarting.append(asyncio.create_task(restart()))
        await anyio.sleep_forever()

    hub.replies[method] = die


async def test_what_only_reads_is_sent_again_to_the_next_hub(link: HubConnection, hub: Any) -> None:
    _dies(hub, "GetServer")
    with anyio.fail_after(LIMIT_S):
        request = server_pb2.GetServerRequest(name="a")
        assert (await link.call(lambda stubs: stubs.servers.GetServer, request)).server.name == "a"
    assert len(hub.requests("GetServer")) == 2


async def test_what_the_lost_hub_may_have_done_is_not_sent_again(link: HubConnection, hub: Any) -> None:
    _dies(hub, "RemoveServer")
    with anyio.fail_after(LIMIT_S), pytest.raises(Unavailable, match="the connection to the hub was lost"):
        await link.call(lambda stubs: stubs.servers.RemoveServer, server_pb2.RemoveServerRequest(name="a"))
    assert len(hub.requests("RemoveServer")) == 1
