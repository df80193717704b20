"""What somebody would try who wants in, or wants the hub to fall over."""

import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hubbub.v1 import admin_pb2
from hubbubd.core.access import Grant, Role
from hubbubd.errors import Unauthenticated
from hubbubd.rpc.auth.gate import MAX_TOKEN, Authentication, Gate
from hubbubd.rpc.interceptors import Oversight
from hubbubd.rpc.listeners.connect import serve_connect
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.rpc.listeners.health import MAX_WATCHES
from hubbubd.runtime.hub import Hub

from .conftest import LIMIT_S, TOKEN, Caller, gate, refusing
from .test_auth import GET_STATUS

RIGHT = {"authorization": f"Bearer {TOKEN}"}
GET_SELF = "/hubbub.v1.AdminService/GetSelf"


@pytest.fixture
async def http(hub: Hub) -> AsyncIterator[httpx2.AsyncClient]:
    """A caller over Connect of a hub that is on the network too."""
    networked = Gate(TOKEN, hub.clock, [hub.tokens], networked=True)
    async with (
        serve_connect(hub, listen="127.0.0.1:0", gate=networked) as base,
        httpx2.AsyncClient(base_url=base, verify=False, trust_env=False, timeout=LIMIT_S) as http,
    ):
        yield http


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-proto"])
async def test_a_caller_does_not_say_itself_where_it_calls_from(http: httpx2.AsyncClient, header: str) -> None:
    said = {header: "for=203.0.113.9" if header == "forwarded" else "203.0.113.9"}
    response = await http.post(GET_SELF, json={}, headers=RIGHT | said)
    assert response.json()["caller"]["name"] == "local"  # whose token is good on this machine only


async def test_the_token_of_the_machine_is_refused_over_connect_from_elsewhere(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hubbubd.rpc.listeners.connect.is_loopback", lambda _: False
    )  # so that TCP comes from elsewhere
    response = await http.post(GET_SELF, json={}, headers=RIGHT)
    assert response.status_code == 401
    assert "TOKEN_LOCAL_ONLY" in response.text


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "Application/gRPC; x=y"])
async def test_grpc_over_the_wrong_protocol_is_refused_before_it_fails(
    http: httpx2.AsyncClient, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        response = await http.post(GET_SELF, content=b"", headers={"content-type": kind})
    assert response.status_code == 415
    assert not caplog.records


async def test_strangers_do_not_take_all_the_room_by_watching_the_health(address: str, api: Caller) -> None:
    async with AsyncExitStack() as opened, grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with anyio.fail_after(LIMIT_S):
            for _ in range(MAX_WATCHES):
                watch = stub.Watch(health_pb2.HealthCheckRequest())
                opened.callback(watch.cancel)
                await watch.read()
            with refusing("TOO_MANY_WATCHERS"):
                await stub.Watch(health_pb2.HealthCheckRequest()).read()
            assert (await stub.Check(health_pb2.HealthCheckRequest())).status
    assert (await api(GET_STATUS, admin_pb2.GetStatusRequest())).pid


async def test_a_credential_that_is_too_long_is_looked_at_by_nobody(hub: Hub) -> None:
    seen: list[int] = []

    class Noting:
        async def principal(self, token: str) -> None:
            seen.append(len(token))

    strict = Gate(TOKEN, hub.clock, [Noting()])
    for length in (MAX_TOKEN - 7, MAX_TOKEN - 6):  # with `Bearer ` before it
        with pytest.raises(Unauthenticated):
            await strict.admit(
                GET_SELF, [("authorization", "Bearer " + "a" * length)], Oversight(hub.audit, hub.quotas)
            )
    assert seen == [MAX_TOKEN - 7]


async def test_what_has_no_rule_is_not_served_to_anybody(hub: Hub) -> None:
    """However it came there: by a service that was added without thinking of who may use it."""

    async def serve(_request: bytes, _context: object) -> bytes:
        return b"served"

    handlers = {"Forgotten": grpc.unary_unary_rpc_method_handler(serve)}
    server = grpc.aio.server(interceptors=[Authentication(gate(hub), Oversight(hub.audit, hub.quotas))])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("hubbub.v1.Extra", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            forgotten = channel.unary_unary("/hubbub.v1.Extra/Forgotten")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await forgotten(b"", metadata=(("authorization", f"Bearer {TOKEN}"),), timeout=LIMIT_S)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        await server.stop(None)


async def test_rpcs_that_are_open_at_once_are_bounded_whoever_began_them(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbubd.rpc.listeners.grpc_server.MAX_RPCS", 2)
    async with AsyncExitStack() as opened:
        address = await opened.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0))
        channel = await opened.enter_async_context(grpc.aio.insecure_channel(address))
        stub = health_pb2_grpc.HealthStub(channel)
        with anyio.fail_after(LIMIT_S):
            watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
            for watch in watches:
                await watch.read()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Check(health_pb2.HealthCheckRequest())
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            watches[0].cancel()
            while not await _answers(stub):
                await anyio.sleep(0.01)
            watches[1].cancel()


async def _answers(stub: health_pb2_grpc.HealthStub) -> bool:
    try:
        return bool(await stub.Check(health_pb2.HealthCheckRequest()))
    except grpc.aio.AioRpcError:
        return False


async def test_a_token_is_compared_whole_and_as_a_digest_however_much_of_it_is_right(
    hub: Hub, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = await hub.tokens.create("ada", [Grant(Role.VIEWER)], by="test", ttl_s=None, may_name_others=False)
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def noting(known: str | bytes, given: str | bytes) -> bool:
        compared.append(tuple(each.encode() if isinstance(each, str) else each for each in (known, given)))  # type: ignore[arg-type]
        return compare(known, given)  # type: ignore[arg-type]

    monkeypatch.setattr(hmac, "compare_digest", noting)
    start = len("hbt_") + 13
    for right in (0, 1, 42):
        wrong = secret[: start + right] + "".join("a" if each != "a" else "b" for each in secret[start + right :])
        compared.clear()
        api.metadata = (("authorization", f"Bearer {wrong}"),)
        assert (await api.refused(GET_STATUS, b"")).reason == "TOKEN_INVALID"
        # Once with the hub's own token, once with the digest of the one that has this id: nothing else was looked at.
        assert [known for known, _ in compared[:1] if known == wrong.encode()] == [wrong.encode()]
        digests = [pair for pair in compared if all(len(each) == 64 for each in pair)]
        assert len(digests) == 1
        assert len(compared) == 2
