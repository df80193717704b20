"""HTTP servers that break its rules: whose response a call gets, what a fault says, and what is sent twice."""

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import aiohappyeyeballs
import anyio
import pytest
from anyio.abc import SocketStream

from hubbubd.errors import UpstreamError
from hubbubd.upstream.ports import InboundReply, InboundRequest

from ..raising import raising
from .conftest import CALL, Connect, Recorder, Scripted, event, open_once, says
from .test_sessions import Talk, raw
from .threaded import IN_REAL_TIME, Threaded, whole


def response_to(request_id: int, text: str) -> bytes:
    """A whole response to a call."""
    result = {"content": [{"type": "text", "text": text}]}
    body = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def test_a_response_that_nobody_asked_for_becomes_the_result_of_no_later_call(connect: Connect) -> None:
    """A connection may be shared by servers with different credentials: what comes between requests is nobody's."""

    async def serve(stream: SocketStream, _: int) -> None:
        talk = Talk(stream)
        while True:
            message = await talk.read()
            if message.get("method") != "tools/call":
                await talk.answer(message)
                continue
            await stream.send(response_to(message["id"], "right"))
            await anyio.sleep(0.01)
            for later in range(1, 9):
                with suppress(anyio.BrokenResourceError):
                    await stream.send(response_to(message["id"] + later, "stolen"))

    async with raw(serve) as url, connect(url=url, protocol="2025-11-25") as link:
        for _ in range(3):
            result = await link.request(*CALL)
            assert result["content"][0]["text"] == "right"
            await anyio.sleep(0.2)  # the loop reads what comes meanwhile, and nothing tells of it


class Resetting(Threaded):
    """Reads its second call whole and then resets the connection."""

    def serve(self, connection: socket.socket, message: dict[str, Any], *, is_call: bool) -> bool:
        """Answers."""
        if self.calls == 2:  # it has carried out the call, and ends before the system has acknowledged it
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        connection.sendall(whole(message))
        return True


@pytest.fixture
def resetting() -> Iterator[Resetting]:
    server = Resetting()
    yield server
    server.stop()


@IN_REAL_TIME
async def test_a_call_that_was_read_is_not_sent_again_though_nothing_of_it_was_acknowledged(
    resetting: Resetting, connect: Connect
) -> None:
    async with connect(url=resetting.url, protocol="2025-11-25") as link:
        await link.request(*CALL)
        with raising(UpstreamError, "CONNECTION_LOST"):
            await link.request(*CALL)
    assert resetting.calls == 2


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nMcp-Session-Id: canary\r\nX-Long: " + b"y" * 30_000 + b"\r\n",
        b"SSH-2.0-OpenSSH canary\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: canary" + b"y" * 40_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: canary\r\n" * 2000 + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\ncanary\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nContent-Type: application/json\r\n\r\ncanary",
    ],
)
async def test_what_is_no_http_is_told_in_few_words_of_the_hubs_own(said: bytes, connect: Connect) -> None:
    async def serve(stream: SocketStream, _: int) -> None:
        talk = Talk(stream)
        while True:
            message = await talk.read()
            if message.get("method") == "tools/call":
                await stream.send(said)
                return
            await talk.answer(message)

    async with raw(serve) as url, connect(url=f"{url}?key=hidden") as link:
        with raising(UpstreamError, "CONNECTION_LOST") as caught:
            await link.request(*CALL)
    told = f"{caught.value.message} {caught.value.fault}"
    assert len(told) < 1000
    assert "None" not in caught.value.message
    assert not any(word in told for word in ("canary", "hidden", "redacted", "Error", "\n"))


@pytest.mark.parametrize("place", ["mailto:x", "data:,x", "http:", "javascript:x", "http://[::1", "//h:99999/"])
async def test_a_redirect_to_what_is_no_place_is_a_refusal_and_costs_the_call_alone(
    place: str, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = {"tools/call": says(307, location=place)}
    async with connect(url=scripted.url) as link:
        with raising(UpstreamError, "HTTP_ERROR"):
            await link.request(*CALL)
        await link.probe()


async def test_an_answer_that_a_server_does_not_read_is_given_up(
    connect: Connect, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fills the buffers on the way, and is less than what is written at once."""
    start_connection = aiohappyeyeballs.start_connection

    async def small(*args: Any, **options: Any) -> socket.socket:
        connection = await start_connection(*args, **options)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return connection

    monkeypatch.setattr(aiohappyeyeballs, "start_connection", small)

    async def big(_: InboundRequest) -> InboundReply:
        return InboundReply(result={"action": "accept", "content": {"name": "x" * 200_000}}, on_sent=recorder.tell)

    recorder.answer = big
    asked = anyio.Event()

    async def serve(stream: SocketStream, _: int) -> None:
        stream.extra(anyio.abc.SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        talk = Talk(stream)
        while True:
            head = await talk.head()
            if asked.is_set() and b"Content-Length: 200" in head:
                await anyio.sleep_forever()
            message = await talk.read()
            if message.get("method") != "tools/call":
                await talk.answer(message)
                continue
            params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            body = event({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params})
            asked.set()
            await stream.send(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{body}".encode())
            await anyio.sleep_forever()

    async with raw(serve) as url, connect(url=url, protocol="2025-11-25", connect_timeout_s=2) as link:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.request, *CALL)
            await recorder.until(lambda: recorder.sent)
            tasks.cancel_scope.cancel()
        assert "too long" in str(recorder.sent[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Content-Length", "5"),
        ("transfer-encoding", "chunked"),
        ("Expect", "100-continue"),
        ("X A", "1"),
        ("X-A:", "1"),
        ("X-A", "a\x01b"),
    ],
)
async def test_a_header_that_would_break_the_framing_of_requests_is_no_configuration(
    name: str, value: str, scripted: Scripted, connect: Connect
) -> None:
    """A connection is shared: what a server takes for the next request could be that of another server's user."""
    with raising(UpstreamError, "CONFIG_INVALID"):
        await open_once(connect(url=scripted.url, headers={name: value}))
    assert scripted.seen == []
