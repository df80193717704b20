"""A host of MCP Apps in a browser: the official host code, on a page of ours that says what it heard.

The page is `page/host.html`. Its apps are in frames of another origin, `page/sandbox.html`, as the specification wants.
"""

import json
import re
import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from playwright.async_api import FrameLocator, Page

from .. import forks

PAGE = Path(__file__).parent / "page"
DOMAINS = {
    "connect-src": "connectDomains",
    **dict.fromkeys(("script-src", "style-src", "img-src", "font-src", "media-src"), "resourceDomains"),
    "frame-src": "frameDomains",
}
"""Which domains of a page's `csp` each directive has."""

HEADERS = {"default-src": "'none'", "script-src": "'self' 'unsafe-inline'", "style-src": "'unsafe-inline'"}
DATA = {"img-src": "data:", "font-src": "data:", "media-src": "data:"}
DOMAIN = re.compile(r"(https?|wss?)://[A-Za-z0-9.*:-]+")


def content_security_policy(wanted: Mapping[str, Any]) -> str:
    """Return what the page of an app may load, in words of a header. What is no domain is left out."""
    policy = HEADERS | DATA
    for directive, name in DOMAINS.items():
        domains: object = wanted.get(name)
        named = [str(each) for each in cast("list[object]", domains)] if isinstance(domains, list) else []
        allowed = [each for each in named if DOMAIN.fullmatch(each)]
        policy[directive] = " ".join([policy.get(directive, ""), *allowed]).strip() or "'none'"
    return "; ".join(f"{directive} {allowed}" for directive, allowed in policy.items())


ASK = """request => new Promise(resolve => {
  addEventListener("message", ({ data }) => data.id === request.id && resolve(data));
  parent.postMessage(request, "*");
})"""


class PageFiles(SimpleHTTPRequestHandler):
    """The host's page at `/`, installed packages below `/npm`."""

    def __init__(self, *given: Any, packages: Path) -> None:
        self._packages = packages
        super().__init__(*given, directory=str(PAGE))

    def translate_path(self, path: str) -> str:
        """Return the file for a path."""
        name = urlsplit(path).path
        if name.startswith("/npm/") and ".." not in name:
            return str(self._packages / name.removeprefix("/npm/"))
        return super().translate_path(path)

    def end_headers(self) -> None:
        """Say what the page of an app may load; nothing else is kept from loading."""
        address = urlsplit(self.path)
        if address.path == "/sandbox.html":
            wanted: object = json.loads(parse_qs(address.query)["csp"][0])
            policy = content_security_policy(cast("Any", wanted) if isinstance(wanted, dict) else {})
            self.send_header("Content-Security-Policy", policy)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it has there
        """Say nothing of requests."""


@contextmanager
def serve_page(packages: Path) -> Generator[str]:
    """Serve the host's page on loopback; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(PageFiles, packages=packages)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/host.html"
        finally:
            server.shutdown()
            thread.join()


@dataclass
class AppHost:
    """The host in a tab of a browser."""

    page: Page

    async def connect(
        self, url: str | None = None, token: str | None = None, revision: str | None = None, apps: bool = True
    ) -> dict[str, Any]:
        """Connect to an endpoint, or, without an address, to what `sendMessage` of the page leads to."""
        given = {"url": url, "token": token, "revision": revision, "apps": apps}
        return await self.page.evaluate("given => host.connect(given)", given)

    async def open(self, tool: str, arguments: Mapping[str, Any] | None = None) -> FrameLocator:
        """Call a tool as a model does; return the page of its app."""
        await self.page.evaluate("([tool, args]) => host.open(tool, args)", [tool, dict(arguments or {})])
        return self.page.frame_locator("figure >> nth=-1 >> iframe").frame_locator("iframe")

    async def request(self, method: str, **params: Any) -> Any:
        """Send a request as the host's client does; return the result, or what the error said."""
        try:
            return await self.page.evaluate("given => host.request(given)", {"method": method, "params": params})
        except Exception as error:
            return {"error": str(error)}

    async def heard(self, kind: str) -> list[Any]:
        """Return what apps have said to the host, of this kind."""
        heard = await self.page.evaluate("() => host.heard")
        return [each["said"] for each in heard if each["kind"] == kind]

    async def ask_as_app(self, method: str, **params: Any) -> Any:
        """Send a request out of the page of the last app, as its own code does; return the response."""
        [*_, frame] = [each for each in self.page.frames if each.url == "about:srcdoc"]
        return await frame.evaluate(ASK, {"jsonrpc": "2.0", "id": "asked", "method": method, "params": params})

    @asynccontextmanager
    async def over_stdio(self, command: Sequence[str], **options: Any) -> AsyncGenerator[dict[str, Any]]:
        """Connect to a process that is started for it."""
        async with await forks.start(command, stderr=None, **options) as process, anyio.create_task_group() as group:

            async def send(message: Any) -> None:
                assert process.stdin is not None
                await process.stdin.send(json.dumps(message).encode() + b"\n")

            await self.page.expose_function("sendMessage", send)
            group.start_soon(self._receive, process)
            yield await self.connect()
            process.kill()
            group.cancel_scope.cancel()

    async def _receive(self, process: Process) -> None:
        assert process.stdout is not None
        lines = BufferedByteReceiveStream(process.stdout)
        while True:
            message = json.loads(await lines.receive_until(b"\n", 1 << 24))
            await self.page.evaluate("message => receiveMessage(message)", message)
