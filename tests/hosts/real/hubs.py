"""A hub that a tour ends and starts again at the same address, with the servers that a tour uses."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from hubbub_client import ServerSpec

from ...e2e.conftest import BIN, RunningHub, running, toml
from ...ports import reserved

PEERS = Path(__file__).parents[2] / "peers"
HOLD_S = 8
"""For how long a host is held while people are asked; then it gets a ticket."""
IDLE_TOOLS = 60
"""So many that a host that takes few would show it."""


@dataclass
class Venue:
    """A directory with a hub."""

    directory: Path
    port: int
    stack: AsyncExitStack
    hub: RunningHub

    @property
    def token(self) -> str:
        """The hub's own token."""
        return json.loads((self.hub.data_dir / "client.json").read_text())["token"]

    @property
    def url(self) -> str:
        """Where its endpoint is."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def bridge(self) -> list[str]:
        """The command of the bridge."""
        return [str(BIN / "hubbub"), "--data-dir", str(self.hub.data_dir), "mcp"]

    async def restart(self, way: str) -> None:
        """End the hub by `terminate` or `kill`, and start another one in its place."""
        await getattr(self.hub, way)()
        self.hub = await self.stack.enter_async_context(_start(self.directory, self.port))

    async def add_server(self, name: str) -> None:
        """Add one more server while the hub runs."""
        script = str(PEERS / "plain_server.py")
        await self.hub.client.servers.add(ServerSpec(name=name, command=sys.executable, args=[script]))
        await self.hub.connected(name)

    async def list_tools(self) -> list[str]:
        """Return the names of all tools, as hosts get them."""
        names = ("tour", "plain")
        return [f"{name}__{tool.name}" for name in names for tool in await self.hub.client.catalog.tools(name)]

    def count_work(self, text: str) -> int:
        """Return how often the tool `work` was called with a text."""
        journal = self.directory / "journal.jsonl"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [json.loads(line)["answer"] for line in lines].count({"working": text})

    async def wait_for_work(self, text: str) -> None:
        """Wait until the tool `work` has begun."""
        while not self.count_work(text):
            await anyio.sleep(0.05)


def _tables(directory: Path, port: int, hold_s: float) -> Mapping[str, Any]:
    env = {"JOURNAL": str(directory / "journal.jsonl"), "GO": str(directory / "go"), "TOOLS": str(IDLE_TOOLS)}
    tour = {"command": sys.executable, "args": [str(PEERS / "tour_server.py")], "env": env}
    return {
        "hub": {"mcp_listen": f"127.0.0.1:{port}", "mcp_login_documents": False, "shutdown_grace_s": 1},
        "servers": {"tour": tour, "plain": {"command": sys.executable, "args": [str(PEERS / "plain_server.py")]}},
        "mcp": {"profiles": {"default": {"hold_s": hold_s}}},
    }


@asynccontextmanager
async def _start(directory: Path, port: int) -> AsyncGenerator[RunningHub]:
    arguments = ["--config", str(directory / "hub.toml"), "--data-dir", str(directory / "data")]
    with (directory / "hub.log").open("ab") as log:
        async with running([*arguments, "--listen", "127.0.0.1:0"], stderr=log) as hub:
            yield hub


@asynccontextmanager
async def opened(directory: Path, hold_s: float = HOLD_S) -> AsyncGenerator[Venue]:
    """Start a hub in a directory, with servers that have connected."""
    directory.mkdir(parents=True)
    with reserved() as port:
        (directory / "hub.toml").write_text(toml(_tables(directory, port, hold_s)))
        async with AsyncExitStack() as stack:
            hub = await stack.enter_async_context(_start(directory, port))
            await hub.connected("tour", "plain")
            yield Venue(directory, port, stack, hub)
