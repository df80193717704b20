"""What a host may send and have at the MCP endpoint; beyond that there is an error that says so."""

import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from select import select
from typing import Any

import anyio
import anyio.to_thread
import pytest
import structlog.testing
from anyio.abc import SocketAttribute, SocketStream
from structlog.typing import EventDict

from hubbubd.downstream.hosts import unread_bytes
from hubbubd.rpc.mcp import transport
from hubbubd.rpc.mcp.transport import MAX_INLINE_JSON_BYTES

from ..runtime.peer import Outcome, Sent, gives, never
from .conftest import LIMIT_S
from .mcp_host import ACCEPT, NEW, OLD, RIGHT, Host, Stage, envelope, request, stage, tool

MAX_BYTES = 128 * 1024
DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}"
MANY = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[' + b"[," * 50_000 + b"1]}}"


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Stage]:
    """A hub with small limits."""
    async with stage(
        tmp_path,
        max_message_bytes=MAX_BYTES,
        mcp_sessions_per_principal=3,
        mcp_requests_per_session=2,
        mcp_streams_per_principal=2,
    ) as made:
        yield made


REFUSED: dict[str, tuple[bytes, int, int]] = {
    "no JSON": (b"{", 400, -32700),
    "nothing": (b"", 400, -32700),
    "not UTF-8": (b'{"a":"\xff"}', 400, -32700),
    "NaN": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', 400, -32700),
    "nested deeply": (DEEP, 400, -32700),
    "a batch": (json.dumps([request(1, "ping")]).encode(), 400, -32600),
    "a number": (b"1", 400, -32600),
    "another version of JSON-RPC": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
    "neither a method nor a result": (b'{"jsonrpc":"2.0","id":1}', 400, -32600),
    "a method that is no string": (b'{"jsonrpc":"2.0","id":1,"method":1}', 400, -32600),
    "params that are a list": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32600),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
    "a long id": (json.dumps(request("x" * 257, "ping")).encode(), 400, -32600),
    "_meta that is a list": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":[]}}', 400, -32602),
    "very many values": (MANY, 413, -32600),
    "very many bytes": (json.dumps(request(1, "ping", a="x" * MAX_BYTES)).encode(), 413, -32600),
}


@pytest.mark.parametrize("bad", REFUSED)
async def test_what_is_no_message_is_refused_with_the_reason(small: Stage, bad: str) -> None:
    body, status, code = REFUSED[bad]
    for headers in ({}, {"mcp_protocol_version": NEW}):
        response = await small.host().post(body, **headers)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert (await (await small.host().begin()).post(request(1, "ping"))).json()["result"] == {}


async def test_values_are_counted_before_a_long_message_is_parsed(tmp_path: Path) -> None:
    async with stage(tmp_path) as made:
        host = await made.host().begin()
        most = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[' + b"1," * 99_000 + b"1]}}"
        assert len(most) > MAX_INLINE_JSON_BYTES
        assert (await host.post(most)).json()["result"] == {}
        refused = await host.post(most.replace(b"1]", b"1," * 2_000 + b"1]"))
        assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (413, "MESSAGE_TOO_LARGE")


async def test_only_json_is_read(small: Stage) -> None:
    assert (await small.host().post(request(1, "ping"), content_type="text/plain")).status_code == 415


async def test_a_message_that_does_not_come_is_not_waited_for(small: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "REQUEST_S", 0.05)
    head = f"POST /mcp/s/one HTTP/1.1\r\nhost: localhost\r\nauthorization: {RIGHT['authorization']}\r\n"
    async with small.raw() as stream:
        await stream.send(f"{head}content-type: application/json\r\ncontent-length: 10\r\n\r\n{{".encode())
        with anyio.fail_after(LIMIT_S):
            said = await stream.receive()
    assert said.startswith(b"HTTP/1.1 408")


PIECE = b"x" * 50_000
LONG = f"host: localhost\r\nauthorization: {RIGHT['authorization']}\r\ncontent-length: {6 * len(PIECE)}\r\n"
REFUSED_EARLY = {
    "of another type": (f"POST /mcp HTTP/1.1\r\n{LONG}content-type: text/plain\r\n\r\n", 415),
    "with a header that is none": (f"POST /mcp HTTP/1.1\r\n{LONG}: nothing\r\n\r\n", 400),
}


@pytest.mark.parametrize("bad", REFUSED_EARLY)
async def test_whoever_still_sends_when_the_response_is_there_can_read_it(small: Stage, bad: str) -> None:
    head, status = REFUSED_EARLY[bad]
    async with small.raw() as stream:
        with anyio.fail_after(LIMIT_S):
            await stream.send(head.encode())
            await _waits(stream)
            for _ in range(6):  # asyncio drops what it has not read yet when it cannot write
                await stream.send(PIECE)
                await anyio.sleep(0)
            said = b""
            while b"\r\n\r\n" not in said:
                said += await stream.receive()
    assert said.startswith(f"HTTP/1.1 {status}".encode())


async def test_whoever_sends_on_and_on_after_the_response_is_cut_off(
    small: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub_http.connection.LINGER_S", 0.05)
    head, _ = REFUSED_EARLY["of another type"]
    async with small.raw() as stream:
        await stream.send(head.encode())
        with anyio.fail_after(LIMIT_S), pytest.raises(anyio.BrokenResourceError):
            await _send_without_end(stream)


async def _send_without_end(stream: SocketStream) -> None:
    while True:
        await stream.send(PIECE)


async def _waits(stream: SocketStream) -> None:
    """Wait until there is something to read, without reading it."""
    raw = stream.extra(SocketAttribute.raw_socket)
    with socket.socket(fileno=os.dup(raw.fileno())) as same:
        await anyio.to_thread.run_sync(select, [same], [], [])


@pytest.mark.parametrize("version", ["2023-01-01", "x" * 5000, ""])
async def test_a_revision_that_is_not_served_is_named_with_those_that_are(small: Stage, version: str) -> None:
    host = await small.host().begin()
    response = await host.post(request(1, "ping"), mcp_protocol_version=version)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == -32022
    assert {OLD, NEW} <= set(error["data"]["supported"])


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        *((revision, revision) for revision in ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")),
        *((revision, OLD) for revision in ("2023-01-01", "2099-01-01", NEW, "")),
    ],
)
async def test_a_handshake_of_another_revision_is_offered_the_newest(small: Stage, asked: str, offered: str) -> None:
    hello = request(0, "initialize", protocolVersion=asked, capabilities={}, clientInfo={"name": "h", "version": "1"})
    response = await small.host().post(hello)
    assert (response.status_code, response.json()["result"]["protocolVersion"]) == (200, offered)


@pytest.mark.parametrize("name", ["mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-x"])
async def test_a_header_that_is_there_twice_is_refused_though_both_say_the_same(small: Stage, name: str) -> None:
    host = await small.host().begin()
    about = {"mcp-protocol-version": NEW, "mcp-method": "tools/call", "mcp-name": "t", "mcp-param-x": "1"}
    for headers, message in ((host.headers, tool(1)), (host.headers | about, envelope(tool(1)))):
        if name in headers:
            twice = [*(ACCEPT | headers).items(), (name, headers[name])]
            response = await small.http.post(host.path, headers=twice, json=message)
            assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


async def test_headers_that_contradict_the_body_are_refused(small: Stage) -> None:
    host = small.host()
    for wrong in ({"mcp_method": "tools/list"}, {"mcp_name": "other"}, {"mcp_protocol_version": OLD}):
        response = await host.new(tool(1), **wrong)
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


async def test_an_id_that_is_in_use_is_refused_and_the_first_request_goes_on(small: Stage) -> None:
    small.peers["one"].behaviour = never
    host = await small.host().begin()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.post, tool(7))
        await small.arrived()
        again = await host.post(tool(7))
        assert (again.status_code, again.json()["error"]["code"]) == (400, -32600)
        assert not small.peers["one"].sent[0].cancelled
        await host.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    assert small.peers["one"].sent[0].cancelled


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    """What the hub logs."""
    with structlog.testing.capture_logs() as events:
        yield events


@asynccontextmanager
async def posted(small: Stage, host: Host, message: dict[str, Any]) -> AsyncIterator[SocketStream]:
    """A connection over which a host has sent a message, and has read nothing yet."""
    body = json.dumps(message).encode()
    about = "".join(f"{key}: {value}\r\n" for key, value in (ACCEPT | host.headers).items())
    async with small.raw() as stream:
        head = f"POST {host.path} HTTP/1.1\r\nhost: localhost\r\n{about}content-length: {len(body)}\r\n\r\n"
        await stream.send(head.encode() + body)
        yield stream


async def comes(stream: SocketStream, text: bytes) -> None:
    """Reads up to the piece that has this text."""
    with anyio.fail_after(LIMIT_S):
        while text not in await stream.receive():
            pass


async def cut(stream: SocketStream, logged: list[EventDict]) -> int:
    """Waits until the hub has given up on it; how many bytes were still on their way then."""
    count = 0
    with anyio.fail_after(LIMIT_S):
        while not any("read nothing" in each["event"] for each in logged):
            await anyio.sleep(0.01)
        try:
            while True:
                count += len(await stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return count


async def test_a_host_that_never_reads_loses_its_connection_and_nobody_else_notices(
    small: Stage, logged: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "STALL_S", 0.1)
    monkeypatch.setattr(transport, "PRIME_S", 0.01)
    small.peers["one"].behaviour = never
    host, other = await small.host().begin(), await small.host().begin()
    async with posted(small, host, tool(1, progressToken="p")) as stream:
        sent = await small.arrived()
        await comes(stream, b"retry")
        for number in range(1, 300):
            sent.progress(number, message="x" * 100_000)
            await anyio.sleep(0)
        assert (await other.post(request(1, "ping"))).json()["result"] == {}
        await cut(stream, logged)
    assert not sent.cancelled
    assert (await host.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202


async def test_a_long_response_that_is_not_read_is_not_kept(
    small: Stage, logged: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "STALL_S", 0.1)
    small.peers["one"].behaviour = gives({"text": "x" * 16_000_000})
    host = await small.host().begin()
    async with posted(small, host, tool(1)) as stream:
        await small.arrived()
        assert await cut(stream, logged) < 16_000_000


async def test_a_long_response_on_a_stream_counts_until_it_is_read(
    small: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_bytes, "UNREAD_BYTES", 1_000_000)
    monkeypatch.setattr(transport, "PRIME_S", 0.01)
    ready = anyio.Event()
    small.peers["one"].behaviour = gives({"text": "x" * 16_000_000}, once=ready)
    host, other = await small.host().begin(), await small.host().begin()
    async with posted(small, host, tool(1)) as stream:
        await comes(stream, b"retry")
        ready.set()
        await comes(stream, b"")
        monkeypatch.setattr(transport, "PRIME_S", LIMIT_S)
        refused = (await other.post(tool(2))).json()
    assert refused["error"]["data"]["reason"] == "TOO_MUCH_UNREAD"


async def test_a_response_for_which_there_is_no_room_is_an_error_on_its_stream(
    small: Stage, logged: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_bytes, "UNREAD_BYTES", 1_000_000)
    ready = anyio.Event()

    async def long(sent: Sent) -> Outcome:
        sent.progress(1, message="begun")
        await ready.wait()
        return {"text": "x" * 16_000_000}

    small.peers["one"].behaviour = long
    host, other = await small.host().begin("2025-03-26"), await small.host().begin("2025-03-26")
    async with posted(small, host, tool(1, progressToken="p")) as stream:
        await comes(stream, b"begun")
        ready.set()
        await comes(stream, b"")
        told = await other.post(tool(2, progressToken="q"))
    events = [json.loads(line[6:]) for line in told.text.splitlines() if line.startswith("data: {")]
    assert events[0]["params"]["message"] == "begun"
    assert (events[-1]["id"], events[-1]["error"]["data"]["reason"]) == (2, "TOO_MUCH_UNREAD")
    assert [line["reason"] for line in logged if "no room" in line["event"]] == ["TOO_MUCH_UNREAD"]


async def test_a_session_has_so_many_requests_at_a_time(small: Stage) -> None:
    small.peers["one"].behaviour = never
    host = await small.host().begin()
    async with anyio.create_task_group() as tasks:
        for number in (1, 2):
            tasks.start_soon(host.post, tool(number))
        await small.arrived(2)
        refused = await host.post(tool(3))
        assert refused.status_code == 429
        assert refused.json()["id"] == 3
        assert refused.json()["error"]["data"] == {"reason": "TOO_MANY_REQUESTS", "limit": "2"}
        assert (await (await small.host().begin()).post(request(1, "ping"))).status_code == 200
        tasks.cancel_scope.cancel()


async def test_sessions_at_work_are_not_ended_for_another_one(small: Stage) -> None:
    small.peers["one"].behaviour = never
    hosts = [await small.host().begin() for _ in range(3)]
    other = await small.named("other")
    async with anyio.create_task_group() as tasks:
        for host in hosts:
            tasks.start_soon(host.post, tool(1))
        await small.arrived(3)
        refused = await small.host().post(request(0, "initialize", protocolVersion=OLD, capabilities={}))
        assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (429, "TOO_MANY_SESSIONS")
        assert (await (await other.begin()).post(request(1, "ping"))).status_code == 200
        tasks.cancel_scope.cancel()


async def test_a_principal_has_so_many_streams_in_all_its_sessions(small: Stage) -> None:
    hosts = [await small.host().begin() for _ in range(3)]
    async with hosts[0].stream("GET") as one, hosts[1].stream("GET"):
        refused = await hosts[2].send("GET")
        assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (429, "TOO_MANY_STREAMS")
        assert one.response.status_code == 200
