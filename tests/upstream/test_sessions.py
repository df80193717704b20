"""Servers that have forgotten a session, and connections that were closed while they were idle."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from hubbubd.errors import PeerError, UpstreamError
from hubbubd.upstream.messages import retries

from ..raising import raising
from .conftest import CALL, Connect, Scripted, says

UNKNOWN = json.dumps(
    {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: No valid session"}, "id": None}
)
"""What servers made with the official SDK for TypeScript answer, with HTTP 400."""


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, "", "text/plain"),
        (400, UNKNOWN, "application/json"),
        (400, "Invalid or missing session ID", "text/plain"),
    ],
)
async def test_a_call_to_a_server_that_has_forgotten_the_session_finds_it_lost(
    status: int, body: str, kind: str, scripted: Scripted, connect: Connect
) -> None:
    async with connect(url=scripted.url) as link:
        await link.request(*CALL)
        forgotten = says(status, body, kind)
        scripted.replaced = {"tools/call": forgotten, "ping": forgotten}
        with raising(UpstreamError, "SESSION_LOST"):
            await link.request(*CALL)
        assert (await link.wait_lost()).code == "SESSION_LOST"


@pytest.mark.parametrize(("body", "kind"), [(UNKNOWN, "application/json"), ("no", "text/plain")])
async def test_a_ping_that_is_refused_for_its_session_is_no_sign_of_life(
    body: str, kind: str, scripted: Scripted, connect: Connect
) -> None:
    async with connect(url=scripted.url) as link:
        scripted.replaced = {"ping": says(400, body, kind)}
        with raising(UpstreamError, "SESSION_LOST"):
            await link.probe()


async def test_a_call_that_is_refused_with_400_while_pings_work_ends_with_what_the_server_said(
    scripted: Scripted, connect: Connect
) -> None:
    async with connect(url=scripted.url) as link:
        scripted.replaced = {"tools/call": says(400, UNKNOWN, "application/json")}
        with pytest.raises(PeerError, match="No valid session"):
            await link.request(*CALL)
        scripted.replaced = {}
        assert await link.request(*CALL)


SIZE = re.compile(rb"(?i)content-length: (\d+)")

Serve = Callable[[SocketStream, int], Awaitable[None]]


@asynccontextmanager
async def raw(serve: Serve) -> AsyncIterator[str]:
    """An HTTP server whose connections are served one by one as the test says; it gets their number."""
    count = 0

    async def handle(stream: SocketStream) -> None:
        nonlocal count
        count += 1
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await serve(stream, count)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/mcp"
        tasks.cancel_scope.cancel()


class Talk:
    """The requests of a connection, answered by the right response."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._buffer = b""

    async def head(self) -> bytes:
        """How the next request begins."""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += await self._stream.receive()
        return self._buffer.partition(b"\r\n\r\n")[0]

    async def read(self) -> dict[str, Any]:
        """The next request's message."""
        await self.head()
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields.get(b"content-length", b"0"))
        while len(rest) < size:
            rest += await self._stream.receive()
        self._buffer = rest[size:]
        return {"http": head.split(b" ")[0].decode(), **json.loads(rest[:size] or b"{}")}

    async def answer(self, message: dict[str, Any], session: str | None = None) -> None:
        """Answers it; the handshake with the id of a session, if one is given."""
        if "id" not in message:
            status = "202 Accepted" if message["http"] == "POST" else "405 Method Not Allowed"
            await self._stream.send(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        response = Scripted().respond(message)
        del response.headers["mcp-session-id"]
        if session is not None and message["method"] == "initialize":
            response.headers["mcp-session-id"] = session
        head = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        await self._stream.send(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + bytes(response.body))


async def test_a_repeatable_request_that_meets_the_end_of_an_idle_connection_goes_again(connect: Connect) -> None:
    asked: list[str] = []
    closed = 0

    async def serve(stream: SocketStream, _number: int) -> None:
        nonlocal closed
        talk = Talk(stream)
        used = False
        while True:
            message = await talk.read()
            asked.append(message.get("method", ""))
            if message.get("method") == "ping" and used and not closed:
                closed += 1
                return
            await talk.answer(message)
            used = True

    async with raw(serve) as url, connect(url=url) as link:
        for _ in range(3):
            await link.request("ping", None)
    assert closed == 1
    assert asked.count("ping") == 4


async def test_a_call_that_the_server_may_have_begun_is_not_sent_again(connect: Connect) -> None:
    asked: list[str] = []
    used: list[int] = []

    async def serve(stream: SocketStream, _number: int) -> None:
        talk = Talk(stream)
        count = 0
        while True:
            message = await talk.read()
            asked.append(message.get("method", ""))
            if message.get("method") == "tools/call":
                used.append(count)
                return
            await talk.answer(message)
            count += 1

    async with raw(serve) as url, connect(url=url) as link:
        await link.request("ping", None)
        with raising(UpstreamError, "CONNECTION_LOST"):
            await link.request(*CALL)
    assert asked.count("tools/call") == 1
    assert used != [0], "it was to go over a connection that had been used before"


async def test_a_call_that_did_not_leave_whole_goes_again_over_another_connection(connect: Connect) -> None:
    broken: list[int] = []
    answered: list[int] = []

    async def serve(stream: SocketStream, number: int) -> None:
        talk = Talk(stream)
        while True:
            size = SIZE.search(await talk.head())
            if size and int(size[1]) > 10_000_000:
                if not broken:  # closed while most of the request has yet to come
                    broken.append(number)
                    return
                answered.append(number)
            await talk.answer(await talk.read())

    arguments = {"name": "any", "arguments": {"long": "x" * 20_000_000}}
    async with raw(serve) as url, connect(url=url) as link:
        await link.request("ping", None)
        assert await link.request("tools/call", arguments)
    assert len(broken) == len(answered) == 1
    assert broken != answered


async def test_a_connection_is_not_used_again_after_it_was_idle_for_long(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert retries.IDLE_S <= 2.5, "many servers close theirs after 5 s"
    monkeypatch.setattr("hubbubd.upstream.http.connections.IDLE_S", 0.0)  # longer than that is at once
    used: list[int] = []

    async def serve(stream: SocketStream, number: int) -> None:
        talk = Talk(stream)
        while True:
            message = await talk.read()
            if message.get("method") == "ping":
                used.append(number)
            await talk.answer(message)

    async with raw(serve) as url, connect(url=url) as link:
        for _ in range(3):
            await link.request("ping", None)
    assert len(set(used)) == 3
