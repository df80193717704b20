"""Whom a request over HTTP is meant for: certificates, the authorities that vouch for them, and proxies that refuse."""

from pathlib import Path

import pytest
from anyio.abc import SocketStream
from starlette.applications import Starlette
from starlette.routing import Route

from hubbubd.errors import UpstreamError

from .conftest import CALL, Connect, Scripted
from .test_connections import Open, beside
from .test_reach import listening, self_signed
from .test_sessions import Talk, raw

__all__ = ["beside"]


async def test_servers_that_trust_different_authorities_share_no_connection(beside: Open, tmp_path: Path) -> None:
    script = Scripted()
    certificate = self_signed(tmp_path)
    app = Starlette(routes=[Route("/mcp", script.serve, methods=["GET", "POST", "DELETE"])])
    async with listening(app, ssl_certfile=certificate, ssl_keyfile=certificate) as origin:
        url = f"{origin.replace('http', 'https', 1)}/mcp"
        async with beside("one", url=url, ca=str(certificate)) as one:
            await one.request(*CALL)
            before = len(script.seen)
            with pytest.raises(UpstreamError) as caught:
                async with beside("two", url=url):
                    pass
            assert caught.value.reason == "TLS_FAILED"
            assert len(script.seen) == before


async def test_a_certificate_of_another_host_is_refused(connect: Connect, tmp_path: Path) -> None:
    script = Scripted()
    certificate = self_signed(tmp_path)
    app = Starlette(routes=[Route("/mcp", script.serve, methods=["GET", "POST", "DELETE"])])
    async with listening(app, ssl_certfile=certificate, ssl_keyfile=certificate) as origin:
        url = f"{origin.replace('http://127.0.0.1', 'https://localhost', 1)}/mcp"
        with pytest.raises(UpstreamError, match="localhost") as caught:
            async with connect(url=url, ca=str(certificate)):
                pass
    assert caught.value.reason == "TLS_FAILED"
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
        with pytest.raises(UpstreamError, match="the proxy answered HTTP 407") as caught:
            async with connect(url="https://mcp.example.com/mcp"):
                pass
    assert caught.value.reason == "CONNECTION_REFUSED"
