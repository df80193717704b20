"""What goes wrong over HTTP, and what it is called."""

import json
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from hubbubd.errors import Category, PeerError, UpstreamError

from ..raising import raising
from .conftest import CALL, LIMIT_S, Connect, Endpoint, Recorder, Scripted, event, open_once, parks, says

STATUSES = [
    (401, "AUTHENTICATION_FAILED", Category.SERVER, False),
    (403, "AUTHENTICATION_FAILED", Category.SERVER, False),
    (429, "RATE_LIMITED", Category.SERVER, True),
    (404, "HTTP_ERROR", Category.TRANSPORT, True),
    (418, "HTTP_ERROR", Category.TRANSPORT, False),
    (500, "HTTP_ERROR", Category.TRANSPORT, True),
    (503, "HTTP_ERROR", Category.TRANSPORT, True),
]


@pytest.mark.parametrize(("status", "code", "category", "retryable"), STATUSES)
async def test_a_status_at_connecting_has_its_name(
    status: int, code: str, category: Category, retryable: bool, scripted: Scripted, connect: Connect
) -> None:
    refusal = says(status, "<p>no</p>", retry_after="7")
    scripted.replaced = {"server/discover": refusal, "initialize": refusal}
    with pytest.raises(UpstreamError) as caught:
        await open_once(connect(url=scripted.url))
    fault = caught.value.fault
    assert (fault.code, fault.category, fault.retryable) == (code, category, retryable)
    assert fault.details["status"] == status
    assert fault.details["body"] == "<p>no</p>"
    if status >= 429:
        assert fault.retry_after_s == 7


@pytest.mark.parametrize(("status", "code", "category", "retryable"), [row for row in STATUSES if row[0] != 404])
async def test_a_status_during_a_call_fails_that_call_alone(
    status: int, code: str, category: Category, retryable: bool, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = {"tools/call": says(status, retry_after="Wed, 21 Oct 2015 07:28:00 GMT")}
    async with connect(url=scripted.url) as link:
        with pytest.raises(UpstreamError) as caught:
            await link.request(*CALL)
        fault = caught.value.fault
        assert (fault.code, fault.category, fault.retryable) == (code, category, retryable)
        assert fault.details["method"] == "tools/call"
        if status >= 429:
            assert fault.retry_after_s == 0
        await link.probe()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32000, "Connection closed"),
        (-32000, "SSE stream ended without a response"),
        (-32700, "Failed to parse JSON request"),
    ],
)
async def test_an_error_is_the_servers_own_though_it_reads_like_one_of_the_transport(
    code: int, message: str, scripted: Scripted, connect: Connect
) -> None:
    async def refuse(request: Request) -> Response:
        asked = await request.json()
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": code, "message": message}})

    scripted.replaced = {"tools/call": refuse}
    async with connect(url=scripted.url) as link:
        with pytest.raises(PeerError) as caught:
            await link.request(*CALL)
    assert (caught.value.code, caught.value.message) == (code, message)


async def test_a_session_that_the_server_forgot_is_lost_for_the_call_that_met_it(
    scripted: Scripted, connect: Connect, recorder: Recorder
) -> None:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
    parked = anyio.Event()

    scripted.replaced = {"tools/call": says(404, json.dumps(error), "application/json"), "ping": parks(parked)}
    failures: list[UpstreamError] = []

    async with connect(url=scripted.url) as link, anyio.create_task_group() as tasks:

        async def other() -> None:
            with pytest.raises(UpstreamError) as caught:
                await link.request("ping", None)
            failures.append(caught.value)

        tasks.start_soon(other)
        await parked.wait()
        with raising(UpstreamError, "SESSION_LOST"):
            await link.request(*CALL)
        assert (await link.wait_lost()).code == "SESSION_LOST"
    assert [failure.reason for failure in failures] == ["CONNECTION_LOST"]
    assert failures[0].fault.details["cause"] == "SESSION_LOST"


def in_pieces(piece: str, count: int) -> Endpoint:
    """A response of so many pieces that does not say how long it is."""

    async def pieces() -> AsyncIterator[str]:
        for _ in range(count):
            yield piece

    async def respond(_: Request) -> Response:
        return StreamingResponse(pieces(), 200, {}, "application/json")

    return respond


@pytest.mark.parametrize(
    ("endpoint", "note"),
    [
        (says(200, "<html>hello</html>", "text/html"), "text/html"),
        (says(200, "{", "application/json"), "Failed to parse"),
        (says(200, "data: {\n\n", "text/event-stream"), "Failed to parse"),
        (says(202), "without a response"),
        (says(200, "x" * 5000, "application/json"), "larger than"),
        (in_pieces("x" * 1000, 5), "larger than"),
        (says(200, "data: " + "x" * 5000 + "\n\n", "text/event-stream"), "an event is larger than"),
        (says(200, "{}", "application/json", content_encoding="gzip"), "compressed"),
    ],
)
async def test_a_response_that_is_not_mcp_is_invalid(
    endpoint: Endpoint, note: str, scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = {"tools/call": endpoint}
    async with connect(url=scripted.url, max_message_bytes=4096) as link:
        with raising(UpstreamError, "INVALID_RESPONSE", match=note) as caught:
            await link.request(*CALL)
        assert caught.value.fault.category is Category.PROTOCOL
        await link.probe()


async def test_of_an_error_the_beginning_is_quoted_and_of_a_page_its_title(
    scripted: Scripted, connect: Connect
) -> None:
    page = f"<!DOCTYPE html><html><head><title>Down for repairs</title></head><body>{'x' * 5000}</body></html>"
    async with connect(url=scripted.url) as link:
        scripted.replaced = {"tools/call": says(503, page, "text/html")}
        with pytest.raises(UpstreamError, match="HTTP 503: a page of HTML, 'Down for repairs'") as caught:
            await link.request(*CALL)
        assert len(caught.value.fault.details["body"]) < 100
        scripted.replaced = {"tools/call": says(418, "the kettle\nis empty")}
        with pytest.raises(UpstreamError, match="HTTP 418: the kettle is empty"):
            await link.request(*CALL)


async def test_a_response_stream_that_breaks_off_loses_that_call_alone(scripted: Scripted, connect: Connect) -> None:
    async def broken(_: Request) -> Response:
        async def body() -> AsyncIterator[str]:
            yield event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})

        return StreamingResponse(body(), media_type="text/event-stream")

    scripted.replaced = {"tools/call": broken}
    async with connect(url=scripted.url) as link:
        with raising(UpstreamError, "CONNECTION_LOST"):
            await link.request(*CALL)
        await link.probe()


async def test_nobody_listening_is_a_refused_connection(connect: Connect, free_port: int) -> None:
    with raising(UpstreamError, "CONNECTION_REFUSED") as caught:
        await open_once(connect(url=f"http://127.0.0.1:{free_port}/mcp"))
    assert caught.value.fault.retryable


async def test_a_name_without_an_address_is_not_found(connect: Connect) -> None:
    with raising(UpstreamError, "HOST_NOT_FOUND"):
        await open_once(connect(url="http://no-such-host.invalid/mcp"))


async def test_plain_http_where_tls_is_expected_is_a_tls_failure(scripted: Scripted, connect: Connect) -> None:
    with raising(UpstreamError, "TLS_FAILED"):
        await open_once(connect(url=scripted.url.replace("http:", "https:")))


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_takes_the_connection_and_says_nothing_runs_into_the_timeout(
    transport: str, connect: Connect
) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        with pytest.raises(UpstreamError) as caught:
            await open_once(connect(url=url, transport=transport, connect_timeout_s=0.5))
    fault = caught.value.fault
    assert (fault.code, fault.category) == ("CONNECTION_TIMEOUT", Category.TIMEOUT)
    assert fault.details["elapsed_s"] == 0.5


@pytest.mark.parametrize(("transport", "path"), [("http", "mcp"), ("sse", "sse")])
async def test_a_server_that_is_gone_loses_the_link_and_every_call(
    transport: str, path: str, http_peer: Any, peer_scripts: Path, connect: Connect
) -> None:
    peer = http_peer([sys.executable, str(peer_scripts / "asking_server.py"), transport])
    async with connect(url=f"{peer.url}/{path}", transport=transport, protocol="2025-11-25") as link:
        peer.stop()
        with raising(UpstreamError, "CONNECTION_LOST"):
            await link.request("ping", None)
        lost = await link.wait_lost()
        assert lost.category in (Category.CONNECTION, Category.TRANSPORT)
        assert lost.retryable
        with raising(UpstreamError, "CONNECTION_LOST"):
            await link.request("ping", None)


async def test_a_cancelled_call_tells_the_server_and_a_late_response_is_dropped(
    scripted: Scripted, connect: Connect
) -> None:
    arrived = anyio.Event()

    scripted.replaced = {"tools/call": parks(arrived)}
    async with connect(url=scripted.url) as link, anyio.create_task_group() as tasks:
        tasks.start_soon(link.request, *CALL)
        await arrived.wait()
        tasks.cancel_scope.cancel()
    assert ("POST", "notifications/cancelled") in scripted.seen
    assert scripted.seen[-1] == ("DELETE", None)


async def test_headers_are_sent_and_variables_in_them_replaced(
    scripted: Scripted, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", "abc")
    await open_once(connect(url=scripted.url, headers={"Authorization": "Bearer ${TOKEN_OF_TEST}"}))
    assert {headers["authorization"] for headers in scripted.headers} == {"Bearer abc"}


async def test_a_variable_without_a_value_is_named(connect: Connect) -> None:
    with raising(UpstreamError, "VARIABLE_NOT_SET") as caught:
        await open_once(connect(url="http://${NO_SUCH_VARIABLE}/mcp"))
    assert caught.value.fault.details["variable"] == "NO_SUCH_VARIABLE"


async def test_a_server_that_does_not_confirm_the_end_of_the_session_holds_nothing_up(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.replaced = {"DELETE": parks()}
    with anyio.fail_after(LIMIT_S):
        await open_once(connect(url=scripted.url))
    assert ("DELETE", None) in scripted.seen


WHOLE = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%s}]}}'


@pytest.mark.parametrize("media", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(("text", "taken"), [(b'"\\ud83d"', True), (b'"a","n":NaN', False)])
async def test_http_takes_and_refuses_the_same_messages_as_stdio(
    media: str, text: bytes, taken: bool, scripted: Scripted, connect: Connect
) -> None:
    async def respond(request: Request) -> Response:
        body = WHOLE % ((await request.json())["id"], text)
        return Response(body if media == "application/json" else b"data: " + body + b"\n\n", media_type=media)

    scripted.replaced = {"tools/call": respond}
    async with connect(url=scripted.url) as link:
        if taken:
            assert (await link.request(*CALL))["content"][0]["text"] == "\ud83d"
            return
        with raising(UpstreamError, "INVALID_RESPONSE", match="NaN"):
            await link.request(*CALL)


async def test_no_cookie_of_a_server_is_read_or_kept(
    scripted: Scripted, connect: Connect, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    huge = f"a=b; Max-Age={10**309}"
    scripted.replaced = {"tools/call": says(429, "{}", set_cookie=huge)}
    async with connect(url=scripted.url) as link:
        for _ in range(2):
            with pytest.raises(UpstreamError):
                await link.request(*CALL)
    assert not [headers for headers in scripted.headers if "cookie" in headers]
    assert "cookie" not in caplog.text
    assert not [warned for warned in recwarn if "cookie" in str(warned.message)]
