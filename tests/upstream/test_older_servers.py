"""Servers of older revisions at a url: another transport, other revisions, and how they refuse the hub's."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hubbubd.errors import UpstreamError

from ..raising import raising
from .conftest import CALL, Connect, Endpoint, Recorder, Scripted, open_once, says, served


def with_sse(status: int, endpoint: str = "/post") -> Starlette:
    """A server that only has HTTP with SSE, and refuses a POST to its stream with this status."""
    waiting: list[Any] = []
    came = anyio.Event()

    async def stream(_: Request) -> Response:
        async def body() -> AsyncIterator[str]:
            nonlocal came
            yield f"event: endpoint\ndata: {endpoint}\n\n"
            while True:
                await came.wait()
                came = anyio.Event()
                while waiting:
                    response = Scripted().respond(waiting.pop(0))
                    yield f"event: message\ndata: {bytes(response.body).decode()}\n\n"

        return StreamingResponse(body(), media_type="text/event-stream")

    async def take(request: Request) -> Response:
        message = await request.json()
        if "id" in message:
            waiting.append(message)
            came.set()
        return Response(status_code=202)

    async def refuse(_: Request) -> Response:
        return Response("no", status)

    async def redirect(_: Request) -> Response:
        return Response(status_code=307, headers={"location": "https://elsewhere.example/post"})

    return Starlette(
        routes=[
            Route("/sse", stream, methods=["GET"]),
            Route("/sse", refuse, methods=["POST"]),
            Route("/post", take, methods=["POST"]),
            Route("/moved", redirect, methods=["POST"]),
        ]
    )


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_url_of_http_with_sse_needs_no_transport(status: int, connect: Connect, recorder: Recorder) -> None:
    async with served(with_sse(status)) as origin, connect(url=f"{origin}/sse") as link:
        assert await link.request(*CALL)
        assert 'transport = "sse"' in recorder.notes["older_transport"]


async def test_a_server_that_refuses_posts_and_has_no_such_stream_is_refused_by_its_status(
    connect: Connect, scripted: Scripted, recorder: Recorder
) -> None:
    scripted.replaced = dict.fromkeys(("server/discover", "initialize"), says(404, "nothing here"))
    with pytest.raises(UpstreamError, match="HTTP 404; check its url: nothing here"):
        await open_once(connect(url=scripted.url))
    assert recorder.notes == {}


async def test_both_transports_are_tried_within_one_time_limit(connect: Connect) -> None:
    async def refuse(_: Request) -> Response:
        await anyio.sleep(20)
        return Response("no", 405)

    async def stream(_: Request) -> Response:
        async def body() -> AsyncIterator[str]:
            yield ": nothing more comes\n\n"
            await anyio.sleep_forever()

        return StreamingResponse(body(), media_type="text/event-stream")

    routes = [Route("/mcp", stream, methods=["GET"]), Route("/mcp", refuse, methods=["POST"])]
    async with served(Starlette(routes=routes)) as origin:
        begun = anyio.current_time()
        with pytest.raises(UpstreamError, match="HTTP 405"):
            await open_once(connect(url=f"{origin}/mcp", connect_timeout_s=50))
        assert 40 < anyio.current_time() - begun < 55


async def test_an_endpoint_elsewhere_is_refused_by_name(connect: Connect) -> None:
    async with served(with_sse(405, "https://elsewhere.example/post?token=x")) as origin:
        with pytest.raises(UpstreamError, match=r"its endpoint is at https://elsewhere\.example, and not within"):
            await open_once(connect(url=f"{origin}/sse", transport="sse"))


async def test_a_message_that_is_redirected_elsewhere_ends_the_connection_at_once(connect: Connect) -> None:
    async with served(with_sse(405, "/moved")) as origin:
        with pytest.raises(UpstreamError, match=r"a redirect to https://elsewhere\.example, which is not followed"):
            await open_once(connect(url=f"{origin}/sse", transport="sse"))


def only(version: str, refusal: Endpoint, asked: list[str]) -> Endpoint:
    """Answers a handshake in this revision alone."""

    async def initialize(request: Request) -> Response:
        message: dict[str, Any] = json.loads(await request.body())
        asked.append(message["params"]["protocolVersion"])
        if asked[-1] != version:
            return await refusal(request)
        response: dict[str, Any] = json.loads(bytes(Scripted().respond(message).body))
        response["result"]["protocolVersion"] = version
        return JSONResponse(response)

    return initialize


def refused_with_data(*supported: str) -> Endpoint:
    """The specification's own refusal of a revision."""

    async def refuse(request: Request) -> Response:
        message: dict[str, Any] = json.loads(await request.body())
        data = {"supported": supported, "requested": message["params"]["protocolVersion"]}
        error = {"code": -32602, "message": "Unsupported protocol version", "data": data}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})

    return refuse


LISTED = "Unsupported protocol version (supported versions: 2025-06-18, 2025-03-26)\n"


@pytest.mark.parametrize("refusal", [refused_with_data("2025-06-18"), says(400, LISTED)], ids=["data", "text"])
async def test_a_refused_revision_is_followed_by_one_that_both_speak(
    refusal: Endpoint, connect: Connect, scripted: Scripted
) -> None:
    asked: list[str] = []
    scripted.replaced = {"initialize": only("2025-06-18", refusal, asked)}
    async with connect(url=scripted.url) as link:
        assert link.hello.protocol_version == "2025-06-18"
        assert await link.request(*CALL)
    assert asked == ["2025-11-25", "2025-06-18"]


@pytest.mark.parametrize("refusal", [refused_with_data("2025-06-18"), says(400, LISTED)], ids=["data", "text"])
async def test_a_configured_revision_that_is_refused_names_the_one_to_configure(
    refusal: Endpoint, connect: Connect, scripted: Scripted
) -> None:
    scripted.replaced = {"initialize": only("2025-06-18", refusal, [])}
    with raising(UpstreamError, "PROTOCOL_VERSION_MISMATCH", match='set protocol = "2025-06-18"'):
        await open_once(connect(url=scripted.url, protocol="2025-11-25"))


async def test_revisions_that_the_hub_does_not_speak_are_a_mismatch_that_lists_them(
    connect: Connect, scripted: Scripted
) -> None:
    scripted.replaced = {"initialize": refused_with_data("2031-01-01")}
    with raising(UpstreamError, "PROTOCOL_VERSION_MISMATCH", match="2031-01-01"):
        await open_once(connect(url=scripted.url))
