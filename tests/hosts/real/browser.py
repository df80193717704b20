"""A browser with a person before it, who lets in what asks: a script stands for the browser that programs start."""

import json
import os
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread
from playwright.async_api import Browser, Page, async_playwright

from ...e2e.conftest import BIN, RunningHub

SCRIPT = """\
#!/bin/sh
for address; do :; done
printf '%s' "$address" > {pipe}
"""
NAMES = ("xdg-open", "open", "browse")
"""What programs start, by their own choice or by BROWSER."""
LIMIT_MS = 30_000


@dataclass
class BrowserPerson:
    """A person who has a browser, and may ask a hub for a code."""

    directory: Path
    browser: Browser

    @property
    def environment(self) -> Mapping[str, str]:
        """What a program needs to start this browser."""
        return {"BROWSER": str(self.directory / "browse")}

    async def let_in(self, hub: RunningHub) -> str:
        """Wait for a program that opens the browser, type a code, and allow it; return what the page says then."""
        address = await self.wait_for_address()
        async with self.opened() as page:
            await page.goto(address)
            return await self.allow(page, hub)

    async def allow(self, page: Page, hub: RunningHub) -> str:
        """Type a code into the hub's page, and allow what it asks; return what the page says after that."""
        command = [str(BIN / "hubbub"), "--data-dir", str(hub.data_dir), "--json", "mcp", "login"]
        code = json.loads((await anyio.run_process(command)).stdout)["code"]
        await page.get_by_role("textbox", name="Code").fill(code)
        await page.get_by_role("textbox", name="Code").press("Enter")
        await page.get_by_role("button", name="Allow").click()
        await page.wait_for_url(lambda url: "/oauth/" not in url or "callback" in url)
        return " ".join((await page.inner_text("body")).split())

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Page]:
        """Open an empty page in a browser that remembers nothing."""
        context = await self.browser.new_context()
        try:
            page = await context.new_page()
            page.set_default_timeout(LIMIT_MS)
            yield page
        finally:
            await context.close()

    async def wait_for_address(self) -> str:
        """Return the next address for which a program opens the browser."""
        return await to_thread.run_sync(self._read, abandon_on_cancel=True)

    def _read(self) -> str:
        return (self.directory / "pipe").read_text()


@asynccontextmanager
async def browsing(directory: Path) -> AsyncGenerator[BrowserPerson]:
    """Start a browser, and make what programs start in its stead."""
    directory.mkdir(parents=True)
    os.mkfifo(directory / "pipe")
    for name in NAMES:
        script = directory / name
        script.write_text(SCRIPT.format(pipe=directory / "pipe"))
        script.chmod(0o755)
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield BrowserPerson(directory, browser)
        finally:
            os.close(os.open(directory / "pipe", os.O_RDONLY | os.O_NONBLOCK))  # what still waits for a reader ends
            await browser.close()
