"""HTTP as it comes over the wire: in odd pieces, in too many, or not as HTTP at all."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from hubbub_http import MARK_AUTHENTICATED, make_connection_class
from hubbub_http.connection import DRAINED_BYTES, MAX_HEAD_BYTES, MAX_HEADERS, MAX_STRANGER_CHUNKS, STRANGER_BYTES
from hubbubd.rpc.listeners.http_server import serve_application

from .conftest import LIMIT_S

HEAD = b"POST /said HTTP/1.1\r\nHost: here\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /asked HTTP/1.1\r\nHost: here\r\n\r\n"
SMALLEST_CHUNK = b"1\r\na\r\n"


class Place:
    """A server that says what it was sent, and what it did for that."""

    def __init__(self) -> None:
        self.parts = 0
        self.most_waiting = 0
        self.admits = asyncio.Event()
        """Set once requests are authenticated; until then none is."""
        self.left = asyncio.Event()
        """Set once somebody who asked for /stay has closed the connection."""
        self.hang_up: Callable[[], None] = lambda: None
        """Closes the connection that asked for /gone, which is then answered without having been read."""
        self.port = 0

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers with what was asked; what is at /hold only after it was authenticated, /stay never."""
        if scope["path"] == "/stay":
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left.set()
            return
        if scope["path"] == "/hold":
            await self.admits.wait()
            scope[MARK_AUTHENTICATED]()
        if scope["path"] == "/gone":
            self.hang_up()
        body = b""
        while scope["path"] not in ("/refused", "/gone"):
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event["body"]
            if not event["more_body"]:
                break
        said = json.dumps([scope["method"], scope["path"], body.decode()]).encode()
        if scope["path"] == "/field":
            said = json.dumps([value.decode() for name, value in scope["headers"] if name == b"x"]).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
        await send({"type": "http.response.body", "body": said})


@asynccontextmanager
async def place(max_requests: int | None = None) -> AsyncIterator[Place]:
    here = Place()

    class Counted(make_connection_class()):  # type: ignore[misc]
        def on_body(self, body: bytes) -> None:
            here.parts += 1
            super().on_body(body)

        def on_message_complete(self) -> None:
            super().on_message_complete()
            here.most_waiting = max(here.most_waiting, len(self.pipeline))

    serving = serve_application(here.app, "127.0.0.1:0", connections=Counted, max_requests=max_requests, grace_s=1)
    async with serving as url:
        here.port = int(url.rpartition(":")[2])
        with anyio.fail_after(LIMIT_S):
            yield here


async def response(stream: anyio.abc.SocketStream, left: bytearray) -> tuple[int, bytes]:
    """The status and body of the next response."""
    while b"\r\n\r\n" not in left:
        left += await stream.receive()
    head, _, rest = bytes(left).partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(rest) < size:
        rest += await stream.receive()
    left[:] = rest[size:]
    return int(head.split(b" ")[1]), rest[:size]


async def said(here: Place, *sent: bytes, answers: int = 1) -> list[tuple[int, bytes]]:
    """What a server answers to what it is sent in these pieces."""
    async with await anyio.connect_tcp("127.0.0.1", here.port) as stream:
        for piece in sent:
            await stream.send(piece)
        left = bytearray()
        return [await response(stream, left) for _ in range(answers)]


def echoed(method: str, path: str, body: str = "") -> tuple[int, bytes]:
    return 200, json.dumps([method, path, body]).encode()


async def test_more_requests_at_once_than_are_served_are_refused() -> None:
    async with place(max_requests=2) as here:
        async with await anyio.connect_tcp("127.0.0.1", here.port) as stream:
            await stream.send(GET.replace(b"/asked", b"/stay"))
            ((status, _),) = await said(here, GET)
            assert status == 503
        await here.left.wait()
        assert await said(here, GET) == [echoed("GET", "/asked")]


async def test_white_space_around_a_field_is_no_part_of_it() -> None:
    async with place() as here:
        sent = b"GET /field HTTP/1.1\r\nHost: here\r\nX: \t a b \t\r\n\r\n"
        assert await said(here, sent) == [(200, b'["a b"]')]


async def test_tiny_chunks_of_a_stranger_are_not_read_until_it_is_known() -> None:
    async with place() as here, await anyio.connect_tcp("127.0.0.1", here.port) as stream:
        count = 50 * MAX_STRANGER_CHUNKS
        left = bytearray()
        async with anyio.create_task_group() as tasks:
            head = CHUNKED.replace(b"/said", b"/hold")
            tasks.start_soon(stream.send, head + count * SMALLEST_CHUNK + b"0\r\n\r\n")
            while here.parts < MAX_STRANGER_CHUNKS:
                await anyio.sleep(0)
            for _ in range(100):  # it had the time for all of them
                await anyio.sleep(0)
            assert here.parts <= MAX_STRANGER_CHUNKS + STRANGER_BYTES / len(SMALLEST_CHUNK)
            here.admits.set()
            assert await response(stream, left) == echoed("POST", "/hold", count * "a")


async def test_of_many_requests_in_a_row_few_wait_and_all_are_answered_in_order() -> None:
    async with place() as here:
        paths = [f"/{number}" for number in range(500)]
        sent = b"".join(GET.replace(b"/asked", path.encode()) for path in paths)
        assert await said(here, sent, answers=500) == [echoed("GET", path) for path in paths]
        assert here.most_waiting <= STRANGER_BYTES / len(sent) * len(paths) + 1


@pytest.mark.parametrize(
    "coding", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
async def test_who_offers_another_protocol_is_answered_in_this_one_with_its_body_read(coding: bytes) -> None:
    """As the clients of Java do with HTTP/2 (RFC 9110, 7.8); the body must not be taken for the next request."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    async with place() as here:
        assert await said(here, HEAD + offer + coding + GET, answers=2) == [
            echoed("POST", "/said", "abc"),
            echoed("GET", "/asked"),
        ]


LONG = b"x" * MAX_HEAD_BYTES


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (400, b"\x16\x03\x01 this is TLS\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        (400, HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (400, HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n"),
        (400, HEAD + b"Content-Length: -1\r\n\r\n"),
        (400, HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n"),
        (400, HEAD + b"A : b\r\n\r\n"),
        (400, HEAD + b"A: b\r\n folded\r\n\r\n"),
        (400, HEAD + b"A: b\x00c\r\n\r\n"),
        (400, CHUNKED + b"zz\r\n"),
        (400, CHUNKED + b"ffffffffffffffffff\r\n"),
        (400, CHUNKED + b"1\r\naX"),
        (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (400, HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
        (400, b"CONNECT here:80 HTTP/1.1\r\nHost: here\r\n\r\n"),
        (400, b"GET / HTTP/2.0\r\nHost: here\r\n\r\n"),
        (431, b"GET /" + LONG + b" HTTP/1.1\r\nHost: here\r\n\r\n"),
        (431, HEAD + b"A: " + LONG + b"\r\n\r\n"),
        (431, HEAD + b"A: " + 2 * LONG),
        (431, HEAD + MAX_HEADERS * b"a:\r\n" + b"\r\n"),
        (431, CHUNKED + b"0\r\n" + (MAX_HEADERS + 1) * b"a:\r\n" + b"\r\n"),
        (431, CHUNKED + b"0\r\nA: " + 2 * LONG),
        (431, CHUNKED + b"1;a=" + 2 * LONG),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_no_request_is_refused_by_name_and_ends_its_connection(status: int, sent: bytes) -> None:
    async with place() as here:
        async with await anyio.connect_tcp("127.0.0.1", here.port) as stream:
            await stream.send(sent)
            got, why = await response(stream, bytearray())
            assert got == status
            assert why.decode().strip()
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        assert await said(here, GET) == [echoed("GET", "/asked")]  # others are served


async def test_what_comes_behind_a_request_that_is_answered_costs_it_nothing() -> None:
    async with place() as here:
        assert await said(here, GET + b"\x00\x00 this is no request\r\n\r\n") == [echoed("GET", "/asked")]


async def test_a_request_that_is_served_hears_of_the_end_of_its_connection_though_others_wait_behind_it() -> None:
    async with place() as here:
        async with await anyio.connect_tcp("127.0.0.1", here.port) as stream:
            await stream.send(GET.replace(b"/asked", b"/stay") + GET)
            while here.most_waiting == 0:
                await anyio.sleep(0)
        await here.left.wait()


async def test_a_request_that_goes_on_after_its_response_ends_its_connection() -> None:
    async with place() as here, await anyio.connect_tcp("127.0.0.1", here.port) as stream:
        await stream.send(CHUNKED.replace(b"/said", b"/refused"))
        assert await response(stream, bytearray()) == echoed("POST", "/refused")
        part = b"400\r\n" + 1024 * b"a" + b"\r\n"
        for _ in range(2 * DRAINED_BYTES // len(part)):
            await stream.send(part)
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_the_rest_of_a_short_request_is_read_after_its_response() -> None:
    async with place() as here, await anyio.connect_tcp("127.0.0.1", here.port) as stream:
        left = bytearray()
        await stream.send(CHUNKED.replace(b"/said", b"/refused"))
        assert await response(stream, left) == echoed("POST", "/refused")
        await stream.send(b"3\r\nabc\r\n0\r\n\r\n" + GET)
        assert await response(stream, left) == echoed("GET", "/asked")
