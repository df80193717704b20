"""What opens the MCP endpoint beside tokens of the hub: certificates, and tokens of an identity provider."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from hubbub_frontend.certs import Authority, CertificateFiles
from hubbubd.config.sections.network import GrantSettings
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.rpc.auth.gate import Gate
from hubbubd.rpc.auth.grants import Grants
from hubbubd.rpc.auth.jwks import JwksCache
from hubbubd.rpc.auth.jwt import Jwt
from hubbubd.rpc.mcp.application import serve_mcp

from ..downstream.conftest import state_keys
from .conftest import LIMIT_S, TOKEN
from .mcp_host import ONE, Host, Stage, stage, tool
from .test_jwt import AUDIENCE, Provider, listening

GRANTS = Grants(
    (
        GrantSettings(who="cert:ada", roles=("caller",), servers=("one",)),
        GrantSettings(who="cert:eve", roles=("viewer",)),
        GrantSettings(who="oidc:ada", roles=("caller",), servers=("one",)),
        GrantSettings(who="oidc:eve", roles=("viewer",)),
    )
)


@asynccontextmanager
async def served(made: Stage, gate: Gate, tls: TlsFiles | None = None) -> AsyncIterator[str]:
    """The same hub's endpoint once more, behind another gate; its base URL."""
    async with serve_mcp(made.hub, listen="127.0.0.1:0", gate=gate, state_keys=state_keys(made.hub), tls=tls) as url:
        yield url.removesuffix("/mcp")


async def statuses(host: Host) -> list[int]:
    """What becomes of a call of each server."""
    there = [await Host(host.http, path, host.headers).new(tool(1)) for path in (ONE, "/mcp/s/two")]
    return [response.status_code for response in there]


async def test_a_certificate_gives_a_host_what_is_granted_to_its_name(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "certs")
    pair = authority.issue_server()
    tls = TlsFiles(pair.cert, pair.key, authority.file)

    def http(base: str, shown: CertificateFiles | None) -> httpx2.AsyncClient:
        context = ssl.create_default_context(cafile=authority.file)
        if shown is not None:
            context.load_cert_chain(shown.cert, shown.key)
        return httpx2.AsyncClient(base_url=base, verify=context, trust_env=False, timeout=LIMIT_S)

    async with stage(tmp_path) as made:
        gate = Gate(TOKEN, made.hub.clock, certificate_principal=GRANTS.principal_of_certificate)
        async with served(made, gate, tls) as base:
            for name, expected in (("ada", [200, 404]), ("eve", [403, 403]), ("nobody", [403, 403])):
                async with http(base, authority.issue_client(name)) as by:
                    assert await statuses(Host(by, headers={})) == expected
            async with http(base, None) as by:
                with pytest.raises(httpx2.TransportError):
                    await statuses(Host(by))


async def test_a_token_of_an_identity_provider_gives_a_host_what_is_granted_to_its_subject(tmp_path: Path) -> None:
    provider = Provider()
    async with listening(provider), stage(tmp_path) as made:
        believed = Jwt(
            JwksCache(provider.issuer, None, pause_s=0),
            GRANTS,
            issuer=provider.issuer,
            audience=AUDIENCE,
            name_claim="sub",
            roles_claim=None,
        )
        async with (
            served(made, Gate(TOKEN, made.hub.clock, [believed])) as base,
            httpx2.AsyncClient(base_url=base, trust_env=False, timeout=LIMIT_S) as by,
        ):
            for token, expected in (
                (provider.token(), [200, 404]),
                (provider.token(sub="eve"), [403, 403]),
                (provider.token(aud="another"), [401, 401]),
                (provider.token(exp=1), [401, 401]),
            ):
                assert await statuses(Host(by, headers={"authorization": f"Bearer {token}"})) == expected
