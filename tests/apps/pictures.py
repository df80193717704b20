"""Takes the pictures of an app in the official host, behind the hub: before and after its button is pressed.

python -m tests.apps.pictures FOLDER
"""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright, expect

from ..e2e.conftest import starter
from .apps import AppHost, serve_page
from .conftest import token_of

PEERS = Path(os.environ.get("HUBBUB_PEERS") or Path(__file__).parents[2] / ".peers") / "apps"
POLLS = 8
"""How many points the curves have, one in two seconds."""


async def take(folder: Path) -> None:
    """Start all of it, take the pictures, end all of it."""
    monitor = PEERS / "node_modules/@modelcontextprotocol/server-system-monitor/dist/index.js"
    servers = {"monitor": {"command": str(PEERS / "node"), "args": [str(monitor), "--stdio"]}}
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as directory, serve_page(PEERS / "node_modules") as address:
        async with starter(Path(directory), apart=False) as start, async_playwright() as playwright:
            hub = await start(servers, hub={"mcp_listen": "127.0.0.1:0"})
            await hub.connected("monitor")
            chromium = await playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = await chromium.new_page(viewport={"width": 800, "height": 690})
            await page.goto(address)
            await page.wait_for_function("() => window.host")
            host = AppHost(page)
            await host.connect(hub.ready["mcp"], token_of(hub))
            app = await host.open("monitor__get-system-info")
            await app.get_by_role("button", name="Stop").click()
            await expect(app.get_by_role("button", name="Start")).to_be_visible()
            await page.screenshot(path=folder / "app-before.png", animations="disabled")
            before = len(await hub.client.calls.list())
            await app.get_by_role("button", name="Start").click()
            while len(await hub.client.calls.list()) < before + POLLS:
                await asyncio.sleep(0.1)
            await page.mouse.move(0, 0)
            await page.screenshot(path=folder / "app-after.png", animations="disabled")
            await chromium.close()


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1])))
