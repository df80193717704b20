"""The standard health service: it tells when the store fails, when it is well again, and when the hub stops."""

import asyncio
from typing import Any

import anyio
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hubbubd.rpc.listeners import grpc_server as serving
from hubbubd.rpc.listeners.grpc_server import SERVICES, serve
from hubbubd.runtime.hub import Hub
from hubbubd.store import StoreUnavailable

from .conftest import LIMIT_S, explain, gate, refusing

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
INBOX = SERVICES["InboxService"].full_name


@pytest.fixture
async def checks(address: str) -> Any:
    async with grpc.aio.insecure_channel(address) as channel:
        yield health_pb2_grpc.HealthStub(channel)


def asking(service: str = "") -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


async def test_a_store_that_fails_is_told_at_once_and_its_recovery_by_itself(hub: Hub, checks: Any) -> None:
    watches = [checks.Watch(asking(name)) for name in ("", INBOX)]
    with anyio.fail_after(LIMIT_S):
        assert [(await watch.read()).status for watch in watches] == [SERVING, SERVING]
        hub.health.note_failure(StoreUnavailable("the disk is full"))
        assert [(await watch.read()).status for watch in watches] == [NOT_SERVING, NOT_SERVING]
        assert (await checks.Check(asking())).status == NOT_SERVING
        assert (await checks.Check(asking(INBOX))).status == NOT_SERVING
        # The store of these tests is well, so the next trial finds it so.
        assert [(await watch.read()).status for watch in watches] == [SERVING, SERVING]
        assert (await checks.Check(asking(INBOX))).status == SERVING
    for watch in watches:
        watch.cancel()


async def test_all_services_are_listed(checks: Any) -> None:
    listed = await checks.List(health_pb2.HealthListRequest())
    assert {name: each.status for name, each in listed.statuses.items()} == dict.fromkeys(
        ["", *(service.full_name for service in SERVICES.values())], SERVING
    )


async def test_a_service_that_is_not_there_is_unknown(checks: Any) -> None:
    with refusing("SERVICE_NOT_FOUND"):
        await checks.Check(asking("hubbub.v1.Nothing"))
    watch = checks.Watch(asking("hubbub.v1.Nothing"))
    with anyio.fail_after(LIMIT_S):
        assert (await watch.read()).status == UNKNOWN
    watch.cancel()


async def test_open_health_watches_end_when_the_hub_stops_and_hold_it_up_for_nothing(hub: Hub) -> None:
    serving = serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=10 * LIMIT_S)
    async with grpc.aio.insecure_channel(await serving.__aenter__()) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(asking())

        async def watched() -> str:  # read as it comes: gRPC gives no message any more once it has seen the end
            assert (await watch.read()).status == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await watch.read()
            return explain(ended.value).reason

        with anyio.fail_after(LIMIT_S):
            assert (await watch.read()).status == SERVING
            watching = asyncio.create_task(watched())
            await asyncio.sleep(0)
            await serving.__aexit__(None, None, None)
            assert await watching == "SHUTTING_DOWN"


async def test_a_client_may_ping_in_a_quiet_watch_as_often_as_the_hub_says(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that pings more often than its server allows is cut off at its third ping."""
    monkeypatch.setattr(serving, "PING_INTERVAL_MS", 50)
    options = [("grpc.keepalive_time_ms", 100), ("grpc.http2.max_pings_without_data", 0)]
    async with (
        serve(hub, listen="127.0.0.1:0", gate=gate(hub)) as address,
        grpc.aio.insecure_channel(address, options=options) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(asking())
        assert (await watch.read()).status == SERVING
        # A client sends one in a second at most.
        with anyio.move_on_after(4) as quiet:
            await watch.read()
        assert quiet.cancelled_caught
        watch.cancel()
