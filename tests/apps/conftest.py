"""The official host of MCP Apps in a browser, a hub, and servers with apps that others published."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from ..e2e.conftest import RunningHub, start_hub, start_shared_hub
from ..web.conftest import browser
from .apps import AppHost, serve_page

LIMIT_MS = 20_000

__all__ = ["browser", "start_hub", "start_shared_hub"]


@dataclass(frozen=True)
class AppServers:
    """Servers with apps; `debug` is over HTTP, the two clocks have the same page URI."""

    debug_url: str
    configuration: dict[str, Any]


@pytest.fixture(scope="module")
def app_servers(npm_apps: Path, shared_http_peer: Any, tmp_path_factory: pytest.TempPathFactory) -> AppServers:
    """The servers, and how the hub starts them."""
    packages = npm_apps / "node_modules/@modelcontextprotocol"
    node = str(npm_apps / "node")
    log = f"--log-file={tmp_path_factory.mktemp('apps') / 'debug.log'}"
    url = f"{shared_http_peer([node, str(packages / 'server-debug/dist/index.js'), log]).url}/mcp"
    clock = {"command": node, "args": [str(packages / "server-basic-vanillajs/dist/index.js"), "--stdio"]}
    return AppServers(url, {"debug": {"url": url}, "clock": clock, "watch": clock})


@pytest.fixture(scope="module")
async def hub(app_servers: AppServers, start_shared_hub: Any) -> RunningHub:
    """A hub with these servers."""
    hub = await start_shared_hub(app_servers.configuration, hub={"mcp_listen": "127.0.0.1:0"})
    await hub.connected(*app_servers.configuration)
    return hub


@pytest.fixture(scope="module")
def host_address(npm_apps: Path) -> Iterator[str]:
    """Where the host's page is."""
    with serve_page(npm_apps / "node_modules") as address:
        yield address


@pytest.fixture
async def open_host(browser: Browser, host_address: str) -> AsyncIterator[Callable[[], Awaitable[AppHost]]]:
    """Opens the host in a tab: `await open_host()`."""
    context = await browser.new_context(viewport={"width": 900, "height": 800})
    context.set_default_timeout(LIMIT_MS)

    async def open_page() -> AppHost:
        page = await context.new_page()
        await page.goto(host_address)
        await page.wait_for_function("() => window.host")
        return AppHost(page)

    yield open_page
    await context.close()


def token_of(hub: RunningHub) -> str:
    """Return the token of the hub's own user."""
    return json.loads((hub.data_dir / "client.json").read_text())["token"]
