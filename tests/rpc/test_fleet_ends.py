"""Forwards to members, and of members, that end: each call is made once, and none is refused for it."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import hubbub_client
from hubbub.v1 import event_pb2, event_pb2_grpc
from hubbub_client.transport import discovery
from hubbubd.core.calls.call_states import Call
from hubbubd.rpc.fleet.forwards import forwarding
from hubbubd.rpc.fleet.peers import Peers
from hubbubd.rpc.listeners import grpc_server
from hubbubd.rpc.listeners.connect import serve_connect
from hubbubd.rpc.servicers import call_stream
from hubbubd.runtime import hub as running
from hubbubd.runtime.calls import CallSpec
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.ownership import Owner
from hubbubd.telemetry import metrics

from ..runtime.test_measures import Seen
from .call_stream import streamed
from .conftest import LIMIT_S, TOKEN, Caller, gate, until
from .fleet import Fleet, Member, Two, fleet, one, owner, two
from .test_fleet import CALL, call

__all__ = ["owner", "two"]  # the fixtures

CALLS = 20


@pytest.fixture
async def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", LIMIT_S)
    monkeypatch.setattr(running, "DRAIN_NOTICE_S", 0.0)
    async with fleet(tmp_path) as made:
        yield made


@pytest.mark.parametrize("turns", range(6))  # with the fewest nothing was sent yet, with more it was, and not taken
async def test_what_a_port_that_closes_did_not_take_is_sent_to_the_next_owner(
    made: Fleet, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    seen = Seen()
    ingress = await made.start("a", meter=seen.meter)
    former, owner = await made.start("b", one()), await made.start("c", one())
    await until(lambda: bool(former.peer.links) and bool(owner.peer.links))
    for each in (ingress, former):
        each.believed.hear("one", former.owner)
    await ingress.api(CALL, call())
    a_port: Any = type(grpc.aio.server())
    reach, stop, all_reached, reached = Peers.reach, a_port.stop, anyio.Event(), list[Owner]()

    async def together(self: Peers, whom: Owner) -> Any:
        stub = await reach(self, whom)
        reached.append(whom)
        if len(reached) == CALLS:
            ingress.believed.hear("one", owner.owner)
            all_reached.set()
        await all_reached.wait()
        return stub

    async def late(self: Any, grace_s: float | None) -> None:
        await all_reached.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        time.sleep(0.05)  # what was sent has reached the port, and its handlers could not take it
        await stop(self, grace_s)

    with monkeypatch.context() as patched:
        patched.setattr(Peers, "reach", together)
        patched.setattr(a_port, "stop", late)
        async with anyio.create_task_group() as closing:
            closing.start_soon(former.port.close)
            results = await asyncio.gather(*(ingress.api(CALL, call()) for _ in range(CALLS)))
    assert all(result.call.result for result in results)
    assert (len(former.peer.sent) - 1) + len(owner.peer.sent) == CALLS
    assert owner.peer.sent
    assert "NOT_TAKEN" in [point.attributes.get("error.type") for point in seen.points(metrics.FORWARD)]


async def test_a_member_that_ends_takes_calls_for_a_while_after_it_has_said_so(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "DRAIN_NOTICE_S", 10 * LIMIT_S)
    ingress = two[0]
    health = health_pb2_grpc.HealthStub(ingress.api.channel).Watch(health_pb2.HealthCheckRequest())
    with anyio.fail_after(LIMIT_S):
        assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
        drained = asyncio.create_task(ingress.hub.drain(20 * LIMIT_S))
        assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        more = asyncio.create_task(health.read())  # gRPC's own clients watch again at once when it ends
        assert (await ingress.api(CALL, call())).call.result
        assert not drained.done()
        assert not more.done()
        ingress.hub.grace_cut.set()
        await drained
        with pytest.raises(grpc.aio.AioRpcError):
            await more


async def test_a_member_that_ends_waits_a_moment_for_callers_who_do_not_leave_and_then_for_their_calls(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_stream, "NOTICE_S", 0.0)
    ingress, owner = two
    call_there, asked, go_on = owner.hub.calls.call, anyio.Event(), anyio.Event()

    async def slowly(spec: CallSpec, principal: str, *, detached: bool = False) -> Call:
        asked.set()
        await go_on.wait()
        return await call_there(spec, principal, detached=detached)

    monkeypatch.setattr(owner.hub.calls, "call", slowly)
    api = ingress.api
    async with streamed(api.channel, api.metadata) as stream, streamed(api.channel, api.metadata) as idle:
        await stream.start(1, call().spec)
        with anyio.fail_after(LIMIT_S):
            await asked.wait()
        drained = asyncio.create_task(ingress.hub.drain(10 * LIMIT_S))
        await stream.closing()
        assert (await idle.broken()).reason == "SHUTTING_DOWN"
        await stream.start(2, call().spec)
        late = await stream.failed(2)
        assert (late.reason, late.metadata) == ("SHUTTING_DOWN", {"begun": "false"})
        assert not drained.done()
        go_on.set()
        await stream.completed(1)
        assert (await stream.broken()).reason == "SHUTTING_DOWN"
        with anyio.fail_after(LIMIT_S):
            await drained


async def test_a_client_with_several_addresses_has_no_call_refused_as_its_member_ends(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_shuffle", list[discovery.HubAddress])
    ingress, owner = two
    made, over = 0, False

    async def call_again_and_again(client: hubbub_client.Hub) -> None:
        nonlocal made
        while not over:
            await client.call_tool("one", "echo")
            made += 1

    async def some_more() -> None:
        enough = made + CALLS
        while made < enough:
            await asyncio.sleep(0.001)

    with anyio.fail_after(LIMIT_S):
        async with (
            hubbub_client.connect(f"{ingress.address},{owner.address}", TOKEN) as client,
            anyio.create_task_group() as calling,
        ):
            for _ in range(4):
                calling.start_soon(call_again_and_again, client)
            await some_more()
            await ingress.hub.drain(10 * LIMIT_S)
            assert client.address == owner.address
            await some_more()
            over = True
    assert len(owner.peer.sent) == made


@dataclass
class Ending:
    """An ingress that ends, and a call for another member that came too late for it to be drained.

    Until `over` it serves at `address`; the call goes on when `go_on` is set.
    """

    hub: Hub
    over: asyncio.Task[None]
    address: str
    call: asyncio.Task[Any]
    go_on: anyio.Event

    async def closed(self) -> None:
        """Until nobody can connect any more."""
        host, _, port = self.address.removeprefix("http://").rpartition(":")
        with anyio.fail_after(LIMIT_S), suppress(OSError):
            while True:
                await (await anyio.connect_tcp(host, int(port))).aclose()


Serve = Callable[[Member], AbstractAsyncContextManager[str]]


@pytest.fixture
async def end(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[Serve, Callable[[str], Any]], Awaitable[Ending]]]:
    """`await end(serve, call)` ends an ingress that is served so, and makes the call once it has drained."""
    monkeypatch.setattr(grpc_server, "CLOSE_GRACE_S", 0.0)
    ingress, owner = two
    asked, go_on = anyio.Event(), anyio.Event()
    call_there, drain = owner.hub.calls.call, ingress.hub.drain

    async def slowly(spec: CallSpec, principal: str, *, detached: bool = False) -> Call:
        asked.set()
        await go_on.wait()
        return await call_there(spec, principal, detached=detached)

    async def end(serve: Serve, call: Callable[[str], Any]) -> Ending:
        address, calls = "", list[asyncio.Task[Any]]()

        async def drain_and_call(grace_s: float | None = None) -> None:
            await drain(grace_s)
            if not calls:
                calls.append(asyncio.create_task(call(address)))
                await asked.wait()

        async def leave() -> None:
            nonlocal address
            async with serve(ingress) as address:
                pass

        monkeypatch.setattr(ingress.hub, "drain", drain_and_call)
        over = asyncio.create_task(leave())
        with anyio.fail_after(LIMIT_S):
            await asked.wait()
        return Ending(ingress.hub, over, address, calls[0], go_on)

    monkeypatch.setattr(owner.hub.calls, "call", slowly)
    yield end
    go_on.set()


def over_grpc(ingress: Member) -> AbstractAsyncContextManager[str]:
    middleware = (ingress.forwarding.wrap,)
    return grpc_server.serve(
        ingress.hub, listen="127.0.0.1:0", gate=gate(ingress.hub), grace_s=10 * LIMIT_S, middleware=middleware
    )


async def call_over_grpc(address: str) -> Any:
    async with grpc.aio.insecure_channel(address) as channel:
        return (await Caller(channel)(CALL, call())).call.result


async def test_the_port_of_a_member_that_ends_closes_before_the_last_calls_for_others_are_over(end: Any) -> None:
    ending = await end(over_grpc, call_over_grpc)
    await ending.closed()
    assert not ending.over.done()
    ending.go_on.set()
    with anyio.fail_after(LIMIT_S):
        assert await ending.call
        await ending.over


class Membership:
    """What a hub knows of its fleet as it ends."""

    def __init__(self) -> None:
        self.lost = anyio.Event()
        self.membership = SimpleNamespace(lease_ttl_s=LIMIT_S)

    async def drain(self) -> None: ...
    async def quit(self) -> None: ...


async def test_a_member_that_is_declared_gone_does_not_wait_for_them_either(
    end: Any, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two[0].hub, "fleet", Membership())
    monkeypatch.setattr(grpc_server, "CLOSE_GRACE_S", 10 * LIMIT_S)
    ending = await end(over_grpc, call_over_grpc)
    await ending.closed()
    assert not ending.over.done()
    ending.hub.fleet.lost.set()
    with anyio.fail_after(LIMIT_S):
        await ending.over
        with pytest.raises(grpc.aio.AioRpcError):
            await ending.call


@pytest.mark.parametrize("turns", range(10))
async def test_a_hub_that_is_in_a_hurry_from_the_beginning_ends_all_the_same(hub: Hub, turns: int) -> None:
    async def some_turns_later() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        hub.grace_cut.set()

    with anyio.fail_after(LIMIT_S):
        async with grpc_server.serve(hub, listen="127.0.0.1:0", gate=gate(hub)) as address:
            async with grpc.aio.insecure_channel(address) as channel:
                await channel.channel_ready()
            hurrying = asyncio.create_task(some_turns_later())
        await hurrying
    assert hub.calls.stopped.is_set()


async def test_other_rpcs_of_a_member_that_ends_do_not_hold_it_up(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that another member serves is not ended by this one's drain."""
    monkeypatch.setattr(grpc_server, "CLOSE_GRACE_S", 0.0)
    request = event_pb2.WatchEventsRequest(filter=event_pb2.EventFilter(server="one"))
    with anyio.fail_after(LIMIT_S):
        async with over_grpc(two[0]) as address, grpc.aio.insecure_channel(address) as channel:
            watch = event_pb2_grpc.EventServiceStub(channel).WatchEvents(request, metadata=two[0].api.metadata)
            assert await watch.read()


@asynccontextmanager
async def over_connect(ingress: Member) -> AsyncIterator[str]:
    middleware = (ingress.forwarding.wrap,)
    async with serve_connect(
        ingress.hub, listen="127.0.0.1:0", gate=gate(ingress.hub), middleware=middleware
    ) as address:
        yield address
        await ingress.hub.drain(10 * LIMIT_S)


async def call_over_connect(address: str) -> Any:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/proto"}
    async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=None) as http:
        return await http.post("/hubbub.v1.CallService/CallMethod", content=call().SerializeToString(), headers=headers)


async def test_who_is_in_a_hurry_does_not_wait_for_those_over_connect_either(end: Any) -> None:
    ending = await end(over_connect, call_over_connect)
    await ending.closed()
    ending.hub.grace_cut.set()
    with anyio.fail_after(LIMIT_S):
        await ending.over
        with suppress(httpx2.HTTPError):
            assert (await ending.call).status_code != 200


async def test_those_over_connect_are_waited_for_too(end: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    ending = await end(over_connect, call_over_connect)
    await until(lambda: "Waiting for connections to close" in caplog.text)
    assert not ending.over.done()
    ending.go_on.set()
    with anyio.fail_after(LIMIT_S):
        assert (await ending.call).status_code == 200
        await ending.over


async def test_a_call_that_its_owner_breaks_off_is_lost_and_not_made_again(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "OWNER_CHANGE_S", 0.1)
    ingress, owner = two
    times: list[int] = []

    async def broken_off(*_: object, **__: object) -> Call:
        times.append(1)
        raise asyncio.CancelledError

    monkeypatch.setattr(owner.hub.calls, "call", broken_off)
    with anyio.fail_after(LIMIT_S):
        lost = await ingress.api.refused(CALL, call())
    assert (lost.code, lost.reason, times) == (grpc.StatusCode.UNAVAILABLE, "OWNER_LOST", [1])
