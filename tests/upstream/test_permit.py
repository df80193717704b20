"""A hub that may not act at the moment sends nothing to its servers, whatever the transport."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification
from yarl import URL

from hubbubd.config import ServerConfig
from hubbubd.errors import Category, Fault, UpstreamError
from hubbubd.upstream.connector import McpConnector
from hubbubd.upstream.http.client import HttpClient, HttpFailure, HttpRequest
from hubbubd.upstream.http.connections import Connections
from hubbubd.upstream.messages.streams import PermittedStream

from .conftest import Pocket, Recorder

LOST = UpstreamError(Fault(code="OWNER_LOST", category=Category.CONNECTION, message="gone"))


class Lease:
    """Permits `granted` frames; then nothing until it is renewed, or lost."""

    def __init__(self, granted: int = 0) -> None:
        self.granted = granted
        self.renewed = anyio.Event()
        self.lost = False
        self.asked = 0

    async def permit(self) -> None:
        self.asked += 1
        if self.granted:
            self.granted -= 1
            return
        if not self.lost:
            await self.renewed.wait()
        if self.lost:
            raise LOST


class Heard:
    """A server that notes what it reads, and answers each request with 202."""

    def __init__(self) -> None:
        self.url = ""
        self.bytes = b""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while got := await reader.read(65536):
            self.bytes += got
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        writer.close()


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    heard = Heard()
    server = await asyncio.start_server(heard.accept, "127.0.0.1", 0)
    async with server:
        heard.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield heard


@asynccontextmanager
async def client_of(heard: Heard, lease: Lease) -> AsyncGenerator[Callable[[str], Any]]:
    config = ServerConfig.model_validate({"name": "peer", "url": heard.url})
    async with Connections().use_session(None) as session:
        client = HttpClient(config, session, ssl.create_default_context(), None, None, permit=lease.permit)

        async def send(method: str) -> int:
            content = b"{}" if method == "POST" else None
            answer = await client.send(HttpRequest(method, URL(heard.url), client.build_headers({}), content))
            answer.close()
            return answer.status

        yield send


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_request_waits_until_it_is_permitted(heard: Heard, method: str) -> None:
    lease = Lease()
    async with client_of(heard, lease) as send, anyio.create_task_group() as tasks:
        tasks.start_soon(send, method)
        await anyio.wait_all_tasks_blocked()
        assert lease.asked == 1
        assert heard.bytes == b""
        lease.renewed.set()
    assert heard.bytes.startswith(method.encode())


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_request_that_is_never_permitted_fails(heard: Heard, method: str) -> None:
    lease = Lease()
    lease.lost = True
    async with client_of(heard, lease) as send:
        with pytest.raises(UpstreamError) as refused:
            await send(method)
    assert refused.value.fault.code == "OWNER_LOST"
    assert heard.bytes == b""


async def test_a_message_that_is_not_permitted_any_more_once_it_is_connected_is_not_sent(heard: Heard) -> None:
    lease = Lease(granted=1)
    lease.lost = True
    async with client_of(heard, lease) as send:
        with pytest.raises(HttpFailure):
            await send("POST")
    assert heard.bytes == b""


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_no_transport_over_http_opens_unpermitted(heard: Heard, recorder: Recorder, transport: str) -> None:
    lease = Lease()
    config = ServerConfig.model_validate({"name": "peer", "url": heard.url, "transport": transport})

    async def connect() -> None:
        async with McpConnector(Pocket(), permit=lease.permit).open(config, recorder, None, None):
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connect)
        with anyio.fail_after(20):
            while not lease.asked:
                await anyio.sleep(0.01)
        await anyio.sleep(0.05)
        assert heard.bytes == b""
        tasks.cancel_scope.cancel()


async def test_a_process_is_told_nothing_unpermitted(stdio: Callable[..., dict[str, Any]], recorder: Recorder) -> None:
    lease = Lease()
    lease.lost = True
    config = ServerConfig.model_validate({"name": "peer", **stdio("asking_server.py")})
    with pytest.raises(UpstreamError):
        async with McpConnector(Pocket(), permit=lease.permit).open(config, recorder, None, None):
            pass
    assert lease.asked


class Written:
    """A stream that notes what is sent; implements `Writing`."""

    def __init__(self) -> None:
        self.items = list[SessionMessage]()
        self.closed = False

    async def send(self, item: SessionMessage, /) -> None:
        self.items.append(item)

    async def aclose(self) -> None:
        self.closed = True


MESSAGE = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))


async def test_a_frame_for_a_process_waits_until_it_is_permitted() -> None:
    lease, written = Lease(), Written()
    stream = PermittedStream(written, lease.permit)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.send, MESSAGE)
        await anyio.wait_all_tasks_blocked()
        assert written.items == []
        lease.renewed.set()
    assert written.items == [MESSAGE]
    await stream.aclose()
    assert written.closed


async def test_a_stream_that_is_never_permitted_is_closed_for_who_writes() -> None:
    lease, written = Lease(), Written()
    lease.lost = True
    with pytest.raises(anyio.ClosedResourceError):
        await PermittedStream(written, lease.permit).send(MESSAGE)
    assert written.items == []
