"""The SDK's own OAuth client goes through the hub's log-in."""

from pathlib import Path

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

from ..oauth_storage import Storage
from .conftest import LIMIT_S
from .log_in import BACK, Browser, query_of
from .mcp_host import ACCEPT, OLD, request, stage


async def test_the_client_of_the_sdk_logs_in_and_uses_the_endpoint(tmp_path: Path) -> None:
    hello = request(0, "initialize", protocolVersion=OLD, capabilities={}, clientInfo={"name": "sdk", "version": "1"})
    async with stage(tmp_path) as made:
        browser = await Browser(made).enter()
        seen: list[str] = []

        async def show(url: str) -> None:
            seen.append(url)

        async def wait() -> AuthorizationCodeResult:
            answer = await browser.decide(await browser.open(seen[-1]))
            assert answer.headers["location"].startswith(f"{BACK}?")
            return AuthorizationCodeResult(**query_of(answer.headers["location"]))

        storage = Storage()
        provider = OAuthClientProvider(
            f"{made.base}/mcp",
            OAuthClientMetadata(client_name="SDK of Python", redirect_uris=[AnyUrl(BACK)]),
            storage,
            show,
            wait,
        )
        async with httpx2.AsyncClient(auth=provider, trust_env=False, timeout=LIMIT_S) as client:
            response = await client.post(f"{made.base}/mcp", json=hello, headers=ACCEPT)
        assert response.status_code == 200, response.text
        assert len(seen) == 1
        (token,) = made.hub.tokens.all()
        assert (token.name, token.login.client_name, token.login.granted_by) == (
            "sdk-of-python",
            "SDK of Python",
            "ada",
        )
