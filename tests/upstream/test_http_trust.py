"""Whom requests over HTTP go to: certificates, authorities, proxies that refuse, redirects; and what comes back."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import pytest
from anyio.abc import SocketStream
from multidict import CIMultiDict
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from yarl import URL

from hubbubd.errors import UpstreamError
from hubbubd.upstream.http.client import HttpRequest, HttpResponse, redirect_target
from hubbubd.upstream.http.connections import Connections

from ..raising import raising
from .conftest import CALL, Connect, Scripted, open_once, served
from .test_connections import Open, beside
from .test_reach import self_signed
from .test_sessions import Talk, raw

__all__ = ["beside"]


async def test_servers_that_trust_different_authorities_share_no_connection(beside: Open, tmp_path: Path) -> None:
    script = Scripted()
    certificate = self_signed(tmp_path)
    app = Starlette(routes=[Route("/mcp", script.serve, methods=["GET", "POST", "DELETE"])])
    async with served(app, ssl_certfile=certificate, ssl_keyfile=certificate) as origin:
        url = f"{origin.replace('http', 'https', 1)}/mcp"
        async with beside("one", url=url, ca=str(certificate)) as one:
            await one.request(*CALL)
            before = len(script.seen)
            with raising(UpstreamError, "TLS_FAILED"):
                async with beside("two", url=url):
                    pass
            assert len(script.seen) == before


async def test_a_certificate_of_another_host_is_refused(connect: Connect, tmp_path: Path) -> None:
    script = Scripted()
    certificate = self_signed(tmp_path)
    app = Starlette(routes=[Route("/mcp", script.serve, methods=["GET", "POST", "DELETE"])])
    async with served(app, ssl_certfile=certificate, ssl_keyfile=certificate) as origin:
        url = f"{origin.replace('http://127.0.0.1', 'https://localhost', 1)}/mcp"
        with raising(UpstreamError, "TLS_FAILED", match="localhost"):
            await open_once(connect(url=url, ca=str(certificate)))
    assert script.seen == []


async def test_a_proxy_that_makes_no_tunnel_is_told_of_by_its_status(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(stream: SocketStream, _: int) -> None:
        await Talk(stream).head()
        await stream.send(b"HTTP/1.1 407 canary\r\nContent-Length: 0\r\n\r\n")

    async with raw(refuse) as proxy:
        monkeypatch.setenv("https_proxy", proxy.removesuffix("/mcp"))
        monkeypatch.delenv("no_proxy", raising=False)
        with raising(UpstreamError, "CONNECTION_REFUSED", match="the proxy answered HTTP 407"):
            await open_once(connect(url="https://mcp.example.com/mcp"))


@pytest.mark.parametrize(
    ("here", "location", "leads_to"),
    [
        ("https://h.example/mcp", "/other", "https://h.example/other"),
        ("https://h.example/mcp", "https://h.example:443/other", "https://h.example/other"),
        ("http://h.example/mcp", "https://h.example/mcp", "https://h.example/mcp"),
        ("https://h.example/mcp", "http://h.example/mcp", None),
        ("http://h.example:8080/mcp", "https://h.example/mcp", None),
        ("http://h.example/mcp", "https://h.example:8443/mcp", None),
        ("https://h.example/mcp", "https://h.example:8443/mcp", None),
        ("https://h.example/mcp", "//other.example/mcp", None),
        ("https://h.example/mcp", "https://h.example.other.example/mcp", None),
        ("https://h.example/mcp", "https://h.example@other.example/mcp", None),
        ("https://h.example/mcp", "https://user:word@h.example/mcp", None),
        ("https://h.example/mcp", "https://other.example\\@h.example/mcp", None),
    ],
)
def test_credentials_follow_a_redirect_within_the_origin_or_to_tls_and_nowhere_else(
    here: str, location: str, leads_to: str | None
) -> None:
    answer = cast("HttpResponse", SimpleNamespace(status=307, headers={"location": location}))
    target = redirect_target(HttpRequest("POST", URL(here), CIMultiDict()), answer)
    assert (str(target) if target is not None else None) == leads_to


async def test_a_pool_is_closed_with_its_last_user() -> None:
    connections = Connections()
    async with connections.use_session(None) as session:
        async with connections.use_session(None) as same:
            assert same is session
        assert not session.closed
    assert session.closed


async def test_json_of_no_declared_length_is_bounded_as_it_comes(connect: Connect, scripted: Scripted) -> None:
    async def endless(request: StarletteRequest) -> Response:
        await request.body()

        async def body() -> AsyncIterator[bytes]:
            while True:
                yield b" " * 65536
                await anyio.sleep(0)

        return StreamingResponse(body(), media_type="application/json")

    scripted.replaced = {"tools/call": endless}
    async with connect(url=scripted.url, max_message_bytes=1024 * 1024) as link:
        with raising(UpstreamError, "INVALID_RESPONSE", match="larger than 1048576 bytes"):
            await link.request(*CALL)
