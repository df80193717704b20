"""Hosts behind a bridge: their messages over one gRPC stream, which may break and come back."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response

from hubbub.v1 import admin_pb2, server_pb2
from hubbub.v1 import mcp_pb2 as pb
from hubbubd.core.calls.call_states import CallState
from hubbubd.core.filters import CallFilter
from hubbubd.downstream.host_calls import HostCalls
from hubbubd.downstream.sessions import bridged_hosts
from hubbubd.runtime.hub import Hub

from ..upstream.conftest import Scripted, scripted
from .conftest import LIMIT_S, Caller, Refusal, explain, spec_of, until
from .test_bad_input import METHODS

__all__ = ["scripted"]

PATH = "/hubbub.v1.McpService/Serve"
KEY = "k" * 16
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "h"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def opening(server: str = "good", key: str = KEY) -> pb.ServeRequest.Open:
    return pb.ServeRequest.Open(server=server, session_key=key)


@dataclass
class Stream:
    """One stream of a bridge."""

    rpc: Any
    unread: list[Any] = field(default_factory=list)

    async def frame(self, **frame: Any) -> None:
        await self.rpc.write(pb.ServeRequest(**frame))

    async def say(self, *messages: Any) -> None:
        await self.frame(messages=[json.dumps(message).encode() for message in messages])

    async def opened(self) -> pb.ServeResponse.Opened:
        with anyio.fail_after(LIMIT_S):
            first = await self.rpc.read()
        assert first.HasField("opened")
        return first.opened

    async def next(self) -> Any:
        """The next message of the hub."""
        with anyio.fail_after(LIMIT_S):
            while not self.unread:
                frame = await self.rpc.read()
                assert isinstance(frame, Message), "the stream has ended"
                self.unread += map(json.loads, frame.messages)
        return self.unread.pop(0)

    async def broken(self) -> Refusal:
        """Why the hub ends the stream."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ended()
        return explain(caught.value)

    async def ended(self) -> None:
        """Waits until the hub has ended the stream, without an error."""
        with anyio.fail_after(LIMIT_S):
            while await self.rpc.read() is not grpc.aio.EOF:
                pass


@asynccontextmanager
async def streamed(api: Caller) -> AsyncIterator[Stream]:
    method = api.channel.stream_stream(
        PATH, request_serializer=pb.ServeRequest.SerializeToString, response_deserializer=pb.ServeResponse.FromString
    )
    rpc = method(metadata=api.metadata)
    try:
        yield Stream(rpc)
    finally:
        rpc.cancel()


@asynccontextmanager
async def host(api: Caller, **more: Any) -> AsyncIterator[Stream]:
    """A host that has had its handshake."""
    async with streamed(api) as stream:
        await stream.frame(open=opening(**more))
        await stream.opened()
        await stream.say(request(0, "initialize", **HELLO))
        assert (await stream.next())["result"]["protocolVersion"] == "2025-11-25"
        yield stream


async def named(api: Caller, name: str, **grant: Any) -> Caller:
    """Somebody else, who may call servers."""
    grants = [admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_CALLER, **grant)]
    made = await api(METHODS["CreateToken"], admin_pb2.CreateTokenRequest(name=name, grants=grants))
    return Caller(api.channel, (("authorization", f"Bearer {made.secret}"),))


@pytest.fixture
async def good(api: Caller, scripted: Scripted) -> AsyncIterator[str]:
    """The name of a connected server, `scripted`."""
    await api(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec_of(name="good", url=scripted.url)))
    yield "good"
    await api(METHODS["RemoveServer"], server_pb2.RemoveServerRequest(name="good"))


@pytest.fixture
def slow(scripted: Scripted) -> Iterator[anyio.Event]:
    """The server's tools return once this is set; so they do when the test ends."""
    go_on = anyio.Event()

    async def call(request: Request) -> Response:
        message = json.loads(await request.body())
        await go_on.wait()
        return scripted.respond(message)

    scripted.replaced["tools/call"] = call
    yield go_on
    go_on.set()


@pytest.fixture
def calls(hub: Hub) -> Any:
    """The states of all calls, by id."""
    return lambda: {call.id: call.state for call in hub.calls.select(CallFilter())}


CALL = request(1, "tools/call", name="any", arguments={})


async def test_the_hub_says_first_how_long_a_message_may_be(api: Caller, good: str) -> None:
    async with streamed(api) as stream:
        await stream.frame(open=opening())
        assert (await stream.opened()).max_message_bytes == 1024 * 1024 - 1024


async def test_a_host_with_a_handshake_and_one_without_are_both_served(api: Caller, good: str) -> None:
    async with host(api) as stream:
        await stream.say(CALL)
        assert (await stream.next())["result"]["content"][0]["text"] == "hi"
    async with streamed(api) as stream:
        first = json.dumps(request("a", "tools/call", name="any", _meta=META)).encode()
        await stream.frame(open=opening(key="another-key-of-a-bridge"), messages=[first])
        await stream.opened()
        said = await stream.next()
        assert (said["id"], said["result"]["resultType"]) == ("a", "complete")


@pytest.mark.parametrize(
    ("first", "field"),
    [
        (pb.ServeRequest(), "open"),
        (pb.ServeRequest(open=opening(key="short")), "open.session_key"),
        (pb.ServeRequest(open=opening(key="not a key at all")), "open.session_key"),
        (pb.ServeRequest(open=opening(server="x" * 200)), "open.server"),
    ],
)
async def test_a_first_frame_that_opens_nothing_is_refused(
    shared_api: Caller, first: pb.ServeRequest, field: str
) -> None:
    async with streamed(shared_api) as stream:
        await stream.rpc.write(first)
        assert list((await stream.broken()).violations) == [field]


async def test_a_server_that_is_not_there_cannot_be_opened(shared_api: Caller) -> None:
    async with streamed(shared_api) as stream:
        await stream.frame(open=opening("missing"))
        assert (await stream.broken()).code is grpc.StatusCode.NOT_FOUND


async def test_one_that_the_caller_may_not_call_is_not_there(api: Caller, good: str) -> None:
    other = await named(api, "other", servers=["other*"])
    async with streamed(other) as stream:
        await stream.frame(open=opening())
        assert (await stream.broken()).code is grpc.StatusCode.NOT_FOUND


async def test_a_stream_is_opened_once(api: Caller, good: str) -> None:
    async with host(api) as stream:
        await stream.frame(open=opening())
        assert list((await stream.broken()).violations) == ["open"]


@pytest.mark.parametrize(
    ("message", "id_", "code"),
    [
        (b"{", None, -32700),
        (b"[]", None, -32600),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', 5, -32600),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":' + b"[" * 250 + b"]" * 250 + b"}}", 5, -32700),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":NaN}}', 5, -32700),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":5,"method":"no/such"}', 5, -32601),
        (b'{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}', 5, -32600),
    ],
)
async def test_a_wrong_message_gets_an_error_and_the_stream_goes_on(
    api: Caller, good: str, message: bytes, id_: Any, code: int
) -> None:
    async with host(api) as stream:
        await stream.frame(messages=[message])
        said = await stream.next()
        assert (said["id"], said["error"]["code"]) == (id_, code)
        await stream.say(request(6, "ping"))
        assert (await stream.next())["id"] == 6


async def test_a_request_before_the_handshake_is_refused(api: Caller, good: str) -> None:
    async with streamed(api) as stream:
        await stream.frame(open=opening())
        await stream.opened()
        await stream.say(request(1, "tools/list"))
        assert (await stream.next())["error"]["code"] == -32600


async def test_a_request_that_is_sent_again_over_another_stream_joins_its_call(
    api: Caller, good: str, slow: anyio.Event, calls: Any
) -> None:
    async with host(api) as first:
        await first.say(CALL)
        await until(lambda: list(calls().values()) == [CallState.IN_PROGRESS])
    async with host(api) as second:
        await second.frame(messages=[json.dumps(CALL).encode()], again=True)
        slow.set()
        assert (await second.next())["result"]["content"][0]["text"] == "hi"
    assert len(calls()) == 1


async def test_a_call_that_may_become_a_task_is_joined_by_its_repetition_and_cancelled_with_its_host(
    api: Caller, good: str, slow: anyio.Event, calls: Any
) -> None:
    meta = {
        "protocolVersion": "2026-07-28",
        "clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    envelope = {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}
    call = request(1, "tools/call", name="any", arguments={}, _meta=envelope)
    async with streamed(api) as first:
        await first.frame(open=opening(), messages=[json.dumps(call).encode()])
        await until(lambda: list(calls().values()) == [CallState.IN_PROGRESS])
    async with streamed(api) as second:
        await second.frame(open=opening())
        await second.frame(messages=[json.dumps(call).encode()], again=True)
        await second.opened()
        await second.frame(leave=True)
        await until(lambda: list(calls().values()) == [CallState.CANCELLED])


async def test_a_tool_that_a_hub_before_may_have_called_is_not_called_again(api: Caller, good: str, calls: Any) -> None:
    async with host(api) as stream:
        await stream.frame(messages=[json.dumps(CALL).encode()], again=True)
        assert (await stream.next())["error"]["data"]["reason"] == "HUB_RESTARTED"
        await stream.frame(messages=[json.dumps(request(2, "tools/list")).encode()], again=True)
        assert (await stream.next())["result"]["tools"] == []
    assert calls() == {}


async def test_the_session_key_of_a_bridge_is_of_no_use_to_another_principal(
    api: Caller, good: str, slow: anyio.Event, calls: Any
) -> None:
    other = await named(api, "other")
    async with host(api) as stream:
        await stream.say(CALL)
        await until(lambda: list(calls().values()) == [CallState.IN_PROGRESS])
        async with host(other) as stranger:
            gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            await stranger.say(gone, CALL)
            await until(lambda: len(calls()) == 2)
        slow.set()
        assert (await stream.next())["result"]["content"][0]["text"] == "hi"


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(("1", 1, 1.5), id="of several types"),
        pytest.param((10**40, 10**40 + 1), id="long numbers"),
        pytest.param(("\ud800", "\udfff"), id="halves of characters"),
    ],
)
async def test_each_id_that_json_knows_is_a_call_of_its_own(
    api: Caller, good: str, calls: Any, ids: tuple[Any, ...]
) -> None:
    async with host(api) as stream:
        await stream.say(*(request(id_, "tools/call", name="any") for id_ in ids))
        assert {json.dumps((await stream.next())["id"]) for _ in ids} == {json.dumps(id_) for id_ in ids}
    assert len(calls()) == len(ids)


async def test_a_host_that_leaves_has_its_calls_cancelled(
    api: Caller, good: str, slow: anyio.Event, calls: Any
) -> None:
    async with host(api) as stream:
        await stream.say(CALL)
        await until(lambda: list(calls().values()) == [CallState.IN_PROGRESS])
        await stream.frame(leave=True)
        await stream.ended()
        await until(lambda: list(calls().values()) == [CallState.CANCELLED])


async def test_a_host_cancels_one_of_its_calls_also_after_its_stream_broke(
    api: Caller, good: str, slow: anyio.Event, calls: Any
) -> None:
    async with host(api) as stream:
        await stream.say(CALL)
        await until(lambda: list(calls().values()) == [CallState.IN_PROGRESS])
    async with host(api) as stream:
        gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        await stream.say(gone, request(2, "ping"))
        assert (await stream.next())["id"] == 2  # a cancelled request has no response
        await until(lambda: list(calls().values()) == [CallState.CANCELLED])


async def test_a_bridge_that_does_not_come_back_has_its_calls_cancelled(
    api: Caller, good: str, slow: anyio.Event, calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridged_hosts, "RETURN_S", 0.01)
    async with host(api) as stream:
        await stream.say(CALL)
        await until(lambda: list(calls().values()) == [CallState.IN_PROGRESS])
    await until(lambda: list(calls().values()) == [CallState.CANCELLED])


async def test_a_hub_that_shuts_down_says_so_beside_its_refusals(
    hub: Hub, api: Caller, good: str, slow: anyio.Event
) -> None:
    async with host(api) as stream, anyio.create_task_group() as tasks:
        await stream.say(request(1, "tools/call", name="a"))
        await until(lambda: hub.calls.select(CallFilter(states=frozenset({CallState.IN_PROGRESS}))))
        tasks.start_soon(hub.drain, LIMIT_S)
        await until(lambda: hub.calls.draining)
        await stream.say(request(2, "tools/call", name="a"))
        with anyio.fail_after(LIMIT_S):
            while not (frame := await stream.rpc.read()).messages:
                pass
        assert json.loads(frame.messages[0])["error"]["data"]["reason"] == "SHUTTING_DOWN"
        assert frame.draining
        slow.set()


async def test_a_hub_that_stops_answers_what_it_has_taken_and_leaves_what_lasts_to_the_next_one(
    hub: Hub, api: Caller, good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go_on = anyio.Event(), anyio.Event()
    call = HostCalls.call

    async def held_up(*args: Any) -> bytes:
        taken.set()
        await go_on.wait()
        return await call(*args)

    monkeypatch.setattr(HostCalls, "call", held_up)
    listening = request(2, "subscriptions/listen", notifications={}, _meta=META)
    async with host(api) as stream, anyio.create_task_group() as tasks:
        await stream.say(listening, CALL)
        assert "acknowledged" in (await stream.next())["method"]
        await taken.wait()
        tasks.start_soon(hub.drain, 0)
        await hub.calls.stopped.wait()
        go_on.set()
        refused = await stream.next()
        assert (refused["id"], refused["error"]["data"]["reason"]) == (CALL["id"], "SHUTTING_DOWN")
        with anyio.fail_after(LIMIT_S):
            last = await stream.rpc.read()
        assert (list(last.messages), last.taken) == ([], 3)  # the handshake, and these two
        assert (await stream.broken()).reason == "SHUTTING_DOWN"


async def test_a_hub_stops_in_order_after_a_listening_request_was_cancelled(hub: Hub, api: Caller, good: str) -> None:
    gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    async with host(api) as stream, anyio.create_task_group() as tasks:
        await stream.say(request(2, "subscriptions/listen", notifications={}, _meta=META))
        assert "acknowledged" in (await stream.next())["method"]
        await stream.say(gone, request(3, "tools/list", _meta=META))
        assert (await stream.next())["id"] == 3
        tasks.start_soon(hub.drain, 0)
        assert (await stream.broken()).reason == "SHUTTING_DOWN"


async def test_a_token_that_is_revoked_ends_the_calls_of_its_bridge_at_once(
    api: Caller, good: str, slow: anyio.Event, calls: Any
) -> None:
    leaving = await named(api, "leaving")
    async with host(leaving) as stream:
        await stream.say(CALL)
        await until(lambda: list(calls().values()) == [CallState.IN_PROGRESS])
        await api(METHODS["RevokeToken"], admin_pb2.RevokeTokenRequest(name="leaving"))
        assert (await stream.broken()).reason == "CREDENTIAL_ENDED"
        await until(lambda: list(calls().values()) == [CallState.CANCELLED])


async def test_an_earlier_stream_of_the_same_bridge_is_ended(api: Caller, good: str) -> None:
    async with host(api) as first, host(api) as second:
        await first.ended()
        await second.say(request(2, "ping"))
        assert (await second.next())["id"] == 2
