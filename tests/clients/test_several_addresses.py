"""A hub with several addresses: one is used until it fails, and what surely does nothing twice goes on at the next."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import hubbub_client
from hubbub.v1 import call_pb2, common_pb2, inbox_pb2, mcp_pb2, server_pb2
from hubbub_bridge.conversation import Conversation
from hubbub_bridge.options import BridgeOptions
from hubbub_bridge.uplink import Uplink
from hubbub_client import sync
from hubbub_client.errors import HubbubError, Unavailable
from hubbub_client.transport import channel, discovery

from .conftest import Refusal, ScriptedHub, staying
from .frozen import proxy

LIMIT_S = 60
WatchStep = inbox_pb2.WatchPendingRequestsResponse


@pytest.fixture(autouse=True)
def _in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses are tried in the order in which a test gives them."""
    for name in [name for name in os.environ if name.startswith("HUBBUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(discovery, "_shuffle", list[discovery.HubAddress])


Two = tuple[ScriptedHub, ScriptedHub]


@contextlib.asynccontextmanager
async def connected(*at: str | ScriptedHub, **options: Any) -> AsyncGenerator[hubbub_client.Hub]:
    addresses = ",".join(each if isinstance(each, str) else each.address for each in at)
    with anyio.fail_after(LIMIT_S):
        async with hubbub_client.connect(addresses, "secret", **options) as client:
            yield client


def _listed(name: str) -> Callable[[Any], Any]:
    return lambda _: server_pb2.ListServersResponse(servers=[server_pb2.Server(name=name)])


async def _where(client: hubbub_client.Hub) -> str:
    return (await client.servers.list())[0].name


def _name(two: Two) -> None:
    for each, name in zip(two, "ab", strict=True):
        each.replies["ListServers"] = _listed(name)


async def test_the_first_address_that_answers_is_used_until_it_fails(two: Two, free_port: int) -> None:
    _name(two)
    async with connected(f"127.0.0.1:{free_port}", *two) as client:
        assert [await _where(client) for _ in range(3)] == ["a"] * 3
        assert client.address == two[0].address
        assert set(client.addresses) == {f"127.0.0.1:{free_port}", two[0].address, two[1].address}
        port = two[0].port
        await two[0].stop()
        assert [await _where(client) for _ in range(3)] == ["b"] * 3
        await two[0].start(port)
        assert await _where(client) == "b"  # it stays there
        await two[1].stop()
        assert await _where(client) == "a"


async def test_where_nobody_answers_all_addresses_are_named_with_the_reason_of_each(free_port: int) -> None:
    with anyio.fail_after(LIMIT_S), pytest.raises(Unavailable) as refused:
        async with hubbub_client.connect(f"127.0.0.1:{free_port},unix:/nowhere/hub.sock", "t", patient=False):
            pass
    error = refused.value
    assert error.reason == "HUB_UNREACHABLE"
    assert "no hub answers at any of 2 addresses (as given)" in error.message
    assert f"127.0.0.1:{free_port}: nobody listens there" in error.message
    assert "unix:/nowhere/hub.sock: nobody listens there (No such file or directory)" in error.message
    assert "hubbub up" not in error.message


async def test_an_address_that_takes_connections_and_is_silent_is_passed_by(two: Two) -> None:
    _name(two)
    async with proxy(two[0].port) as silent, proxy(two[0].port) as other:
        silent.frozen = other.frozen = True
        async with connected(silent.address, two[1], patient=False) as client:
            assert await _where(client) == "b"
        with pytest.raises(Unavailable) as refused:
            async with connected(silent.address, other.address, patient=False, connect_timeout_s=1):
                pass
    assert "somebody listens there, but gives no answer" in refused.value.message


async def test_a_name_is_looked_up_by_grpc(two: Two) -> None:
    _name(two)
    async with connected(f"dns:///localhost:{two[0].port}") as client:
        assert await _where(client) == "a"
        assert "hubbub-revision" in two[0].seen[-1][2]  # there may be several behind it


def _dying(two: Two, method: str, reply: Callable[[Any], Any]) -> None:
    """The first member dies while it serves a method; the second answers."""

    async def die(_: Any) -> Any:
        asyncio.get_running_loop().call_soon(asyncio.ensure_future, two[0].stop())
        await anyio.sleep_forever()

    two[0].replies[method], two[1].replies[method] = die, reply


def _called(request: Any) -> Any:
    return call_pb2.CallMethodResponse(call=call_pb2.Call(id=request.spec.call_id or "x", result=b"{}"))


def _started(request: Any) -> Any:
    return call_pb2.StartCallResponse(call=call_pb2.Call(id=request.spec.call_id or "x"))


def _answered(request: Any) -> Any:
    return inbox_pb2.AnswerPendingRequestResponse(pending_request=inbox_pb2.PendingRequest(id=request.id))


def _claimed(request: Any) -> Any:
    return inbox_pb2.ClaimPendingRequestResponse(pending_request=inbox_pb2.PendingRequest(id=request.id))


def _renewed(request: Any) -> Any:
    return inbox_pb2.RenewClaimResponse(pending_request=inbox_pb2.PendingRequest(id=request.id))


def _removed(_: Any) -> Any:
    return server_pb2.RemoveServerResponse()


Use = Callable[[hubbub_client.Hub], Awaitable[Any]]
AGAIN: list[tuple[str, Callable[[Any], Any], Use]] = [
    ("ListServers", _listed("b"), lambda hub: hub.servers.list()),
    ("AnswerPendingRequest", _answered, lambda hub: hub.inbox.answer("r", accept=True)),
    ("ClaimPendingRequest", _claimed, lambda hub: hub.inbox.claim("r", claim_id="c" * 16)),
    ("RenewClaim", _renewed, lambda hub: hub.inbox.renew("r", "c")),
]
ONCE: list[tuple[str, Callable[[Any], Any], Use]] = [
    ("ClaimPendingRequest", _claimed, lambda hub: hub.inbox.claim("r")),
    ("RemoveServer", _removed, lambda hub: hub.servers.remove("s")),
    ("CallMethod", _called, lambda hub: hub.call_tool("s", "t")),
    ("CallMethod", _called, lambda hub: hub.call_tool("s", "t", call_id="c")),
    ("StartCall", _started, lambda hub: hub.start_tool("s", "t")),
]


@pytest.mark.parametrize(("method", "reply", "use"), AGAIN, ids=[each[0] for each in AGAIN])
async def test_what_does_nothing_twice_is_repeated_at_the_next_member(
    two: Two, method: str, reply: Any, use: Use
) -> None:
    _dying(two, method, reply)
    async with connected(*two) as client:
        await use(client)
    first, second = two[0].requests(method), two[1].requests(method)
    assert len(first) == 1
    assert first == second  # the same, its id included


@pytest.mark.parametrize(("method", "reply", "use"), ONCE, ids=[f"{at} {each[0]}" for at, each in enumerate(ONCE)])
async def test_what_may_have_been_done_is_not_repeated(two: Two, method: str, reply: Any, use: Use) -> None:
    _dying(two, method, reply)
    async with connected(*two) as client:
        with pytest.raises(Unavailable):
            await use(client)
    assert (len(two[0].requests(method)), two[1].requests(method)) == (1, [])


def _refusing(two: Two, method: str, reason: str, reply: Callable[[Any], Any], **options: Any) -> list[str]:
    """Both members refuse a method once for a reason; return where it came."""
    came: list[str] = []

    def at(name: str) -> Callable[[Any], Any]:
        def serve(request: Any) -> Any:
            came.append(name)
            if len(came) < 3:
                raise Refusal("FAILED_PRECONDITION" if reason == "NOT_OWNER" else "UNAVAILABLE", reason, **options)
            return reply(request)

        return serve

    two[0].replies[method], two[1].replies[method] = at("a"), at("b")
    return came


@pytest.mark.parametrize(
    ("reason", "came"), [("NOT_OWNER", "aba"), ("OWNER_CHANGING", "aaa"), ("MOVED", "aaa"), ("BEHIND", "aba")]
)
async def test_a_call_with_an_id_is_repeated_where_nothing_has_happened(two: Two, reason: str, came: str) -> None:
    found = _refusing(two, "CallMethod", reason, _called)
    async with connected(*two) as client:
        await client.call_tool("s", "t", call_id="mine")
    assert "".join(found) == came


@pytest.mark.parametrize("reason", ["NOT_OWNER", "OWNER_CHANGING", "MOVED", "SHUTTING_DOWN", "OWNER_LOST"])
async def test_a_call_without_an_id_is_not(two: Two, reason: str) -> None:
    found = _refusing(two, "CallMethod", reason, _called)
    async with connected(*two) as client:
        with pytest.raises(HubbubError) as refused:
            await client.call_tool("s", "t")
    assert (refused.value.reason, len(found)) == (reason, 1)


@pytest.mark.parametrize("reason", ["OWNER_LOST", "SHUTTING_DOWN", "STORE_UNAVAILABLE"])
async def test_a_call_with_an_id_that_may_have_been_made_is_not(two: Two, reason: str) -> None:
    found = _refusing(two, "CallMethod", reason, _called)
    async with connected(*two) as client:
        with pytest.raises(Unavailable):
            await client.call_tool("s", "t", call_id="mine")
    assert len(found) == 1


@pytest.mark.parametrize("reason", ["STORE_UNAVAILABLE", "SHUTTING_DOWN", "OUTCOME_UNKNOWN"])
async def test_an_answer_that_one_member_cannot_take_is_given_to_another(two: Two, reason: str) -> None:
    found = _refusing(two, "AnswerPendingRequest", reason, _answered)
    async with connected(*two) as client:
        await client.inbox.answer("r", decline=True)
    assert "".join(found) == "aba"
    assert len({each.answer_id for hub in two for each in hub.requests("AnswerPendingRequest")}) == 1


async def test_with_one_address_a_refusal_is_the_callers_to_deal_with(two: Two) -> None:
    found = _refusing(two, "ListServers", "STORE_UNAVAILABLE", _listed("a"))
    async with connected(two[0]) as client:
        with pytest.raises(Unavailable):
            await client.servers.list()
    assert len(found) == 1


async def test_a_member_says_how_long_to_wait_before_the_repeat(two: Two) -> None:
    found = _refusing(two, "CallMethod", "OWNER_CHANGING", _called, retry_after_s=0.05)
    async with connected(*two) as client:
        begun = anyio.current_time()
        await client.call_tool("s", "t", call_id="mine")
        assert anyio.current_time() - begun >= 0.1
    assert len(found) == 3


async def test_repeats_come_to_an_end(two: Two) -> None:
    for each in two:

        def refuse(_: Any) -> Any:
            raise Refusal("UNAVAILABLE", "BEHIND")

        each.replies["ListServers"] = refuse
    async with connected(*two) as client:
        with pytest.raises(Unavailable) as refused:
            await client.servers.list()
    assert refused.value.reason == "BEHIND"
    assert sum(len(each.requests("ListServers")) for each in two) == 3


def _watched(hub: ScriptedHub, *ids: str, dead: bool = False) -> None:
    async def stream(request: Any) -> AsyncIterator[Any]:
        for id_ in ids:
            upsert = inbox_pb2.PendingRequest(id=id_)
            yield WatchStep(resume_token=f"{request.resume_token}+{id_}", upsert=upsert)
        if dead:
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, hub.stop())
        await anyio.sleep_forever()

    hub.streams["WatchPendingRequests"] = stream


async def _seen(client: hubbub_client.Hub, count: int) -> list[str]:
    found: list[str] = []
    async with contextlib.aclosing(client.inbox.watch()) as events:
        async for event in events:
            if isinstance(event, hubbub_client.Upsert):
                found.append(event.record.id)
                if len(found) == count:
                    return found
    raise AssertionError("a watch has no end")


async def test_a_watch_goes_on_at_the_next_member_with_its_token(two: Two) -> None:
    _watched(two[0], "1", "2", dead=True)
    _watched(two[1], "3")
    async with connected(*two) as client:
        assert await _seen(client, 3) == ["1", "2", "3"]
    assert [each.resume_token for each in two[1].requests("WatchPendingRequests")] == ["+2"]


async def test_a_watch_of_a_member_that_shuts_down_goes_on_elsewhere_though_it_still_listens(two: Two) -> None:
    async def stream(_: Any) -> AsyncIterator[Any]:
        yield WatchStep(resume_token="t", synced=common_pb2.WatchSynced())
        raise Refusal("UNAVAILABLE", "SHUTTING_DOWN")

    two[0].streams["WatchPendingRequests"] = stream
    _watched(two[1], "1")
    async with connected(*two) as client:
        assert await _seen(client, 1) == ["1"]
    assert len(two[0].requests("WatchPendingRequests")) == 1


async def test_a_silent_watch_goes_on_at_the_next_member(two: Two) -> None:
    _watched(two[0], "1")
    _watched(two[1], "2")
    async with connected(*two, silence_s=0.3) as client:
        assert await _seen(client, 2) == ["1", "2"]


async def test_a_frozen_member_is_noticed_by_keepalive_and_left(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    _name(two)
    soon = (("grpc.keepalive_time_ms", 100), ("grpc.keepalive_timeout_ms", 200), ("grpc.http2.ping_timeout_ms", 200))
    monkeypatch.setattr(channel, "FREQUENT_KEEPALIVE", (*soon, *channel.FREQUENT_KEEPALIVE[3:]))
    _watched(two[0], "1")
    _watched(two[1], "2")
    async with proxy(two[0].port) as member, connected(member.address, two[1], silence_s=LIMIT_S) as client:
        watching = asyncio.ensure_future(_seen(client, 2))
        assert await _where(client) == "a"
        while "WatchPendingRequests" not in [name for name, _, _ in two[0].seen]:
            await anyio.sleep(0.01)
        member.frozen = True
        assert await _where(client) == "b"  # a read that was under way at the frozen one
        assert await watching == ["1", "2"]


async def test_work_is_taken_at_the_next_member_when_its_own_dies(two: Two) -> None:
    def assigning(hub: ScriptedHub, id_: str) -> None:
        hub.streams["Work"] = staying(inbox_pb2.WorkResponse(assigned=inbox_pb2.PendingRequest(id=id_)))

    assigning(two[0], "1")
    assigning(two[1], "2")
    found: list[str] = []
    done = anyio.Event()

    async def handle(request: Any) -> None:
        found.append(request.id)
        if request.id == "1":
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, two[0].stop())
            await anyio.sleep_forever()
        done.set()

    async with connected(*two) as client:
        working = asyncio.ensure_future(client.inbox.work(handle))
        await done.wait()
        working.cancel()
    assert found == ["1", "2"]


async def test_a_bridge_goes_on_at_the_next_member_with_the_session_of_its_host(two: Two, tmp_path: Path) -> None:
    opened: list[tuple[str, str]] = []

    def bridged(hub: ScriptedHub, name: str) -> None:
        async def serve(frames: AsyncIterator[Any]) -> AsyncIterator[Any]:
            async for frame in frames:
                if frame.HasField("open"):
                    opened.append((name, frame.open.session_key))
                    yield mcp_pb2.ServeResponse(opened=mcp_pb2.ServeResponse.Opened(max_message_bytes=1024))

        hub.streams["Serve"] = serve

    bridged(two[0], "a")
    bridged(two[1], "b")
    where = discovery.HubLocation(address=f"{two[0].address},{two[1].address}", token="secret", data_dir=str(tmp_path))
    endpoint = BridgeOptions(where=where, version="1")
    conversation = Conversation(lambda _: None, endpoint.open_cache(), "1", lambda: None)
    bridge = Uplink(endpoint, conversation, anyio.lowlevel.checkpoint)
    running = asyncio.ensure_future(bridge.run())
    with anyio.fail_after(LIMIT_S):
        while not bridge.connected:
            await anyio.sleep(0.01)
        await two[0].stop()
        while len(opened) < 2 or not bridge.connected:
            await anyio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    assert opened == [("a", endpoint.session_key), ("b", endpoint.session_key)]


async def test_the_library_without_async_takes_several_addresses_too(two: Two, free_port: int) -> None:
    _name(two)

    def use() -> tuple[str, int]:
        with sync.connect(f"127.0.0.1:{free_port},{two[1].address}", "secret") as client:
            return client.servers.list()[0].name, len(client.addresses)

    with anyio.fail_after(LIMIT_S):
        assert await anyio.to_thread.run_sync(use) == ("b", 2)


async def test_what_a_stream_of_calls_says_of_revisions_is_sent_to_the_next_member(two: Two) -> None:
    _name(two)
    two[0].replies["CallMethod"] = _called

    async def stream(messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        step_of = call_pb2.StreamCallsResponse.Step
        ready = call_pb2.StreamCallsResponse.Ready(max_calls=9, max_request_bytes=1024 * 1024)
        yield call_pb2.StreamCallsResponse(steps=[step_of(ready=ready)])
        async for message in messages:
            done = [step_of(id=each.start.id, completed=_called(each.start.request)) for each in message.steps]
            yield call_pb2.StreamCallsResponse(steps=done, revision="history 5")

    two[0].streams["StreamCalls"] = stream
    async with connected(*two) as client:
        while not two[0].seen or two[0].seen[-1][2]["hubbub-revision"] == "-":
            await client.call_tool("s", "t")
            assert await _where(client) == "a"
        await two[0].stop()
        assert await _where(client) == "b"
    assert two[1].seen[-1][2]["hubbub-revision"] == "history 5"


async def test_a_refusal_of_somebody_between_is_no_reason_of_the_hub(two: Two) -> None:
    """A proxy that is away has reasons of its own (google.rpc.ErrorInfo of another domain)."""
    _name(two)

    def away(_: Any) -> Any:
        raise Refusal("UNAVAILABLE", "SHUTTING_DOWN", domain="proxy.test")

    two[0].replies["ListServers"] = away
    async with connected(*two) as client:
        assert await _where(client) == "b"
