"""Responses over HTTP that do not end, or would grow when they are decoded."""

import gzip
from collections.abc import AsyncIterator

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hubbubd.errors import UpstreamError

from .conftest import LIMIT_S, Connect, Recorder, Scripted, event, open_once, served

CHUNK = b"x" * 65_536
MOST = 16_000_000
"""What may be on the way in sockets and buffers, by far, when the hub has given up after 64 KiB."""


class Endless:
    """A response whose body goes on for as long as somebody reads it."""

    def __init__(self, status: int = 200, **headers: str) -> None:
        self.sent = 0
        self._about = status, {name.replace("_", "-"): value for name, value in headers.items()}
        self.over = anyio.Event()

    async def respond(self, request: Request) -> Response:
        await request.body()
        return StreamingResponse(self._body(request), *self._about)

    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        try:
            while self.sent < 4 * MOST and not await request.is_disconnected():
                yield CHUNK
                self.sent += len(CHUNK)
        finally:
            self.over.set()

    async def given_up(self) -> bool:
        """Whether nobody read it to the end, once nobody reads it any more."""
        with anyio.fail_after(LIMIT_S):
            await self.over.wait()
        return self.sent < MOST


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/event-stream"])
async def test_what_answers_a_post_of_the_older_transport_is_read_within_its_bound(kind: str, connect: Connect) -> None:
    endless = Endless(content_type=kind)

    async def events(_: Request) -> Response:
        async def told() -> AsyncIterator[str]:
            yield "event: endpoint\ndata: /post\n\n"
            await anyio.sleep(LIMIT_S)

        return StreamingResponse(told(), media_type="text/event-stream")

    routes = [Route("/sse", events, methods=["GET"]), Route("/post", endless.respond, methods=["POST"])]
    async with served(Starlette(routes=routes)) as origin:
        with pytest.raises(UpstreamError):
            await open_once(connect(url=f"{origin}/sse", transport="sse", max_message_bytes=2**16, connect_timeout_s=3))
        assert await endless.given_up()


async def test_what_comes_with_a_redirect_is_read_within_its_bound(connect: Connect, scripted: Scripted) -> None:
    endless = Endless(307, location="/mcp?again")
    scripted.replaced = {"server/discover": endless.respond, "initialize": endless.respond}
    with pytest.raises(UpstreamError):
        await open_once(connect(url=scripted.url, max_message_bytes=65_536, connect_timeout_s=3))
    assert await endless.given_up()


async def test_what_answers_the_end_of_a_session_is_read_within_its_bound(connect: Connect, scripted: Scripted) -> None:
    endless = Endless()
    scripted.replaced = {"DELETE": endless.respond}
    await open_once(connect(url=scripted.url, max_message_bytes=65_536, protocol="2025-11-25"))
    assert await endless.given_up()


async def test_a_stream_of_events_is_not_decoded(connect: Connect, scripted: Scripted, recorder: Recorder) -> None:
    note = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})

    async def encoded(_: Request) -> Response:
        return Response(gzip.compress(note.encode()), 200, {"content-encoding": "gzip"}, "text/event-stream")

    scripted.replaced = {"GET": encoded}
    async with connect(url=scripted.url, protocol="2025-11-25") as link:
        with anyio.fail_after(LIMIT_S):
            while scripted.seen.count(("GET", None)) < 3:
                await anyio.sleep(0.1)
        await link.probe()
    assert recorder.notifications == []
