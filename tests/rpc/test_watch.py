"""Watches over the wire."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import grpc
import pytest

from hubbub.v1 import server_pb2
from hubbubd.core.access import EVERYTHING
from hubbubd.core.filters import ServerFilter
from hubbubd.rpc import methods
from hubbubd.rpc.messages import api_records, watch
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.servers.registry import ServerRecord

from .conftest import LIMIT_S, Caller, explain, settled, until

Response = server_pb2.WatchServersResponse


def open_watch(api: Caller, token: str = "") -> grpc.aio.UnaryStreamCall[bytes, Response]:
    method = api.channel.unary_stream(
        "/hubbub.v1.ServerService/WatchServers", response_deserializer=Response.FromString
    )
    request = server_pb2.WatchServersRequest(resume_token=token)
    return method(request.SerializeToString(), metadata=api.metadata)


async def next_of(call: grpc.aio.UnaryStreamCall[bytes, Response], *kinds: str) -> Response:
    """The next response of one of these kinds; others are let pass."""
    with anyio.fail_after(LIMIT_S):
        while (response := await call.read()).WhichOneof("event") not in kinds:
            pass
    return response


async def read_all(call: grpc.aio.UnaryStreamCall[bytes, Response], seen: list[Response]) -> None:
    """Reads to the end of a watch. Raises AioRpcError with the reason of it."""
    with anyio.fail_after(LIMIT_S):
        while (response := await call.read()) is not grpc.aio.EOF:
            seen.append(response)


async def test_a_watch_shows_what_there_is_then_says_so_then_tells_changes(hub: Hub, api: Caller) -> None:
    await hub.servers.disconnect("away")
    call = open_watch(api)
    first = await next_of(call, "upsert", "synced")
    assert first.upsert.name == "away"
    assert first.upsert.desired_state == server_pb2.DESIRED_STATE_DISCONNECTED
    assert (await next_of(call, "upsert", "synced")).HasField("synced")
    await hub.servers.connect("away")
    while (changed := (await next_of(call, "upsert")).upsert).desired_state != server_pb2.DESIRED_STATE_CONNECTED:
        pass
    assert changed.name == "away"
    call.cancel()


class Endless:
    """A servicer whose watch always has more to say."""

    def __init__(self) -> None:
        self.closed = False

    def __getattr__(self, name: str) -> object:
        return None  # no other RPC is called

    async def watch_servers(self, request: server_pb2.WatchServersRequest) -> AsyncGenerator[bytes, None]:
        try:
            for number in itertools.count():
                upsert = server_pb2.Server(name="x" * 1000)
                yield Response(resume_token=str(number), upsert=upsert).SerializeToString()
        finally:
            self.closed = True


async def test_a_watcher_that_reads_nothing_is_closed_and_told_its_token_when_it_reads_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods, "STALL_S", 0.2)
    servicer, server = Endless(), grpc.aio.server()
    service = server_pb2.DESCRIPTOR.services_by_name["ServerService"]
    dropped: list[bool] = []
    handler = methods.make_generic_handler(service, servicer, 1024, on_dropped=lambda: dropped.append(True))
    server.add_generic_rpc_handlers([handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    # Without probing, a stream's window stays at 64 KiB, however fast the way is.
    async with settled(), grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.http2.bdp_probe", 0)]) as channel:
        call = open_watch(Caller(channel))
        await next_of(call, "upsert")
        await until(lambda: servicer.closed)
        assert dropped == [True]
        seen: list[Response] = []
        with pytest.raises(grpc.aio.AioRpcError) as closed:
            await read_all(call, seen)
        await server.stop(0)
    refusal = explain(closed.value)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "WATCHER_TOO_SLOW")
    assert refusal.metadata["resume_token"] == seen[-1].resume_token
    assert [response.resume_token for response in seen] == [str(number) for number in range(1, len(seen) + 1)]


async def test_a_hub_that_ends_its_watches_gives_each_a_token_that_works(hub: Hub, api: Caller) -> None:
    call = open_watch(api)
    await next_of(call, "synced")
    hub.end_watches()
    try:
        await next_of(call, "reset")
    except grpc.aio.AioRpcError as error:
        refusal = explain(error)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
    assert refusal.metadata["resume_token"]


async def test_a_change_is_serialised_once_for_all_who_watch_the_same(hub: Hub) -> None:
    converted: list[ServerRecord] = []
    seen: list[list[bytes]] = []

    def counting(record: ServerRecord) -> server_pb2.Server:
        converted.append(record)
        return api_records.server(record, EVERYTHING)

    async def follow(watched: AsyncGenerator[bytes, None], responses: list[bytes]) -> None:
        async with aclosing(watched):
            async for response in watched:
                responses.append(response)
                if Response.FromString(response).HasField("removed"):
                    return

    await hub.servers.disconnect("away")
    async with anyio.create_task_group() as watchers:
        for _ in range(20):
            seen.append([])
            events = hub.servers.watch(ServerFilter())
            watchers.start_soon(follow, watch.serialize_events(events, Response, counting), seen[-1])
        with anyio.fail_after(LIMIT_S):
            while not all(len(responses) >= 2 for responses in seen):
                await anyio.sleep(0)
            before = len(converted)
            await hub.servers.connect("away")
            while not all(len(responses) > 2 for responses in seen):
                await anyio.sleep(0)
            watchers.cancel_scope.cancel()

    first = seen[0][2]
    assert before == 20
    assert all(responses[2] is first for responses in seen)
    assert len(converted) - before == len({id(response) for responses in seen for response in responses[2:]})
