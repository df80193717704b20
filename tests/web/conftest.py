"""A real hub, a real bridge and a real browser in front of them."""

import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import httpx2
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

from hubbub_client import FailedPrecondition

from ..e2e.conftest import BIN, LIMIT_S, RunningHub, child, start_hub, start_shared_hub

__all__ = ["start_hub", "start_shared_hub"]

LIMIT_MS = 1000 * LIMIT_S
LAPTOP = {"width": 1280, "height": 800}
PEERS = Path(__file__).parents[1] / "peers"
NOISE = re.compile(r"responded with a status of (400|401|403|404|409|503)|ERR_(CONNECTION|INCOMPLETE|FAILED)")
"""What a browser says by itself of a refusal that the page shows in its own words."""

WITHOUT = (
    # What Playwright does without: of several lists, Chromium takes the last one.
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "LensOverlay"),
    *("HttpsFirstBalancedModeAutoEnable", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled"),
    "PreconnectToSearch",
    # Each window of a person begins with two pages for suggestions below the address bar, and one for what comes next.
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup", "SpareRendererForSitePerProcess"),
)
"""Features that no test needs. A window without them takes a third of the processor time; the page is the same."""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", f"--disable-features={','.join(WITHOUT)}"]

expect.set_options(timeout=LIMIT_MS)


def dictated(*tools: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The configuration of the server that asks what a test dictates."""
    given = [json.dumps({"tools": tools})] if tools else []
    arguments = ["-I", "-S", str(PEERS / "dictated_server.py"), *given]
    return {"command": sys.executable, "args": arguments, "max_in_flight": 20, **options}


def asking() -> dict[str, Any]:
    """The configuration of a server of the SDK that asks."""
    return {"command": sys.executable, "args": [str(PEERS / "asking_server.py"), "stdio"], "protocol": "2025-11-25"}


def form(message: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """A question with a form."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


async def ask(hub: RunningHub, *questions: dict[str, Any], server: str = "dictated") -> str:
    """Has a dictated server ask, and waits until just these questions are open; the call's id."""
    before = {request.id for request in await hub.client.inbox.list(states=["open"], server=server)}
    call = await hub.client.start_tool(server, "ask", {"questions": list(questions)})
    watch = hub.client.inbox.watch(states=["open"], server=server)
    await hub.watched(watch, lambda request: request.id not in before, len(questions))
    return call.id


@dataclass
class Bridge:
    """`hubbub web` at work. `link` is the one that it printed; `http` is a browser's way to it, without a browser."""

    link: str
    process: Any
    http: httpx2.AsyncClient
    token: str = "none"

    @property
    def origin(self) -> str:
        return self.link.partition("/#")[0]

    async def post(self, action: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Asks as the page does, but for the headers that are given."""
        usual = {"origin": self.origin, "content-type": "application/json", "x-hubbub-token": self.token}
        content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        return await self.http.post(f"/api/{action}", content=content, headers=usual | headers)

    async def login(self) -> httpx2.Response:
        """Uses the link that was printed."""
        response = await self.post("login", {"link": self.link.partition("#login=")[2]})
        self.token = response.json()["token"]
        return response

    async def new_link(self) -> str:
        """A link for another browser."""
        if self.token == "none":
            await self.login()
        return (await self.post("link")).json()["url"]


@dataclass
class Person:
    """Somebody at a browser of their own."""

    context: BrowserContext
    page: Page
    origin: str
    troubles: list[str] = field(default_factory=list)

    async def enter(self, link: str, name: "str | Callable[[Person], Awaitable[None]] | None") -> None:
        """Opens the link, and says who it is (or does what it is given), unless the hub knows that already."""
        await self.page.goto(link)
        if callable(name):
            await name(self)
        elif name is not None:
            await self.page.get_by_label("Your name").fill(name)
            await self.page.get_by_role("button", name="Start").click()
        await expect(self.page.locator("dialog")).to_be_hidden()
        # The first page is drawn once everything has been heard.
        await expect(self.page.locator("main h1")).to_be_visible()

    async def go(self, route: str) -> None:
        """Goes to another page."""
        await self.page.evaluate("route => { location.hash = route }", f"#/{route}")

    async def open(self, text: str) -> Locator:
        """Opens the question with this text from the inbox; what is on its page."""
        await self.go("inbox")
        card = self.page.locator("a.card").filter(has_text=text)
        await expect(card).to_be_visible()
        await card.click()
        main = self.page.locator("main")
        await expect(main.locator(".page[data-route^='#/request/'] h1")).to_be_visible()
        return main

    async def waiting(self) -> int:
        """How many questions wait, as the page's title says."""
        found = re.match(r"\((\d+)\) ", await self.page.title())
        return int(found[1]) if found else 0

    async def another_link(self) -> str:
        """A link for another browser."""
        await self.page.locator("#person").click()
        await self.page.get_by_role("button", name="Link for another browser").click()
        shown = self.page.locator("dialog .address")
        await expect(shown).to_contain_text("#login=")
        link = await shown.inner_text()
        await self.page.get_by_role("button", name="Close").click()
        return link

    def watch(self) -> None:
        """Notes whatever a page must never do."""
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("console", lambda said: said.type == "error" and self._complain(said.text))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda asked: self._leaves(asked.url) and self.troubles.append(f"went to {asked.url}"))

    def _complain(self, text: str) -> None:
        if not NOISE.search(text):
            self.troubles.append(f"console: {text}")

    async def _refuse(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _leaves(self, url: str) -> bool:
        return not url.startswith((self.origin, "blob:", "data:"))


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    """The machine's own Chromium; none is downloaded. For a module: tests/repo/test_fixtures.py says why."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.fail("chromium is missing: run `make chromium`", pytrace=False)
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield launched
        await launched.close()


@pytest.fixture
async def settled(hub: RunningHub) -> AsyncIterator[None]:
    """Nothing of a test is left for the next one in a hub that they share: no call, no question, no claim."""
    yield
    for call in await hub.client.calls.list(states=["queued", "in_progress", "waiting_input"]):
        with suppress(FailedPrecondition):  # it has ended meanwhile
            await hub.client.calls.cancel(call.id, abort=True)
        await hub.call(call.id)
    left = await hub.client.inbox.list(states=["open"])
    ids, servers = {request.id for request in left}, {request.server for request in left}
    for server in servers:
        await hub.client.servers.disconnect(server)
    if ids:
        await hub.watched(hub.client.inbox.watch(), lambda r: r.id in ids and r.state == "withdrawn", len(ids))
    for server in servers:
        await hub.client.servers.connect(server)
    if servers:
        await hub.connected(*servers)


@pytest.fixture
async def start_bridge() -> AsyncIterator[Callable[..., Any]]:
    """Starts `hubbub web` for a hub: `await start_bridge(hub)`."""
    async with bridges() as start:
        yield start


@pytest.fixture(scope="module")
async def start_shared_bridge() -> AsyncIterator[Callable[..., Any]]:
    """As `start_bridge`, for all tests of a module."""
    async with bridges() as start:
        yield start


@asynccontextmanager
async def bridges() -> AsyncIterator[Callable[..., Any]]:
    """What `start_bridge` gives."""
    async with AsyncExitStack() as stack:

        async def start(hub: RunningHub, *options: str, token: str | None = None) -> Bridge:
            given = ["--data-dir", str(hub.data_dir), *(["--token", token] if token else [])]
            words = [str(BIN / "hubbub"), *given, "--json", "web", "--no-browser", *options]
            process = await stack.enter_async_context(child(words, stdout=PIPE))
            assert process.stdout is not None
            with anyio.fail_after(LIMIT_S):
                line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16)
            link = json.loads(line)["url"]
            http = httpx2.AsyncClient(base_url=link.partition("/#")[0], trust_env=False, timeout=LIMIT_S)
            return Bridge(link, process, await stack.enter_async_context(http))

        yield start


@pytest.fixture
async def visit(browser: Browser) -> AsyncIterator[Callable[..., Any]]:
    """Sits somebody down at a browser: `await visit(link, "Ada")`. Whatever a page must not do fails the test."""
    people: list[Person] = []

    async def enter(link: str, name: Any, script: str = "", clock: bool = False, **options: Any) -> Person:
        context = await browser.new_context(**options)
        if clock:
            await context.clock.install()
        await context.add_init_script(script)
        context.set_default_timeout(LIMIT_MS)
        person = Person(context, await context.new_page(), link.partition("/#")[0])
        people.append(person)
        person.watch()
        await person.enter(link, name)
        return person

    yield enter
    troubles = [trouble for person in people for trouble in person.troubles]
    for person in people:
        await person.context.close()
    assert troubles == []


@pytest.fixture(scope="module")
async def bridge(hub: RunningHub, start_shared_bridge: Callable[..., Any]) -> Bridge:
    """The bridge to that hub."""
    return await start_shared_bridge(hub)


@pytest.fixture(scope="module")
async def hub(start_shared_hub: Any) -> RunningHub:
    """A hub with a server that asks, also for directories."""
    return await start_shared_hub({"dictated": dictated(roots="ask")}, connected=True)


@pytest.fixture
async def ada(bridge: Bridge, visit: Callable[..., Any]) -> Person:
    """Somebody at a laptop."""
    return await visit(await bridge.new_link(), "Ada", viewport=LAPTOP)
