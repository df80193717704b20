"""Servers behind a load balancer that leads by cookie to the process that knows the session."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from yarl import URL

from hubbubd.errors import UpstreamError
from hubbubd.upstream.http.cookies import MAX_COOKIE_BYTES, MAX_COOKIES, ServerCookies

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
    cookies = ServerCookies(HOME, is_enabled=True)
    cookies.store(HOME, ["a=1; Domain=example", f"long={'x' * MAX_COOKIE_BYTES}", "\x00=bad", ""])
    cookies.store(URL("https://other.example/"), ["b=2"])
    assert cookies.build_header(HOME, None) == "a=1"
    for elsewhere in ("http://mcp.example/", "https://mcp.example:8443/", "https://example/"):
        assert cookies.build_header(URL(elsewhere), None) is None
    cookies.store(HOME, [f"c{number}=1" for number in range(2 * MAX_COOKIES)])
    assert len((cookies.build_header(HOME, None) or "").split("; ")) == MAX_COOKIES
    cookies.store(HOME, ["a=; Max-Age=0"])
    assert "a=" not in (cookies.build_header(HOME, None) or "")


THEN = 1_700_000_000.0
PAST, FUTURE = "Tue, 14 Nov 2023 22:13:19 GMT", "Tue, 14-Nov-2023 22:14:20 GMT"


@pytest.mark.parametrize(
    ("attributes", "ends_after_s"),
    [
        ("Max-Age=0", 0),
        ("Max-Age=00", 0),
        ("Max-Age=-1", 0),
        ("Max-Age=10", 10),
        ("Max-Age=0; Expires=" + FUTURE, 0),
        ("Max-Age=10; Expires=" + PAST, 10),
        ("Max-Age=x; Expires=" + PAST, 0),
        ("Expires=" + PAST, 0),
        ("expires=Thu, 01 Jan 1970 00:00:00 GMT; Path=/", 0),
        ("Expires=Wed, 01 Jan 1969 00:00:00 GMT", 0),
        ("Expires=" + FUTURE, 60),
        ("Expires=soon", None),
        ("Max-Age=" + 100 * "9", None),
        ("", None),
    ],
)
def test_a_cookie_that_has_ended_is_dropped(attributes: str, ends_after_s: float | None) -> None:
    now = THEN
    cookies = ServerCookies(HOME, is_enabled=True, now=lambda: now)
    cookies.store(HOME, ["a=1", "b=1"])
    cookies.store(HOME, [f"a=2; {attributes}"])
    assert cookies.build_header(HOME, None) == ("b=1" if ends_after_s == 0 else "b=1; a=2")
    now += 59 if ends_after_s is None else ends_after_s + 1
    assert cookies.build_header(HOME, None) == ("b=1; a=2" if ends_after_s is None else "b=1")


def test_cookies_that_have_ended_leave_room_for_others() -> None:
    now = THEN
    cookies = ServerCookies(HOME, is_enabled=True, now=lambda: now)
    cookies.store(HOME, [f"c{number}=1; Max-Age=10" for number in range(MAX_COOKIES)])
    now += 11
    cookies.store(HOME, ["a=1"])
    assert cookies.build_header(HOME, None) == "a=1"


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_time_that_a_cookie_names_is_an_error(max_age: str, expires: str) -> None:
    cookies = ServerCookies(HOME, is_enabled=True)
    cookies.store(HOME, [f"a=1; Max-Age={max_age}; Expires={expires}"])
    cookies.build_header(HOME, None)
