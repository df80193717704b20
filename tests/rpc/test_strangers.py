"""What somebody without a credential can use up: bytes, places, connections, time."""

import struct
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import grpc
import httpx2
import pytest
import structlog.testing
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hubbub.v1 import admin_pb2
from hubbubd.core.access import Principal
from hubbubd.errors import Unauthenticated
from hubbubd.rpc.auth.gate import CertificatePrincipal, Gate
from hubbubd.rpc.auth.unauthenticated import REQUEST_BYTES
from hubbubd.rpc.listeners.connect import MAX_INLINE_JSON_BYTES, serve_connect
from hubbubd.rpc.listeners.grpc_server import MAX_RPCS, MAX_STREAMS, serve
from hubbubd.rpc.listeners.metrics import serve_metrics
from hubbubd.rpc.messages import json_codec
from hubbubd.runtime.hub import Hub

from .by_hand import MAX_CONCURRENT_STREAMS, SETTINGS, begin, drain, raw
from .conftest import LIMIT_S, TOKEN, Caller, explain, gate, refusing
from .test_auth import GET_STATUS

RIGHT = {"authorization": f"Bearer {TOKEN}"}
GET_SELF = "/hubbub.v1.AdminService/GetSelf"
LIST_SERVERS = "/hubbub.v1.ServerService/ListServers"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"


async def test_whoever_connects_and_does_not_speak_is_not_kept_for_long(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbubd.rpc.listeners.grpc_server.HANDSHAKE_MS", 200)
    async with serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address, raw(address) as stream:
        with anyio.fail_after(LIMIT_S):
            await drain(stream)


async def test_a_connection_is_told_how_many_rpcs_it_may_have(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC holds its clients to what is announced (RFC 9113, 5.1.2)."""
    monkeypatch.setattr("hubbubd.rpc.listeners.grpc_server.MAX_STREAMS", 3)
    async with serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address, raw(address) as stream:
        await begin(stream, 5, WATCH)
        with anyio.fail_after(LIMIT_S):
            announced = await _settings(stream)
    assert announced[MAX_CONCURRENT_STREAMS] == 3


async def _settings(stream: SocketStream) -> dict[int, int]:
    """The settings that a server begins with."""
    reader = BufferedByteReceiveStream(stream)
    head = await reader.receive_exactly(9)
    assert head[3] == SETTINGS
    payload = await reader.receive_exactly(int.from_bytes(head[:3], "big"))
    return dict(struct.iter_unpack("!HI", payload))


@asynccontextmanager
async def crowded(hub: Hub, guarded: Gate, count: int, *paths: str, **credential: str) -> AsyncIterator[str]:
    """Serves, with `count` RPCs begun for each path, over a connection of its own, whose requests do not come."""
    async with AsyncExitStack() as opened:
        address = await opened.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=guarded, grace_s=0))
        tasks = await opened.enter_async_context(anyio.create_task_group())
        opened.callback(tasks.cancel_scope.cancel)
        for path in paths:
            stream = await opened.enter_async_context(raw(address))
            tasks.start_soon(drain, stream)
            await begin(stream, count, path, **credential)
        yield address


@pytest.mark.parametrize("paths", [(WATCH,), (WATCH, WATCH, CHECK, CHECK)], ids=["one", "four"])
async def test_health_checks_that_never_end_take_no_place_of_those_with_a_credential(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, paths: tuple[str, ...]
) -> None:
    monkeypatch.setattr("hubbubd.rpc.listeners.grpc_server.MAX_RPCS", 60)
    monkeypatch.setattr("hubbubd.rpc.auth.unauthenticated.MAX_OPEN", 20)
    async with crowded(hub, gate(hub), 400 // len(paths), *paths) as address:
        await _served(address)


async def _served(address: str, times: int = 10) -> None:
    """A client that has the hub's own token is served, each time over a connection of its own."""
    for _ in range(times):
        async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            assert (await Caller(channel)(GET_STATUS, admin_pb2.GetStatusRequest())).pid


def _shows_nothing(_: bytes) -> Principal:
    raise Unauthenticated("no certificate of these tests is good")


@pytest.mark.parametrize("path", [GET_SELF, "/hubbub.v1.InboxService/WatchPendingRequests"])
@pytest.mark.parametrize("certificates", [None, _shows_nothing])
@pytest.mark.parametrize("known", [{}, {"authorization": "Bearer wrong"}])
async def test_whoever_has_no_credential_is_refused_before_a_request_comes_and_keeps_no_place(
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    certificates: CertificatePrincipal | None,
    known: dict[str, str],
) -> None:
    monkeypatch.setattr("hubbubd.rpc.listeners.grpc_server.MAX_RPCS", 60)
    guarded = Gate(TOKEN, hub.clock, [hub.tokens], certificates)
    async with crowded(hub, guarded, 120, path, **known) as address:
        await _served(address)


async def test_requests_that_do_not_come_keep_no_place_once_their_credential_was_revoked(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbubd.rpc.listeners.grpc_server.MAX_RPCS", 60)
    token, made = await hub.tokens.create("ada", [], by="test", ttl_s=None, may_name_others=False)
    async with crowded(hub, gate(hub), 120, GET_SELF, authorization=f"Bearer {made}") as address:
        with anyio.fail_after(LIMIT_S):
            with pytest.raises(grpc.aio.AioRpcError, match="Concurrent RPC limit"):
                await _served(address, sys.maxsize)  # until all places are taken
            await hub.tokens.revoke(token.name)
            await _served(address)


async def test_one_connection_has_a_share_of_the_places_whoever_it_is(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_STREAMS <= MAX_RPCS / 5
    monkeypatch.setattr("hubbubd.rpc.listeners.grpc_server.MAX_RPCS", 60)
    monkeypatch.setattr("hubbubd.rpc.listeners.grpc_server.MAX_STREAMS", 20)
    async with crowded(hub, gate(hub), 400, GET_SELF, **RIGHT) as address:
        await _served(address)


async def test_a_health_check_that_sends_no_request_gives_its_place_back(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbubd.rpc.auth.unauthenticated.MAX_OPEN", 3)
    monkeypatch.setattr("hubbubd.rpc.auth.unauthenticated.REQUEST_S", 1.0)
    async with AsyncExitStack() as opened:
        address = await opened.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0))
        stub = health_pb2_grpc.HealthStub(await opened.enter_async_context(grpc.aio.insecure_channel(address)))
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status
        refused = set[str]()
        with anyio.fail_after(LIMIT_S):
            while not refused:  # they may have given their places back before anybody has asked
                stream = await opened.enter_async_context(raw(address))
                await begin(stream, 3, CHECK)
                for _ in range(50):
                    refused |= {await _reason(stub)} - {""}
                    await anyio.sleep(0.01)
            while reason := await _reason(stub):
                refused.add(reason)
                await anyio.sleep(0.01)
        assert refused == {"TOO_MANY_CHECKS"}


async def _reason(stub: health_pb2_grpc.HealthStub) -> str:
    try:
        await stub.Check(health_pb2.HealthCheckRequest())
    except grpc.aio.AioRpcError as error:
        return explain(error).reason
    return ""


def health(channel: grpc.aio.Channel) -> health_pb2_grpc.HealthStub:
    return health_pb2_grpc.HealthStub(channel)


async def _answered(stub: health_pb2_grpc.HealthStub, metadata: tuple[tuple[str, str], ...] = ()) -> None:
    """Both ways to ask for the health."""
    asked = health_pb2.HealthCheckRequest()
    with anyio.fail_after(LIMIT_S):
        assert (await stub.Check(asked, metadata=metadata)).status
        watch = stub.Watch(asked, metadata=metadata)
        assert (await watch.read()).status
        watch.cancel()


@asynccontextmanager
async def _crowded(address: str) -> AsyncIterator[None]:
    """Strangers have all the places and all the watches that there are for them."""
    async with AsyncExitStack() as opened:
        stub = health(await opened.enter_async_context(grpc.aio.insecure_channel(address)))
        for _ in range(2):
            watch = stub.Watch(health_pb2.HealthCheckRequest())
            opened.callback(watch.cancel)
            assert (await watch.read()).status
        with refusing("TOO_MANY_WATCHERS"):
            await stub.Watch(health_pb2.HealthCheckRequest()).read()
        stream = await opened.enter_async_context(raw(address))
        await begin(stream, 3, CHECK)
        with anyio.fail_after(LIMIT_S):
            while await _reason(stub) != "TOO_MANY_CHECKS":
                await anyio.sleep(0.01)
        yield


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbubd.rpc.auth.unauthenticated.MAX_OPEN", 5)
    monkeypatch.setattr("hubbubd.rpc.listeners.health.MAX_WATCHES", 2)
    monkeypatch.setattr("hubbubd.rpc.auth.unauthenticated.REQUEST_S", 10 * LIMIT_S)


@pytest.mark.usefixtures("few_places")
async def test_strangers_keep_nobody_with_a_credential_from_the_health(hub: Hub) -> None:
    _, made = await hub.tokens.create("ada", [], by="test", ttl_s=None, may_name_others=False)
    async with (
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address,
        _crowded(address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        for token in (TOKEN, made):
            await _answered(health(channel), (("authorization", f"Bearer {token}"),))
        with refusing("TOO_MANY_CHECKS"):
            await _answered(health(channel), (("authorization", "Bearer wrong"),))


async def test_whoever_has_a_credential_needs_no_place_of_strangers(
    hub: Hub, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbubd.rpc.auth.unauthenticated.MAX_OPEN", 0)
    async with grpc.aio.insecure_channel(address) as channel:
        await _answered(health(channel), (("authorization", f"Bearer {TOKEN}"),))
        assert await _reason(health(channel)) == "TOO_MANY_CHECKS"


@pytest.mark.usefixtures("few_places")
async def test_strangers_of_a_network_keep_nobody_on_the_hubs_own_machine_from_the_health(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbubd.rpc.auth.gate.is_loopback", lambda _: False)  # so that TCP comes from elsewhere
    async with (
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), local_socket=tmp_path / "hub.sock", grace_s=0) as address,
        _crowded(address),
        grpc.aio.insecure_channel(f"unix:{tmp_path / 'hub.sock'}") as channel,
    ):
        await _answered(health(channel))


@pytest.mark.usefixtures("few_places")
async def test_over_connect_watches_of_strangers_leave_room_for_whoever_has_a_credential(
    base: str, http: httpx2.AsyncClient
) -> None:
    headers, body = {"content-type": "application/connect+json"}, b"\0\0\0\0\2{}"
    path = "/grpc.health.v1.Health/Watch"
    steps: list[AsyncIterator[bytes]] = []
    async with AsyncExitStack() as opened:
        for known in ({}, {}, RIGHT, RIGHT, RIGHT):
            watch = await opened.enter_async_context(http.stream("POST", path, content=body, headers=headers | known))
            steps.append(watch.aiter_raw())  # which are closed with the last word of them
            assert b"SERVING" in await anext(steps[-1])
        refused = await http.post(path, content=body, headers=headers)
        assert b"TOO_MANY_WATCHERS" in refused.content


async def test_a_watch_of_the_health_by_somebody_counts_among_their_streams_and_ends_with_their_credential(
    hub: Hub,
) -> None:
    hub.quotas.streams.limit = 1
    token, made = await hub.tokens.create("ada", [], by="test", ttl_s=None, may_name_others=False)
    metadata = (("authorization", f"Bearer {made}"),)
    async with (
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        watch = health(channel).Watch(health_pb2.HealthCheckRequest(), metadata=metadata)
        with anyio.fail_after(LIMIT_S):
            assert (await watch.read()).status
            with refusing("TOO_MANY_STREAMS"):
                await health(channel).Watch(health_pb2.HealthCheckRequest(), metadata=metadata).read()
            await hub.tokens.revoke(token.name)
            with refusing("CREDENTIAL_ENDED"):
                await watch.read()


async def test_a_health_check_has_a_few_bytes_over_grpc(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with refusing("MESSAGE_TOO_LARGE"):
            await stub.Check(health_pb2.HealthCheckRequest(service="x" * REQUEST_BYTES))


# Connect


@pytest.fixture
async def base(hub: Hub) -> AsyncIterator[str]:
    async with serve_connect(hub, listen="127.0.0.1:0", gate=gate(hub)) as base:
        yield base


@pytest.fixture
async def http(base: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=base, verify=False, trust_env=False, timeout=LIMIT_S) as http:
        yield http


@pytest.mark.parametrize("kind", ["application/json", "application/proto"])
async def test_a_health_check_over_connect_beyond_a_few_bytes_is_refused_before_it_is_parsed(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    good = await http.post(CHECK, content=b"{}" if kind.endswith("json") else b"", headers={"content-type": kind})
    assert good.status_code == 200
    monkeypatch.setattr(json_codec, "loads", lambda *_args, **_named: pytest.fail("it was read"))
    long = await http.post(CHECK, content=b" " * (REQUEST_BYTES + 1), headers={"content-type": kind})
    assert (long.status_code, long.json()["code"]) == (429, "resource_exhausted")


async def test_json_of_very_many_values_is_refused_before_they_are_read(http: httpx2.AsyncClient) -> None:
    many = json_codec.MAX_VALUES + 2
    listed = '{"filter": {"names": [' + "[]," * many + "[]]}}"
    for text in (listed, "{" + ",".join(f'"k{at}": 1' for at in range(many)) + "}"):
        refused = await http.post(LIST_SERVERS, content=text, headers=RIGHT | {"content-type": "application/json"})
        assert (refused.status_code, refused.json()["code"]) == (429, "resource_exhausted")
        assert "MESSAGE_TOO_LARGE" in refused.text


async def test_long_json_is_read_beside_the_loop_and_short_json_at_once(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[bool] = []
    loads = json_codec.loads

    def noting(data: bytes, kind: type[Message]) -> Message:
        where.append(threading.current_thread() is threading.main_thread())
        return loads(data, kind)

    monkeypatch.setattr(json_codec, "loads", noting)
    for padding in (0, MAX_INLINE_JSON_BYTES):
        response = await http.post(
            GET_SELF, content="{" + " " * padding + "}", headers=RIGHT | {"content-type": "application/json"}
        )
        assert response.json()["caller"]["name"] == "local"
    assert where == [True, False]


async def test_a_request_that_does_not_come_is_not_waited_for_and_is_no_watcher_that_was_dropped(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbubd.rpc.listeners.connect.REQUEST_S", 0.2)
    head = f"POST {GET_SELF} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n"
    async with raw(base) as stream:
        with anyio.fail_after(LIMIT_S), structlog.testing.capture_logs() as logged:
            await stream.send(f"{head}authorization: Bearer {TOKEN}\r\n\r\n{{".encode())
            answer = BufferedByteReceiveStream(stream)
            assert (await answer.receive_until(b"\r\n", 100)).startswith(b"HTTP/1.1 400 ")
            await answer.receive_until(b"MALFORMED_REQUEST", 10_000)
    assert not [entry for entry in logged if entry["event"].startswith("caller read nothing")]


async def test_a_connection_over_which_somebody_was_let_in_is_kept(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub_http.connection.MAX_STRANGERS", 1)
    head = f"POST {GET_SELF} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"
    async with AsyncExitStack() as opened:
        stream = await opened.enter_async_context(raw(base))
        answers = BufferedByteReceiveStream(stream)
        with anyio.fail_after(LIMIT_S):
            for _ in range(2):
                await stream.send(f"{head}authorization: Bearer {TOKEN}\r\n\r\n{{}}".encode())
                await answers.receive_until(b'"credential"', 10_000)
                silent = [await opened.enter_async_context(raw(base)) for _ in range(2)]
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await silent[0].receive()


async def test_connections_over_which_nobody_was_let_in_make_room_for_others(
    base: str, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub_http.connection.MAX_STRANGERS", 3)
    async with AsyncExitStack() as opened:
        assert (await http.post(GET_SELF, json={}, headers=RIGHT)).status_code == 200  # no stranger from now on
        silent = [await opened.enter_async_context(raw(base)) for _ in range(3)]
        await silent[0].send(b"POST / HTTP/1.1\r\nx: ")
        fourth = await opened.enter_async_context(raw(base))
        with anyio.fail_after(LIMIT_S):
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await silent[0].receive()
            assert (await http.post(GET_SELF, json={}, headers=RIGHT)).status_code == 200
            await fourth.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert await fourth.receive()


async def test_a_connection_over_which_nobody_is_let_in_is_not_kept_for_long(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub_http.connection.STRANGER_S", 0.2)
    async with raw(base) as silent, raw(base) as slow:
        await slow.send(f"POST {CHECK} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n".encode())
        for each in (silent, slow):
            with anyio.fail_after(LIMIT_S), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await _to_the_end(each)


async def _to_the_end(stream: SocketStream) -> None:
    while True:
        await stream.receive()


async def test_a_watch_of_the_health_is_no_idle_stranger(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub_http.connection.STRANGER_S", 0.1)
    headers = {"content-type": "application/connect+json"}
    body = b"\0\0\0\0\2{}"
    async with http.stream("POST", "/grpc.health.v1.Health/Watch", content=body, headers=headers) as watch:
        steps = watch.aiter_raw()
        assert b"SERVING" in await anext(steps)
        with anyio.move_on_after(0.5) as quiet:
            await anext(steps)
        assert quiet.cancelled_caught


async def test_silent_connections_do_not_keep_anybody_from_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub_http.connection.MAX_STRANGERS", 9)
    async with AsyncExitStack() as opened:
        url = await opened.enter_async_context(serve_metrics("127.0.0.1:0", lambda: ("text/plain", b"x 1")))
        for _ in range(12):
            await opened.enter_async_context(raw(url.removesuffix("/metrics")))
        async with httpx2.AsyncClient(verify=False, trust_env=False, timeout=LIMIT_S) as http:
            assert (await http.get(url)).text == "x 1"
