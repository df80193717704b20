"""Servers behind a load balancer that leads by cookie to the process that knows the session."""

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from yarl import URL

from hubbubd.errors import UpstreamError
from hubbubd.upstream.http.server_cookies import LONGEST, MOST, ServerCookies

from .conftest import CALL, Connect, Recorder, Scripted

HOME = URL("https://mcp.example/mcp")


def balanced(scripted: Scripted) -> None:
    """From now on a request without the cookie of the handshake is led to a process that knows no session."""

    async def led(request: Request) -> Response:
        message: dict[str, Any] = json.loads(await request.body() or b"{}")
        if message.get("method") == "initialize":
            response = scripted.respond(message)
            response.headers["set-cookie"] = "LB=one; Path=/; HttpOnly"
            return response
        if "LB=one" not in request.headers.get("cookie", ""):
            return Response("Session not found", 404)
        return scripted.respond(message) if "id" in message else Response(status_code=202)

    scripted.replaced = dict.fromkeys(("initialize", "notifications/initialized", "ping", "tools/call"), led)


async def test_with_cookies_a_session_behind_a_balancer_is_found(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    balanced(scripted)
    async with connect(url=scripted.url, cookies=True, headers={"Cookie": "own=1"}) as link:
        assert await link.request(*CALL)
        assert scripted.headers[-1]["cookie"] == "own=1; LB=one"
    assert "cookie_ignored" not in recorder.notes


async def test_without_them_the_lost_session_is_noted_with_the_option(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    balanced(scripted)
    async with connect(url=scripted.url) as link:
        with pytest.raises(UpstreamError):
            await link.request(*CALL)
        assert (await link.wait_lost()).code == "SESSION_LOST"
    assert "cookies = true" in recorder.notes["cookie_ignored"]


def test_a_cookie_goes_back_to_its_exact_origin_alone_and_is_bounded() -> None:
    cookies = ServerCookies(HOME, wanted=True)
    cookies.take(HOME, ["a=1; Domain=example", f"long={'x' * LONGEST}", "\x00=bad", ""])
    cookies.take(URL("https://other.example/"), ["b=2"])
    assert cookies.header(HOME, None) == "a=1"
    for elsewhere in ("http://mcp.example/", "https://mcp.example:8443/", "https://example/"):
        assert cookies.header(URL(elsewhere), None) is None
    cookies.take(HOME, [f"c{number}=1" for number in range(2 * MOST)])
    assert len((cookies.header(HOME, None) or "").split("; ")) == MOST
    cookies.take(HOME, ["a=; Max-Age=0"])
    assert "a=" not in (cookies.header(HOME, None) or "")
