"""The server's own stream over HTTP (GET) is optional: what becomes of it costs neither the connection nor a call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest
from anyio.abc import SocketStream
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hubbubd.upstream.http.streams import get_stream
from hubbubd.upstream.ports import McpLink

from .conftest import CALL, LIMIT_S, Connect, Endpoint, Recorder, Scripted, event, says
from .test_sessions import Talk, raw


def streams(scripted: Scripted) -> int:
    """How often the hub has asked for the GET stream."""
    return [method for method, _ in scripted.seen].count("GET")


async def asked_for_streams(scripted: Scripted, count: int) -> None:
    """Returns once the hub has asked for the GET stream so often."""
    with anyio.fail_after(3 * get_stream.SELDOM_S):
        while streams(scripted) < count:
            await anyio.sleep(0.1)


def cut_stream() -> Endpoint:
    """A GET stream that tells something, and breaks off two seconds later, in the middle of a chunk."""

    async def respond(_: Request) -> Response:
        async def body() -> AsyncIterator[str]:
            params = {"level": "info", "data": "on the GET stream"}
            yield event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
            await anyio.sleep(2)
            raise ConnectionError

        return StreamingResponse(body(), media_type="text/event-stream")

    return respond


def long_call(lasts: anyio.Event) -> Endpoint:
    """A call whose stream is open until the event."""

    async def respond(request: Request) -> Response:
        message = await request.json()

        async def body() -> AsyncIterator[str]:
            yield ": it has begun\n\n"
            await lasts.wait()
            yield event({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})

        return StreamingResponse(body(), media_type="text/event-stream")

    return respond


@asynccontextmanager
async def under_way(link: McpLink, scripted: Scripted) -> AsyncIterator[None]:
    """A call is under way during the block, and must come to its result after it."""
    lasts = anyio.Event()
    scripted.replaced["tools/call"] = long_call(lasts)
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            assert await link.request(*CALL) == {"content": []}

        tasks.start_soon(call)
        while ("POST", "tools/call") not in scripted.seen:
            await anyio.sleep(0.1)
        yield
        lasts.set()


async def test_a_get_stream_that_is_cut_again_and_again_comes_back_and_costs_no_call(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced["GET"] = cut_stream()
    async with connect(url=scripted.url) as link:
        async with under_way(link, scripted):
            await recorder.until(lambda: len(recorder.notifications) >= 6)
        await link.probe()
    assert "after 2 s" in recorder.notes["stream_cut"]


@pytest.mark.parametrize("status", [400, 404, 405, 409, 429, 500, 502, 503])
async def test_a_get_stream_that_is_refused_for_a_while_costs_no_call_and_comes_back(
    status: int, scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced["GET"] = cut_stream()
    async with connect(url=scripted.url) as link, under_way(link, scripted):
        await recorder.until(lambda: recorder.notifications)
        scripted.replaced["GET"] = says(status)
        await asked_for_streams(scripted, 5)
        assert f"HTTP {status}" in recorder.notes["stream_refused"]
        scripted.replaced["GET"] = cut_stream()
        told = len(recorder.notifications)
        await recorder.until(lambda: len(recorder.notifications) > told)
        assert "stream_refused" not in recorder.notes


@pytest.mark.parametrize("status", [400, 403, 500, 502, 503])
async def test_a_get_stream_that_never_opened_costs_nothing_and_is_tried_again_more_and_more_seldom(
    status: int, scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    asked: list[float] = []

    async def refuse(_: Request) -> Response:
        asked.append(anyio.current_time())
        return Response("<html>no</html>" * 100, status, media_type="text/html")

    scripted.replaced["GET"] = refuse
    async with connect(url=scripted.url) as link, under_way(link, scripted):
        await asked_for_streams(scripted, 5)
        await link.probe()
    pauses = [after - before for before, after in pairwise(asked)]
    assert all(after > 1.5 * before for before, after in pairwise(pauses))
    assert ("stream_refused" in recorder.notes) is (status >= 500)


async def test_a_get_stream_whose_connection_is_reset_costs_nothing(connect: Connect) -> None:
    resets: list[int] = []

    async def serve(stream: SocketStream, number: int) -> None:
        talk = Talk(stream)
        while True:
            if (await talk.head()).startswith(b"GET"):
                resets.append(number)
                return
            await talk.answer(await talk.read(), session="s1")

    async with raw(serve) as url, connect(url=url) as link:
        with anyio.fail_after(LIMIT_S):
            while len(resets) < 4:
                await anyio.sleep(0.1)
        assert await link.request(*CALL)


async def test_a_server_that_refuses_its_stream_because_the_session_is_over_is_noticed_by_a_post(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced["GET"] = cut_stream()
    async with connect(url=scripted.url) as link:
        await recorder.until(lambda: recorder.notifications)
        scripted.replaced = {"GET": says(404), "ping": says(404)}
        assert (await link.wait_lost()).code == "SESSION_LOST"


async def test_a_stream_goes_on_after_the_last_event_that_came(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    after: list[str | None] = []

    async def goes_on(request: Request) -> Response:
        after.append(request.headers.get("last-event-id"))
        told = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        return Response(f"id: {len(after)}\n{told}", media_type="text/event-stream")

    scripted.replaced["GET"] = goes_on
    async with connect(url=scripted.url):
        await recorder.until(lambda: len(recorder.notifications) >= 3)
    assert after[:3] == [None, "1", "2"]


@pytest.mark.parametrize(
    ("status", "kept"),
    [(400, ""), (200, f"id: 8\ndata: {'x' * 5000}\n\n")],
    ids=["which the server refuses", "where the next one is too long"],
)
async def test_a_stream_that_cannot_go_on_after_its_last_event_begins_without_it(
    scripted: Scripted, connect: Connect, recorder: Recorder, status: int, kept: str
) -> None:
    async def begins(request: Request) -> Response:
        if "last-event-id" in request.headers:
            return Response(kept, status, media_type="text/event-stream")
        told = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        return Response(f"id: 7\n{told}", media_type="text/event-stream")

    scripted.replaced["GET"] = begins
    async with connect(url=scripted.url, max_message_bytes=4096):
        await recorder.until(lambda: len(recorder.notifications) >= 3)


async def test_an_event_that_is_too_long_costs_the_stream_and_not_the_connection(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced["GET"] = says(200, f"data: {'x' * 5000}\n\n", "text/event-stream")
    async with connect(url=scripted.url, max_message_bytes=4096) as link, under_way(link, scripted):
        await asked_for_streams(scripted, 4)
