"""A host that knows the hub's address alone logs in: the SDK's client, a real hub, and a person at a real browser."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import pytest
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientMetadata
from playwright.async_api import Browser, Locator, Page, Route, expect
from pydantic import AnyUrl

from ..e2e.conftest import LIMIT_S, RunningHub
from ..oauth_storage import Storage
from .conftest import LIMIT_MS, Bridge, asking

BACK = "http://127.0.0.1:9/callback"
"""Where the answer is sent: nobody listens there, the test takes it from the browser."""

ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture
async def page(browser: Browser) -> AsyncGenerator[Page]:
    """A browser without scripts, as wide as a phone."""
    context = await browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800})
    context.set_default_timeout(LIMIT_MS)
    yield await context.new_page()
    await context.close()


@asynccontextmanager
async def program(
    page: Page, hub: RunningHub, kept: Storage, decide: Callable[[], Any]
) -> AsyncGenerator[httpx2.AsyncClient]:
    """The SDK's client; when it sends the person to the page, `decide` does what the person does there."""
    answers: list[str] = []

    async def take(route: Route) -> None:
        answers.append(route.request.url)
        await route.fulfill(body="You may close this page.")

    async def show(url: str) -> None:
        await page.route(f"{BACK}*", take)
        await page.goto(url)
        await decide()
        await page.wait_for_url(f"{BACK}*")

    async def wait() -> AuthorizationCodeResult:
        fields = dict(parse_qsl(urlsplit(answers[-1]).query))
        assert fields.get("error") is None, fields
        return AuthorizationCodeResult(**fields)

    about = OAuthClientMetadata(client_name="Tester", redirect_uris=[AnyUrl(BACK)])
    provider = OAuthClientProvider(hub.ready["mcp"], about, kept, show, wait)
    async with httpx2.AsyncClient(auth=provider, trust_env=False, timeout=LIMIT_S) as client:
        yield client


async def send(client: httpx2.AsyncClient, url: str, method: str, **params: Any) -> httpx2.Response:
    """The response to a request of the newest revision."""
    own: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": own}}
    headers = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": method}
    named = {"mcp-name": params["name"]} if "name" in params else {}
    return await client.post(url, json=body, headers=headers | named)


async def test_a_person_lets_a_host_in_by_a_code_and_ends_it_again(start_hub: Any, page: Page) -> None:
    hub: RunningHub = await start_hub({"asking": asking()}, hub={"mcp_listen": "127.0.0.1:0"}, connected=True)
    url = hub.ready["mcp"]

    async def decide() -> None:
        await expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
        await page.keyboard.type("ABCD-EFGH")  # the field has the focus
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("The hub knows no such code")
        made = await hub.hubbub("mcp", "login")
        await page.get_by_label("Code").fill(made.record["code"].lower())
        await page.get_by_role("button", name="Continue").click()
        await expect(page.get_by_role("heading", name="Let this program in?")).to_be_visible()
        for words in ("Tester", "A program on this computer", "asking", "You are", "local"):
            await expect(page.locator("main")).to_contain_text(words)
        await page.get_by_label("1 day").focus()
        await page.keyboard.press("Space")
        await page.keyboard.press("Enter")  # presses neither of the two buttons
        await expect(page.get_by_label("1 day")).to_be_checked()
        await page.get_by_role("button", name="Allow").click()

    kept = Storage()
    async with program(page, hub, kept, decide) as client:
        tools = (await send(client, url, "tools/list")).json()["result"]["tools"]
        assert tools
        (token,) = [each for each in await hub.client.tokens.list() if each.login]
        assert (token.name, token.login.granted_by) == ("tester", "local")
        actions = {entry.action for entry in await hub.client.audit.list()}
        assert {"CreateLoginCode", "EnterLoginCode", "AllowLogin"} <= actions
    assert kept.tokens is not None
    bearer = {"authorization": f"Bearer {kept.tokens.access_token}"}
    async with httpx2.AsyncClient(headers=bearer, trust_env=False, timeout=LIMIT_S) as bare:
        assert (await send(bare, url, "tools/list")).status_code == 200
        assert (await hub.hubbub("tokens", "revoke", token.name)).status == 0
        assert (await send(bare, url, "tools/list")).status_code == 401


async def test_the_page_of_the_hub_makes_a_code(
    start_hub: Any, start_bridge: Callable[..., Any], visit: Callable[..., Any]
) -> None:
    hub: RunningHub = await start_hub({}, hub={"mcp_listen": "127.0.0.1:0"})
    bridge: Bridge = await start_bridge(hub)
    ada = await visit(bridge.link, "Ada")
    await ada.page.locator("#person").click()
    await ada.page.get_by_role("button", name="Let a host log in").click()
    dialog: Locator = ada.page.locator("dialog")
    await expect(dialog).to_contain_text(hub.ready["mcp"])
    await expect(dialog.locator("time")).to_contain_text("left")
    code = await dialog.locator(".login-code").inner_text()
    with anyio.fail_after(LIMIT_S):
        async with httpx2.AsyncClient(trust_env=False) as http:
            base = hub.ready["mcp"].removesuffix("/mcp")
            entered = await http.post(f"{base}/oauth/enter", data={"code": code}, headers={"origin": base})
    assert "You are Ada here" in entered.text
