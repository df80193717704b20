"""The page over TLS, which others on the network may reach."""

import json
import socket
import ssl
from pathlib import Path
from subprocess import PIPE

import anyio
import httpx2
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbub_frontend.certs import Authority
from hubbub_web.access.guard import Site
from hubbub_web.server import PageTls, bind

from ..e2e.conftest import BIN, LIMIT_S, RunningHub, child


@pytest.fixture
async def hub(start_hub: object) -> RunningHub:
    """A hub without servers."""
    return await start_hub()  # type: ignore[operator]


async def test_the_page_is_served_over_tls_with_a_cookie_that_goes_no_other_way(
    hub: RunningHub, tmp_path: Path
) -> None:
    authority = Authority.open(tmp_path / "certs")
    pair = authority.issue_server()
    words = ["--data-dir", str(hub.data_dir), "--json", "web", "--no-browser"]
    given = ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
    async with child([str(BIN / "hubbub"), *words, *given], stdout=PIPE) as process:
        assert process.stdout is not None
        with anyio.fail_after(LIMIT_S):
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16)
        origin, _, secret = json.loads(line)["url"].partition("/#login=")
        assert origin.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=authority.file)
        page = {"content-type": "application/json", "x-hubbub-token": "none", "origin": origin}
        async with httpx2.AsyncClient(base_url=origin, verify=context, trust_env=False, timeout=LIMIT_S) as http:
            plain = await http.post("/api/login", json={"link": secret}, headers=page | {"origin": f"http{origin[5:]}"})
            assert plain.status_code == 403
            other = await http.get("/", headers={"host": "rebound.example"})
            assert other.status_code == 421
            entered = await http.post("/api/login", json={"link": secret}, headers=page)
            cookie = entered.headers["set-cookie"]
            assert cookie.startswith("__Host-hubbub-")
            assert "; secure" in cookie.lower()
            known = page | {"x-hubbub-token": entered.json()["token"]}
            assert (await http.post("/api/link", json={}, headers=known)).json()["url"].startswith(origin)


def test_a_page_has_the_names_of_its_certificate_and_no_other(tmp_path: Path) -> None:
    pair = Authority.open(tmp_path).issue_server(["inbox.example.org", "*.example.net", "192.0.2.7"])
    site = PageTls.load(pair.cert, pair.key).site
    for host in ("inbox.example.org", "INBOX.example.org:8443", "a.example.net", "192.0.2.7:1", "localhost", "[::1]:1"):
        assert site.is_at(host), host
    for host in ("example.org", "a.b.example.net", "example.net", "192.0.2.8", "", "[", "*.example.net.evil.test"):
        assert not site.is_at(host), host
    assert not Site().is_at("inbox.example.org")


def test_the_network_is_served_only_with_tls(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--tls-cert and --tls-key"):
        bind("192.0.2.1:0")
    with pytest.raises(OSError):  # an address of nobody here: it got as far as to ask for it
        bind("192.0.2.1:0", secure=True)


def test_a_response_of_the_page_is_sent_at_once() -> None:
    """Headers and body are two packets: the second is not to wait until the first is acknowledged, 40 ms later."""
    with bind("127.0.0.1:0") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_files_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    pair, other = Authority.open(tmp_path / "a").issue_server(), Authority.open(tmp_path / "b").issue_server()
    with pytest.raises(ValueError, match=r"server\.pem with .*server-key\.pem cannot be used"):
        PageTls.load(pair.cert, other.key)
