"""The connections over HTTP that all servers share: who gets which, and when one is given up."""

import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from hubbubd.config import Confinement, ServerConfig
from hubbubd.errors import UpstreamError
from hubbubd.upstream.connector import McpConnector
from hubbubd.upstream.http import connections
from hubbubd.upstream.http.connections import AcknowledgmentWatch, Connections
from hubbubd.upstream.http.streams import delivery

from ..raising import raising
from .conftest import CALL, LIMIT_S, Connect, Pocket, Recorder, Scripted, event, open_once, parks, served
from .test_reach import NAME, confined, resolve_to, self_signed
from .test_sessions import Talk, raw
from .threaded import IN_REAL_TIME, Threaded, whole

__all__ = ["resolve_to"]

Open = Callable[..., Any]


@pytest.fixture
def beside(recorder: Recorder) -> Open:
    """Opens links of one hub: `beside(name, confinement=None, **server configuration)`."""
    connector = McpConnector(Pocket())

    def open_link(name: str, confinement: Confinement | None = None, **options: Any) -> Any:
        config = ServerConfig.model_validate({"name": name, **options})
        return connector.open(config, recorder, None, confinement)

    return open_link


async def answer_all(stream: SocketStream, seen: list[bytes]) -> None:
    """Answers the requests of a connection, and keeps their heads."""
    talk = Talk(stream)
    while True:
        seen.append(await talk.head())
        await talk.answer(await talk.read())


async def test_servers_at_one_place_share_connections(beside: Open) -> None:
    newest = 0
    begun: list[int] = []

    async def serve(stream: SocketStream, number: int) -> None:
        nonlocal newest
        newest = number
        talk = Talk(stream)
        while True:
            message = await talk.read()
            if message.get("method") == "initialize":
                begun.append(number)
            await talk.answer(message)

    async with raw(serve) as url, beside("one", url=url, protocol="2025-11-25") as one:
        await one.request("ping", None)
        known = newest
        async with beside("two", url=url, protocol="2025-11-25") as two:
            await two.request("ping", None)
    assert begun[1] <= known


async def test_a_confined_server_gets_no_connection_that_was_made_without_its_checks(
    beside: Open, scripted: Scripted, resolve_to: Callable[..., list[str]]
) -> None:
    resolve_to(["127.0.0.1"])
    url = scripted.url.replace("127.0.0.1", NAME)
    async with beside("trusted", url=url) as link:
        await link.request(*CALL)
        before = len(scripted.seen)
        with raising(UpstreamError, "HOST_NOT_ALLOWED"):
            async with beside("added", confined(), url=url):
                pass
        assert len(scripted.seen) == before


class Closing(Threaded):
    """Closes a connection right after it has answered a call, without a word."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.closed = threading.Event()
        super().__init__()

    def wait(self) -> None:
        """Returns when it has closed the connection; the loop has had no time to notice."""
        assert self.closed.wait(LIMIT_S)
        self.closed.clear()

    def serve(self, connection: socket.socket, message: dict[str, Any], *, is_call: bool) -> bool:
        """Answers."""
        connection.sendall(whole(message))
        if is_call:
            self.go.wait(LIMIT_S)
            connection.close()
            self.closed.set()
        return not is_call


@pytest.fixture
def closing() -> Any:
    server = Closing()
    yield server
    server.stop()


@IN_REAL_TIME
async def test_a_call_goes_over_no_connection_that_its_server_has_closed(closing: Closing, connect: Connect) -> None:
    async with connect(url=closing.url, protocol="2025-11-25") as link:
        for number in range(1, 6):
            await link.request(*CALL)
            closing.wait()
            assert closing.calls == number


@IN_REAL_TIME
async def test_the_pool_hands_out_no_connection_whose_end_the_loop_has_not_seen_yet(closing: Closing) -> None:
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call"})
    async with Connections().use_session(None) as session:
        for _ in range(3):
            async with session.post(closing.url, data=call) as response:
                assert await response.json()
            closing.wait()


@IN_REAL_TIME
async def test_a_call_that_meets_the_end_of_its_connection_on_the_way_goes_again(
    closing: Closing, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = 0

    def end_now(_: object) -> bool:
        nonlocal ended
        if closing.calls == 1 and not ended:
            ended += 1
            closing.go.set()
            closing.wait()
        return False

    monkeypatch.setattr(connections, "_has_unread_input", end_now)  # it looks right before the server closes
    async with connect(url=closing.url, protocol="2025-11-25") as link:
        await link.request("ping", None)
        closing.go.clear()
        await link.request(*CALL)
        for _ in range(8):  # until it is the turn of that connection
            await link.request(*CALL if not ended else ("ping", None))
    assert ended == 1


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        return one, listening.accept()[0]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not count there")
@pytest.mark.parametrize(("reads", "answers"), [(False, False), (True, False), (True, True)])
def test_a_witness_knows_after_the_end_whether_anything_was_taken(reads: bool, answers: bool) -> None:
    one, other = pair()
    with one, other:
        one.sendall(b"before")
        assert other.recv(100) == b"before"
        other.sendall(b"answer")
        assert one.recv(100) == b"answer"
        witness = AcknowledgmentWatch(one.fileno())
        if not reads:
            other.close()
        one.sendall(b"request")
        if reads:
            assert other.recv(100) == b"request"
        if answers:
            other.sendall(b"answer")
        other.close()
        with suppress(ConnectionResetError):
            one.recv(100)
        one.close()
        assert witness.has_acknowledged() is reads
        witness.close()


async def test_the_connection_of_a_stream_that_ends_after_the_response_is_used_again(
    scripted: Scripted, connect: Connect
) -> None:
    ports: list[int] = []

    async def stream(request: Request) -> Response:
        message = await request.json()
        ports.append(request.client.port if request.client else 0)

        async def body() -> AsyncIterator[str]:
            yield event({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})
            await anyio.sleep(0.01)  # the end comes by itself, after the response

        return StreamingResponse(body(), media_type="text/event-stream")

    scripted.replaced = {"tools/call": stream}
    async with connect(url=scripted.url) as link:
        for _ in range(8):
            await link.request(*CALL)
            await anyio.sleep(0.2)  # the hub waits for the end beside the calls, and nothing tells of it
    assert len(ports) == 8
    assert len({*ports}) <= 4, "those that were open before"


async def test_a_proxy_of_the_environment_is_asked_for_an_operators_server(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    async with raw(lambda stream, _: answer_all(stream, seen)) as proxy:
        place = proxy.removeprefix("http://").removesuffix("/mcp")
        monkeypatch.setenv("http_proxy", f"http://ada:hush@{place}")
        monkeypatch.setenv("no_proxy", "other.example.com")
        async with connect(url="http://mcp.example.com/mcp?a=%20b", headers={"X-Own": "1"}) as link:
            assert await link.request(*CALL)
        assert {head.partition(b"\r\n")[0] for head in seen if head.startswith(b"POST")} == {
            b"POST http://mcp.example.com/mcp?a=%20b HTTP/1.1"
        }
        sent = {b"Proxy-Authorization: Basic YWRhOmh1c2g=", b"X-Own: 1"}
        assert all(sent <= {*head.split(b"\r\n")} for head in seen), seen
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        seen.clear()
        await open_once(connect(url=proxy))
        assert all(b" /mcp " in head and b"Proxy-" not in head for head in seen)


async def test_a_tunnel_through_a_proxy_shows_it_nothing_of_the_server_and_the_server_nothing_of_it(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[bytes] = []

    async def tunnel(stream: SocketStream, _: int) -> None:
        head = await Talk(stream).head()
        asked.append(head)
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        async with await anyio.connect_tcp(host, int(port)) as server, anyio.create_task_group() as tasks:
            await stream.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            tasks.start_soon(pass_on, stream, server)
            await pass_on(server, stream)
            tasks.cancel_scope.cancel()

    script = Scripted()
    certificate = self_signed(tmp_path)
    app = Starlette(routes=[Route("/mcp", script.serve, methods=["GET", "POST", "DELETE"])])
    async with served(app, ssl_certfile=certificate, ssl_keyfile=certificate) as origin, raw(tunnel) as proxy:
        place = proxy.removeprefix("http://").removesuffix("/mcp")
        monkeypatch.setenv("https_proxy", f"http://ada:hush@{place}")
        monkeypatch.delenv("no_proxy", raising=False)
        url = f"{origin.replace('http', 'https', 1)}/mcp?key=canary"
        async with connect(url=url, ca=str(certificate), headers={"X-Own": "1"}) as link:
            assert await link.request(*CALL)
    assert asked
    assert all(b"Proxy-Authorization: Basic YWRhOmh1c2g=" in head and b"canary" not in head for head in asked)
    assert not any("proxy-authorization" in headers for headers in script.headers)
    assert {headers["x-own"] for headers in script.headers} == {"1"}


async def pass_on(one: SocketStream, other: SocketStream) -> None:
    """Passes all bytes on, one way."""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            await other.send(await one.receive())


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://["])
async def test_a_proxy_that_cannot_be_used_is_said_to_be_so(
    proxy: str, connect: Connect, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    with raising(UpstreamError, "CONFIG_INVALID", match="the proxy of the environment"):
        await open_once(connect(url=scripted.url))
    assert scripted.seen == []


@pytest.mark.parametrize("status", [301, 307, 308])
async def test_a_redirect_within_the_origin_is_followed_if_it_keeps_the_message(
    status: int, scripted: Scripted, connect: Connect
) -> None:
    async def elsewhere(request: Request) -> Response:
        if "again" not in request.url.query:
            return RedirectResponse("/mcp?again", status)
        return scripted.respond(await request.json())

    scripted.replaced = {"tools/call": elsewhere}
    async with connect(url=scripted.url, headers={"X-Own": "1"}) as link:
        if status != 301:
            assert await link.request(*CALL)
            assert scripted.headers[-1]["x-own"] == "1"
            return
        with pytest.raises(UpstreamError, match="redirect"):
            await link.request(*CALL)


async def test_a_header_of_two_lines_is_no_configuration_and_is_not_repeated(
    scripted: Scripted, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", "hush\r\nX-Injected: 1")
    with raising(UpstreamError, "CONFIG_INVALID") as caught:
        await open_once(connect(url=scripted.url, headers={"X-Key": "${TOKEN_OF_TEST}"}))
    assert "X-Key" in caught.value.message
    assert "hush" not in caught.value.message
    assert scripted.seen == []


async def test_a_session_id_beyond_ascii_is_refused(scripted: Scripted, connect: Connect) -> None:
    async def begin(request: Request) -> Response:
        response = scripted.respond(await request.json())
        response.headers["mcp-session-id"] = "caf\xe9"
        return response

    scripted.replaced = {"initialize": begin}
    with raising(UpstreamError, "INVALID_RESPONSE", match="session id"):
        await open_once(connect(url=scripted.url, protocol="2025-11-25"))


@pytest.mark.parametrize("wrong", [{"id": 999}, {"id": None, "method": "ping"}])
async def test_json_that_is_not_the_response_ends_its_call_alone(
    wrong: dict[str, Any], scripted: Scripted, connect: Connect
) -> None:
    async def respond(request: Request) -> Response:
        await request.body()
        return JSONResponse({"jsonrpc": "2.0", "result": {"content": []}, **wrong})

    scripted.replaced = {"tools/call": respond}
    async with connect(url=scripted.url) as link:
        with raising(UpstreamError, "INVALID_RESPONSE", match="response"):
            await link.request(*CALL)
        await link.probe()


async def test_an_answer_that_the_server_does_not_take_holds_up_no_call_and_costs_its_own_delivery(
    scripted: Scripted, connect: Connect, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "ACKNOWLEDGE_LIMIT_S", 1.0)
    arrived = anyio.Event()

    async def ask(request: Request) -> Response:
        async def body() -> AsyncIterator[str]:
            params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            yield event({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params})
            await anyio.sleep_forever()

        await request.body()
        return StreamingResponse(body(), media_type="text/event-stream")

    scripted.replaced = {"tools/call": ask, "answer": parks(arrived)}
    async with connect(url=scripted.url) as link, anyio.create_task_group() as tasks:
        tasks.start_soon(link.request, *CALL)
        await arrived.wait()
        await link.request("tools/list", None)
        assert recorder.sent == []
        await recorder.until(lambda: recorder.sent)
        assert "too long" in str(recorder.sent[0])
        await link.request("tools/list", None)
        tasks.cancel_scope.cancel()
