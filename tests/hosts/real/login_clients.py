"""Programs without a model that log in: the page of the Inspector, and the OAuth client of the SDK for TypeScript."""

import json
import os
import re
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from playwright.async_api import Page

from ...e2e.conftest import RunningHub
from ...ports import reserved
from .browser import BrowserPerson
from .puppets import Failed

LIMIT_S = 60
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+\?\S+")
"""The address of the Inspector's page, with the token that it wants."""


class Lines:
    """What a process writes, line by line."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._stream = TextReceiveStream(process.stdout)
        self._rest = ""

    async def read(self) -> str:
        """Return the next line; raise Failed if there is none in time."""
        with anyio.move_on_after(LIMIT_S):
            while "\n" not in self._rest:
                try:
                    self._rest += await self._stream.receive()
                except anyio.EndOfStream:
                    raise Failed(f"it ended, and said {self._rest!r}") from None
            line, _, self._rest = self._rest.partition("\n")
            return line
        raise Failed(f"nothing came back within {LIMIT_S} s")


class InspectorPage:
    """The Inspector in a browser."""

    def __init__(self, page: Page, directory: Path) -> None:
        self._page = page
        self._directory = directory

    async def log_in(self, person: BrowserPerson, hub: RunningHub) -> str:
        """Connect to the hub, and allow it; return what the page says."""
        await self._page.get_by_role("switch", name="Connect or disconnect").click(force=True)
        await self._page.wait_for_url("**/oauth/enter?**")
        await self._picture("enter")
        await person.allow(self._page, hub)
        await self._page.get_by_text("Connected", exact=True).wait_for()
        await self._page.get_by_text("Authentication succeeded").wait_for()
        await self._picture("connected")
        await self._page.get_by_text("Tools", exact=True).first.click()
        counted = self._page.get_by_text(re.compile(r"^Tools \(\d+\)$"))
        await counted.wait_for()
        await self._picture("tools")
        return f"Authentication succeeded, {await counted.inner_text()}"

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; return what the page shows of the result."""
        await self._page.get_by_role("button", name=tool, exact=False).click()
        for name, value in arguments.items():
            await self._page.get_by_label(name, exact=True).fill(value)
        await self._page.get_by_role("button", name="Execute Tool").click()
        await self._page.get_by_text("Results", exact=True).wait_for()
        await self._picture("call")
        _, _, results = (await self._page.inner_text("body")).rpartition("Results")
        return results

    async def wait_for_log_in(self) -> str:
        """Wait until the page asks the person to log in once more; return what the hub says there."""
        await self._page.wait_for_url("**/oauth/enter?**", timeout=LIMIT_S * 1000)
        await self._picture("revoked")
        return await self._page.inner_text("h1")

    async def _picture(self, name: str) -> None:
        await self._page.screenshot(path=self._directory / f"{name}.png", animations="disabled")


class SdkScript:
    """A script with the SDK for TypeScript."""

    def __init__(self, process: Process, lines: Lines) -> None:
        self._process = process
        self._lines = lines

    async def call(self, tool: str, arguments: Mapping[str, Any], *, renew: bool = False) -> str:
        """Call a tool; return the result, or the error."""
        assert self._process.stdin is not None
        line = json.dumps({"tool": tool, "arguments": dict(arguments), "renew": renew})
        await self._process.stdin.send(f"{line}\n".encode())
        return await self._lines.read()


@asynccontextmanager
async def opening_page(
    command: Sequence[str], url: str, env: Mapping[str, str], person: BrowserPerson, directory: Path
) -> AsyncGenerator[InspectorPage]:
    """Start the Inspector for a hub, and open its page; pictures of it go into the directory."""
    with reserved() as port:
        environment = {
            **env,
            "CLIENT_PORT": str(port),
            "MCP_SANDBOX_PORT": "0",
            "MCP_APP_ORIGIN_PORT": "0",
            "MCP_AUTO_OPEN_ENABLED": "false",
            "MCP_INSPECTOR_SECRET_STORE": "file",
        }
        words = ["--web", "--transport", "http", "--server-url", url]
        async with (
            _started([*command, *words], environment, directory) as (_, lines),
            person.opened() as page,
        ):
            while (found := ADDRESS.search(await lines.read())) is None:
                pass
            await page.set_viewport_size({"width": 1280, "height": 900})
            await page.goto(found.group())
            yield InspectorPage(page, directory)


@asynccontextmanager
async def starting_script(
    command: Sequence[str], url: str, env: Mapping[str, str], directory: Path
) -> AsyncGenerator[SdkScript]:
    """Start a script with the SDK for TypeScript; it has logged in when the block begins."""
    async with _started([*command, url], env, directory) as (process, lines):
        await lines.read()
        yield SdkScript(process, lines)


@asynccontextmanager
async def _started(
    command: Sequence[str], env: Mapping[str, str], directory: Path
) -> AsyncGenerator[tuple[Process, Lines]]:
    with (directory / "program.log").open("ab") as log:
        process = await anyio.open_process(
            command, env=env, cwd=directory, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
        )
    async with process:
        try:
            yield process, Lines(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
