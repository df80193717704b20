"""Where the API is served, and how it stops."""

import asyncio
import math
import socket
import stat
import time
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hubbub.v1 import admin_pb2, server_pb2
from hubbubd.errors import ConfigError
from hubbubd.rpc.listeners import grpc_server
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.rpc.listeners.sockets import open_listener
from hubbubd.runtime.hub import Hub

from .conftest import LIMIT_S, TOKEN, Caller, explain, gate

GET_STATUS = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods_by_name["GetStatus"]
METADATA = (("authorization", f"Bearer {TOKEN}"),)


async def answers(address: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        return bool((await Caller(channel)(GET_STATUS, admin_pb2.GetStatusRequest())).pid)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "127.0.0.2:0"])
async def test_port_zero_picks_a_free_one_and_tells_it(hub: Hub, listen: str) -> None:
    async with serve(hub, listen=listen, gate=gate(hub)) as address:
        assert not address.endswith(":0")
        assert await answers(address)


async def test_a_unix_socket_is_open_to_its_owner_only(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    async with serve(hub, listen=f"unix:{path}", gate=gate(hub)) as address:
        assert address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await answers(address)
    assert not path.exists()


async def test_a_socket_that_a_dead_hub_left_behind_is_replaced(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with serve(hub, listen=f"unix:{path}", gate=gate(hub)) as address:
        assert await answers(address)


async def test_a_socket_on_which_somebody_listens_is_left_alone(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    async with serve(hub, listen=f"unix:{path}", gate=gate(hub)) as address:
        with pytest.raises(OSError, match=r"hub\.sock: another process does"):
            await serve(hub, listen=f"unix:{path}", gate=gate(hub)).__aenter__()
        assert await answers(address)


async def test_a_file_that_is_not_a_socket_is_left_alone(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("keep me")
    with pytest.raises(OSError, match="not a socket"):
        await serve(hub, listen=f"unix:{path}", gate=gate(hub)).__aenter__()
    assert path.read_text() == "keep me"


def test_an_answer_over_http_is_sent_at_once() -> None:
    """Headers and body are two packets: the second is not to wait until the first is acknowledged, 40 ms later."""
    listener, _ = open_listener("127.0.0.1:0")
    with listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_start_that_is_cut_short_leaves_the_port_free(hub: Hub) -> None:
    with open_listener("127.0.0.1:0")[0] as free:
        port = free.getsockname()[1]
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with serve(hub, listen=f"127.0.0.1:{port}", gate=gate(hub)):
            await anyio.lowlevel.checkpoint()
    open_listener(f"127.0.0.1:{port}")[0].close()


async def test_a_busy_port_is_named(hub: Hub) -> None:
    async with serve(hub, listen="127.0.0.1:0", gate=gate(hub)) as address:
        with pytest.raises(OSError, match=f"cannot listen on {address}: Address already in use"):
            await serve(hub, listen=address, gate=gate(hub)).__aenter__()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0", ":0"])
async def test_the_network_is_refused(hub: Hub, listen: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await serve(hub, listen=listen, gate=gate(hub)).__aenter__()
    assert caught.value.key == "listen"


async def test_a_hub_that_stops_says_so_and_ends_watches_with_a_token_to_resume_from(hub: Hub) -> None:
    health: list[int] = []
    ended: list[grpc.aio.AioRpcError] = []

    async with anyio.create_task_group() as watches:
        serving = serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=LIMIT_S)
        address = await serving.__aenter__()
        channel = grpc.aio.insecure_channel(address)
        synced = anyio.Event()

        async def watch_servers() -> None:
            path = "/hubbub.v1.ServerService/WatchServers"
            call = channel.unary_stream(path, response_deserializer=server_pb2.WatchServersResponse.FromString)
            try:
                async for response in call(b"", metadata=METADATA):
                    if response.HasField("synced"):
                        synced.set()
            except grpc.aio.AioRpcError as error:
                ended.append(error)

        watches.start_soon(watch_servers)
        with anyio.fail_after(LIMIT_S):
            await synced.wait()
            checks = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            health.append((await checks.read()).status)
            async with anyio.create_task_group() as stopping:
                stopping.start_soon(serving.__aexit__, None, None, None)
                health.append((await checks.read()).status)
                checks.cancel()
        await channel.close()

    assert health == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]
    refusal = explain(ended[0])
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
    assert refusal.metadata["resume_token"]


@pytest.mark.parametrize("again", range(4))  # if each stop had a grace, four in five would end the process
async def test_a_port_closes_while_what_did_not_leave_in_time_is_cut_off(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    """A stop whose grace runs out as another one ends could use a server that gRPC has freed."""
    monkeypatch.setattr(grpc_server, "CLOSE_GRACE_S", 0.0)
    a_port: Any = type(grpc.aio.server())
    stop, graces = a_port.stop, list[float | None]()

    async def late(self: Any, grace_s: float | None) -> None:
        graces.append(grace_s)
        if len(graces) == 1:
            await stop(self, grace_s)
            return
        stopping = asyncio.create_task(stop(self, grace_s))
        time.sleep(0.05)  # what is cut off ends in another thread, before the loop goes on
        await stopping

    monkeypatch.setattr(a_port, "stop", late)
    with anyio.fail_after(LIMIT_S):
        async with serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address:
            channel = grpc.aio.insecure_channel(address)
            stays: Any = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(metadata=METADATA)
            await stays.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            await stays.read()
    await channel.close()
    assert graces == [math.inf, None]  # neither runs out
