"""`hubbub web` beside a hub under trial: a process with somebody logged in, and what is left behind in it."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import anyio
import httpx2
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.e2e.conftest import BIN, LIMIT_S, child
from tests.e2e.crowd import fds, rss_kb

from .subject import GROWTH_KB, SPARE, Tally

AT = "http://localhost:{}"


@dataclass
class Page:
    """The page's server. `right` are the header lines of a browser that is logged in."""

    port: int
    right: tuple[str, ...]
    process: Process
    log: Path
    files: int
    memory_kb: int = 0

    def note_memory(self) -> None:
        """Memory once all of it has been in use."""
        self.memory_kb = rss_kb(self.process.pid)

    async def judge(self, tally: Tally) -> None:
        """Ends it, and looks for what a run has left behind."""
        async with _browser(self.port) as http:
            headers = dict(line.split(": ", 1) for line in self.right)
            if (status := (await http.post("/api/me", json={}, headers=headers)).status_code) != 200:
                tally.found(f"the page says {status} to the browser that is logged in")
        grown = rss_kb(self.process.pid) - self.memory_kb
        tally.say(f"{tally.area}: the page's memory {self.memory_kb} kB, {grown:+} kB since the first fifth")
        if grown > GROWTH_KB:
            tally.found(f"the page's memory grew by {grown} kB")
        with anyio.move_on_after(LIMIT_S):
            while fds(self.process.pid) > self.files + SPARE:
                await anyio.sleep(0.2)
        if (files := fds(self.process.pid)) > self.files + SPARE:
            tally.found(f"the page has {files} open files ({self.files} before)")
        self.process.send_signal(signal.SIGINT)
        with anyio.fail_after(LIMIT_S):
            status = await self.process.wait()
        if (said := self.log.read_text(errors="replace")) or status:
            tally.found(f"the page ended with {status}, and said {said[-2000:]}")


@asynccontextmanager
async def page(data_dir: Path, log: Path) -> AsyncIterator[Page]:
    """Starts it for the hub of a data directory, and logs in."""
    command = [str(BIN / "hubbub"), "--data-dir", str(data_dir), "--json", "web", "--no-browser"]
    with log.open("wb") as said:
        async with child(command, stdout=PIPE, stderr=said) as process:
            assert process.stdout is not None
            with anyio.fail_after(LIMIT_S):
                line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16)
            address, _, link = json.loads(line)["url"].partition("/#login=")
            port = int(address.rpartition(":")[2])
            async with _browser(port) as http:
                said_of = {"origin": AT.format(port), "x-hubbub-token": "none"}
                entered = await http.post("/api/login", json={"link": link}, headers=said_of)
                cookie = entered.headers["set-cookie"].partition(";")[0]
            right = (f"host: localhost:{port}", f"origin: {AT.format(port)}", f"cookie: {cookie}")
            yield Page(port, (*right, f"x-hubbub-token: {entered.json()['token']}"), process, log, fds(process.pid))


def _browser(port: int) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=AT.format(port), trust_env=False, timeout=LIMIT_S)
