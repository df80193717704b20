"""Servers whose session is over, and who say so in other ways than with 404."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hubbubd.errors import PeerError, UpstreamError
from hubbubd.upstream.links import session_loss as session_module

from ..raising import raising
from .conftest import CALL, Connect, Endpoint, Recorder, Scripted, says, served
from .session import ended, session, until
from .test_own_stream import under_way


def refuses(status: int, code: int | None, message: str) -> Endpoint:
    """Refuses a request, with an error of JSON-RPC or in plain words."""

    async def respond(request: Request) -> Response:
        if code is None:
            return Response(message, status)
        asked = await request.json()
        error = {"jsonrpc": "2.0", "id": asked.get("id"), "error": {"code": code, "message": message}}
        return JSONResponse(error, status)

    return respond


OVER = [
    (200, -32002, "Server not initialized"),
    (200, -32600, "Unknown session"),
    (400, -32000, "Bad Request: no such session"),
    (409, None, "no session"),
    (410, -32001, "Session not found"),
    (422, None, "session?"),
    (500, None, "Internal Server Error"),
    (503, -32001, "Session not found"),
    (503, None, "no session here"),
]


@pytest.mark.parametrize("pinged", [True, False], ids=["pinged before", "never pinged"])
@pytest.mark.parametrize(("status", "code", "message"), OVER)
async def test_a_call_and_a_ping_that_are_both_refused_mean_that_the_session_is_over(
    status: int, code: int | None, message: str, pinged: bool, scripted: Scripted, connect: Connect
) -> None:
    async with connect(url=scripted.url) as link:
        if pinged:
            await link.probe()
        scripted.replaced = dict.fromkeys(("tools/call", "ping"), refuses(status, code, message))
        with pytest.raises((PeerError, UpstreamError)) as caught:
            await link.request(*CALL)
        lost = await link.wait_lost()
    assert lost.code == "SESSION_LOST"
    assert message in lost.message or str(status) in lost.message
    goes_again = isinstance(caught.value, UpstreamError) and caught.value.reason == "SESSION_LOST"
    assert goes_again is (400 <= status < 500), "what may have been carried out is not sent again"


@pytest.mark.parametrize(("status", "code", "message"), [each for each in OVER if each[0] < 500 or each[1]])
async def test_a_ping_that_is_refused_after_one_was_answered_means_that_the_session_is_over(
    status: int, code: int | None, message: str, scripted: Scripted, connect: Connect
) -> None:
    async with connect(url=scripted.url) as link:
        await link.probe()
        scripted.replaced = {"ping": refuses(status, code, message)}
        with pytest.raises(UpstreamError):
            await link.probe()
        assert (await link.wait_lost()).code == "SESSION_LOST"


async def test_a_ping_alone_that_a_gateway_refuses_ends_nothing(scripted: Scripted, connect: Connect) -> None:
    async with connect(url=scripted.url) as link:
        await link.probe()
        scripted.replaced = {"ping": says(503)}
        with raising(UpstreamError, "HTTP_ERROR"):
            await link.probe()
        scripted.replaced = {}
        assert await link.request(*CALL)


@pytest.mark.parametrize("status", [200, 500])
async def test_a_server_that_never_answers_pings_keeps_its_session_when_a_call_fails(
    status: int, scripted: Scripted, connect: Connect
) -> None:
    async with connect(url=scripted.url) as link:
        scripted.replaced = {
            "ping": refuses(status, -32603, "no pings here"),
            "tools/call": refuses(200, -32000, "no such row"),
        }
        await link.probe()
        for _ in range(2):
            with pytest.raises(PeerError, match="no such row"):
                await link.request(*CALL)
        scripted.replaced.pop("tools/call")
        assert await link.request(*CALL)


async def test_a_call_that_is_served_goes_on_while_all_others_are_refused(scripted: Scripted, connect: Connect) -> None:
    async with connect(url=scripted.url) as link:
        await link.probe()
        async with under_way(link, scripted):
            scripted.replaced |= dict.fromkeys(("tools/list", "ping"), refuses(503, None, "elsewhere"))
            with pytest.raises(UpstreamError):
                await link.request("tools/list", None)


async def test_a_session_that_is_refused_for_long_is_over_though_something_is_under_way(
    scripted: Scripted, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "UNDER_WAY_S", 20.0)
    async with connect(url=scripted.url) as link, anyio.create_task_group() as tasks:
        await link.probe()
        tasks.start_soon(ignore_loss, under_way(link, scripted))
        while ("POST", "tools/call") not in scripted.seen:
            await anyio.sleep(0.1)
        scripted.replaced |= dict.fromkeys(("tools/list", "ping"), refuses(200, -32002, "not initialized"))
        for _ in range(3):
            with pytest.raises(PeerError, match="not initialized"):
                await link.request("tools/list", None)
        await anyio.sleep(30)
        with raising(UpstreamError, "SESSION_LOST"):
            await link.request("tools/list", None)
        tasks.cancel_scope.cancel()


async def ignore_loss(block: Any) -> None:
    """A call is under way until its connection is lost."""
    try:
        async with block:
            await anyio.sleep_forever()
    except* UpstreamError:
        pass


@pytest.mark.parametrize("over", [True, False])
async def test_404_for_the_first_notification_is_looked_into_and_no_loss_by_itself(
    over: bool, scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    scripted.replaced = {"notifications/initialized": says(404)}
    if over:
        scripted.replaced["ping"] = says(404)
    async with connect(url=scripted.url) as link:
        if over:
            assert (await link.wait_lost()).code == "SESSION_LOST"
        else:
            assert await link.request(*CALL)
            assert "notifications/initialized, HTTP 404" in recorder.notes["notification_refused"]


async def test_a_call_whose_stream_cannot_be_resumed_is_not_one_that_met_a_lost_session(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = {"tools/call": says(200, "id: 1\ndata:\n\n", "text/event-stream"), "GET": says(404)}
    async with connect(url=scripted.url) as link:
        with raising(UpstreamError, "CONNECTION_LOST"):
            await link.request(*CALL)


@dataclass
class Forgetful:
    """A server that forgets its sessions, and then refuses everything but a handshake."""

    refuse: Endpoint
    sessions: int = 0
    good: set[str] = field(default_factory=set[str])
    called: int = 0

    async def serve(self, request: Request) -> Response:
        message: dict[str, Any] = json.loads(await request.body() or b"{}")
        if request.method != "POST":
            return Response(status_code=405)
        if message.get("method") == "initialize":
            self.sessions += 1
            self.good.add(f"s{self.sessions}")
            response = Scripted().respond(message)
            response.headers["mcp-session-id"] = f"s{self.sessions}"
            return response
        if request.headers.get("mcp-session-id") not in self.good:
            return await self.refuse(request)
        if "id" not in message:
            return Response(status_code=202)
        self.called += message["method"] == "tools/call"
        return Scripted().respond(message)


@pytest.fixture
async def forgetful() -> AsyncIterator[Callable[..., Any]]:
    """Serves one: `url, server = await forgetful(status, code, message)`."""
    async with anyio.create_task_group() as tasks:

        async def start(*refusal: Any) -> tuple[str, Forgetful]:
            server = Forgetful(refuses(*refusal))
            found: list[str] = []

            async def run() -> None:
                routes = [Route("/mcp", server.serve, methods=["GET", "POST", "DELETE"])]
                async with served(Starlette(routes=routes)) as origin:
                    found.append(f"{origin}/mcp")
                    await anyio.sleep_forever()

            tasks.start_soon(run)
            while not found:
                await anyio.sleep(0.01)
            return found[0], server

        yield start
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("status", "code", "message"), OVER)
async def test_after_a_session_that_is_over_the_next_call_works(
    status: int, code: int | None, message: str, forgetful: Callable[..., Any], tmp_path: Path
) -> None:
    url, server = await forgetful(status, code, message)
    async with session({"over": {"url": url, "stable_after_s": 1}}, tmp_path) as made:
        await made.connected("over")
        await anyio.sleep(2)
        assert ended(await made.call("over", "any")) == "ok"
        before = server.sessions
        server.good.clear()
        first = ended(await made.call("over", "any"))
        await until(lambda: server.sessions > before)
        await made.connected("over")
        assert ended(await made.call("over", "any")) == "ok"
    assert server.sessions == before + 1
    assert (first == "ok") is (400 <= status < 500)
    assert server.called == 3 - (first != "ok")
