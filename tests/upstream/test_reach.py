"""Where a server may be that was added over the API, and what a process gets; over real connections."""

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from hubbubd.config import Confinement, HubSettings
from hubbubd.errors import UpstreamError

from .conftest import CALL, Connect, Scripted, open_once, served

NAME = "mcp.example.com"


def confined(**settings: Any) -> Confinement:
    """What a hub with these settings lets a server do that was added over the API."""
    return Confinement.from_settings(
        HubSettings.model_validate({"data_dir": "unused", **settings}), {"PATH": "/usr/bin"}
    )


@pytest.fixture
def resolve_to(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Makes `mcp.example.com` mean these addresses, one list after the other, the last for ever; the answers given."""

    def use(*answers: list[str]) -> list[str]:
        waiting, given = list(answers), list[str]()

        async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
            found = [host] if host != NAME else waiting.pop(0) if len(waiting) > 1 else waiting[0]
            given.extend(found)
            family = {4: socket.AF_INET, 6: socket.AF_INET6}
            return [(family[ip_address(a).version], socket.SOCK_STREAM, 6, "", (a, port)) for a in found]

        monkeypatch.setattr("hubbubd.upstream.http.connections.anyio.getaddrinfo", getaddrinfo)
        return given

    return use


async def refusal(connect: Connect, **options: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await open_once(connect(**options))
    return caught.value


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_name_that_means_this_machine_is_not_reached(
    transport: str, connect: Connect, scripted: Scripted, resolve_to: Callable[..., list[str]]
) -> None:
    resolve_to(["127.0.0.1"])
    url = scripted.url.replace("127.0.0.1", NAME)
    error = await refusal(connect, confinement=confined(), url=url, transport=transport)
    assert (error.reason, error.fault.retryable) == ("HOST_NOT_ALLOWED", False)
    assert NAME in error.message
    assert scripted.seen == []


async def test_a_name_that_means_something_else_the_second_time_is_not_reached(
    connect: Connect, scripted: Scripted, resolve_to: Callable[..., list[str]]
) -> None:
    given = resolve_to(["127.0.0.1"], ["10.0.0.1"])

    async def goodbye(request: Request) -> Response:
        return Response(status_code=202, headers={"connection": "close"})

    # Every connection is made again, so that the name is looked up each time.
    scripted.replaced = {"server/discover": goodbye, "notifications/initialized": goodbye}
    url = scripted.url.replace("127.0.0.1", NAME)
    error = await refusal(connect, confinement=confined(allow_hosts=["127.0.0.1"]), url=url)
    assert error.reason == "HOST_NOT_ALLOWED"
    assert given[0] == "127.0.0.1"
    assert given[-1] == "10.0.0.1"


async def test_a_server_at_an_allowed_address_is_reached_under_its_name(
    connect: Connect, scripted: Scripted, resolve_to: Callable[..., list[str]]
) -> None:
    resolve_to(["127.0.0.1"])
    url = scripted.url.replace("127.0.0.1", NAME)
    async with connect(confinement=confined(allow_hosts=[NAME]), url=url) as link:
        assert await link.request(*CALL)
    assert scripted.headers[-1]["host"].startswith(f"{NAME}:")


async def test_the_next_address_of_a_name_is_tried_when_one_does_not_answer(
    connect: Connect, scripted: Scripted, resolve_to: Callable[..., list[str]]
) -> None:
    resolve_to(["127.0.0.9", "127.0.0.1"])
    url = scripted.url.replace("127.0.0.1", NAME)
    async with connect(confinement=confined(allow_hosts=[NAME]), url=url) as link:
        assert await link.request(*CALL)


async def test_a_name_that_does_not_exist_is_said_to_be_so(connect: Connect) -> None:
    error = await refusal(connect, confinement=confined(), url="http://no-such-host.invalid/mcp")
    assert error.reason == "HOST_NOT_FOUND"


async def test_no_proxy_of_the_environment_resolves_names_for_a_confined_server(
    connect: Connect, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, resolve_to: Callable[..., list[str]]
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, scripted.url.removesuffix("/mcp"))
    resolve_to(["10.0.0.1"])
    error = await refusal(connect, confinement=confined(), url=f"http://{NAME}/mcp")
    assert error.reason == "HOST_NOT_ALLOWED"
    assert scripted.seen == []


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.2", "2852039166", "[::ffff:169.254.169.254]"])
async def test_an_authorization_server_that_a_server_names_is_checked_as_well(
    host: str, connect: Connect, scripted: Scripted
) -> None:
    async def ask(_: Request) -> Response:
        where = f"https://{host}/.well-known/oauth-protected-resource"
        return Response(status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'})

    scripted.replaced = {"server/discover": ask, "initialize": ask}
    error = await refusal(connect, confinement=confined(allow_hosts=["127.0.0.1"]), url=scripted.url)
    assert "may not be reached" in error.message


async def test_a_server_elsewhere_sends_the_hub_to_nothing_on_its_own_machine(
    connect: Connect, scripted: Scripted, resolve_to: Callable[..., list[str]]
) -> None:
    """Of a configuration file, too: what listens on loopback trusts who comes from there."""
    asked: list[str] = []

    async def note(request: Request) -> Response:
        asked.append(request.url.path)
        return JSONResponse({})

    resolve_to(["127.0.0.1"])
    async with served(Starlette(routes=[Route("/{rest:path}", note, methods=["GET", "POST"])])) as local:

        async def ask(_: Request) -> Response:
            where = f"{local}/.well-known/oauth-protected-resource"
            return Response(status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'})

        scripted.replaced = {"server/discover": ask, "initialize": ask}
        for host in (NAME, "127.0.0.1"):
            error = await refusal(
                connect,
                confinement=confined(allow_hosts=[NAME, "127.0.0.1"]),
                url=scripted.url.replace("127.0.0.1", host),
            )
            assert error.reason == "AUTHENTICATION_FAILED"
            assert ("is not https" in error.message) is (host == NAME)
            assert bool(asked) is (host != NAME)


async def test_an_endpoint_elsewhere_gets_neither_headers_nor_a_request(connect: Connect) -> None:
    stolen: list[dict[str, str]] = []

    async def thief(request: Request) -> Response:
        stolen.append(dict(request.headers))
        return JSONResponse({}, 202)

    async with served(Starlette(routes=[Route("/{rest:path}", thief, methods=["GET", "POST"])])) as other:
        for where in (f"{other}/post", other.replace("http:", "") + "/post", "http://127.0.0.1@" + other[7:] + "/post"):

            async def events(_: Request, where: str = where) -> Response:
                async def body() -> AsyncIterator[str]:
                    yield f"event: endpoint\ndata: {where}\n\n"
                    await anyio.sleep_forever()

                return StreamingResponse(body(), media_type="text/event-stream")

            async with served(Starlette(routes=[Route("/sse", events, methods=["GET"])])) as origin:
                with pytest.raises(UpstreamError, match="not within its own origin"):
                    async with connect(
                        url=f"{origin}/sse",
                        transport="sse",
                        headers={"Authorization": "Bearer canary-1"},
                    ):
                        pass
    assert stolen == []


async def test_a_redirect_to_another_origin_gets_neither_headers_nor_a_request(connect: Connect) -> None:
    stolen: list[dict[str, str]] = []

    async def thief(request: Request) -> Response:
        stolen.append(dict(request.headers))
        return JSONResponse({})

    async with served(Starlette(routes=[Route("/{rest:path}", thief, methods=["GET", "POST"])])) as other:

        async def away(_: Request) -> Response:
            return RedirectResponse(f"{other}/mcp", 307)

        async with served(Starlette(routes=[Route("/mcp", away, methods=["GET", "POST"])])) as origin:
            for confinement in (None, confined(allow_hosts=["127.0.0.1"])):
                error = await refusal(
                    connect, confinement=confinement, url=f"{origin}/mcp", headers={"Authorization": "Bearer canary-1"}
                )
                assert "redirect" in error.message
    assert stolen == []


@pytest.mark.parametrize(
    "url",
    ["http://user@example.com/", "http://user:password@example.com/", "ftp://example.com/", "file:///etc/passwd",
     "http:///mcp", "http://good.example\\@127.0.0.1/", "gopher://127.0.0.1/", "//127.0.0.1/", "http://127.0.0.1\t/"],
)  # fmt: skip
async def test_a_url_with_a_user_or_of_another_kind_is_no_configuration(url: str, connect: Connect) -> None:
    with pytest.raises(ValueError, match="url"):
        await open_once(connect(url=url, transport="http"))


async def test_a_certificate_of_an_authority_that_nobody_knows_is_refused_and_of_a_given_one_is_not(
    connect: Connect, tmp_path: Path
) -> None:
    script = Scripted()
    app = Starlette(routes=[Route("/mcp", script.serve, methods=["GET", "POST", "DELETE"])])
    certificate = self_signed(tmp_path)
    async with served(app, log_level="critical", ssl_certfile=certificate, ssl_keyfile=certificate) as origin:
        url = f"{origin.replace('http', 'https', 1)}/mcp"
        assert (await refusal(connect, url=url)).reason == "TLS_FAILED"
        assert (await refusal(connect, url=url, ca=str(tmp_path / "none"))).reason == "CONFIG_INVALID"
        assert script.seen == []
        async with connect(url=url, ca=str(certificate)) as link:
            assert await link.request(*CALL)


def self_signed(directory: Path) -> Path:
    """A certificate of 127.0.0.1 with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    plain = key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = directory / "certificate.pem"
    path.write_bytes(plain + certificate.public_bytes(form))
    assert ssl.create_default_context(cafile=path)
    return path
