"""Runs the bridge: standard input and output on one side, the hub on the other. It imports gRPC late."""

import asyncio
import contextlib
import os
import secrets
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hubbub_bridge.conversation import Conversation
from hubbub_bridge.memory import Memory
from hubbub_bridge.stdio import Lines, TooLong, lines

if TYPE_CHECKING:
    from hubbub_bridge.uplink import Uplink

LONGEST_LINE = 64 * 1024 * 1024
"""The most bytes of a line from the host; the hub's own limit is asked of the hub."""

PATIENCE_S = 2.0
"""Seconds for a hub to come, before the host gets what is known without it."""

LAST_RESPONSES_S = 0.4
"""Seconds for responses to arrive, after the host has closed its end."""

LEAVE_S = 0.3
"""Seconds for the hub to hear that the host has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How to reach the hub, as `hubbub_client.connect`; None leaves it to the environment or `client.json`."""

    address: str | None = None
    token: str | None = field(default=None, repr=False)
    data_dir: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    name: str | None = None

    @property
    def memory_dir(self) -> Path | None:
        """Where what the hub said is kept: the data directory; None if this user has none."""
        given = self.data_dir or os.environ.get("HUBBUB_DATA_DIR")
        if given:
            return Path(given)
        if base := os.environ.get("XDG_DATA_HOME"):
            return Path(base) / "hubbub"
        with contextlib.suppress(RuntimeError):
            return Path.home() / ".local" / "share" / "hubbub"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What a host sees of the hub, over which bridge. `start`: start a hub if there is none."""

    reach: Reach
    version: str
    profile: str | None = None
    server: str | None = None
    start: bool = False
    session_key: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def named(self) -> dict[str, str]:
        """The server or the profile, by its name in the API."""
        return {"server": self.server} if self.server else {"profile": self.profile or "default"}

    def memory(self) -> Memory:
        """Return what the hub said last at this endpoint, to whoever has the same token."""
        reach, environ = self.reach, os.environ
        way = (reach.address or environ.get("HUBBUB_ADDRESS"), reach.token or environ.get("HUBBUB_TOKEN"), reach.name)
        return Memory(reach.memory_dir, *way, *self.named, *self.named.values())


async def serve(endpoint: Endpoint, stdin: int = 0, stdout: int = 1) -> None:
    """Serve the host at these descriptors until it leaves, or SIGTERM or SIGINT."""
    await _Bridge(endpoint, stdin, stdout).run()


class _Bridge:
    def __init__(self, endpoint: Endpoint, stdin: int, stdout: int) -> None:
        self._endpoint = endpoint
        self._stdin = stdin
        self._spoken = asyncio.Event()
        self._left = asyncio.Event()
        self._lines = Lines(stdout, self._left.set)
        self._conversation = Conversation(self._lines.tell, endpoint.memory(), endpoint.version, self._wanted)
        self._uplink: Uplink | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._left.set)
        writing = loop.create_task(self._lines.run())
        reading = loop.create_task(self._read())
        carrying = loop.create_task(self._carry())
        leaving = loop.create_task(self._left.wait())
        try:
            # A task that fails ends the bridge, which then says why.
            await asyncio.wait({writing, reading, carrying, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if self._uplink is not None:
                self._uplink.leave()
                await asyncio.wait({carrying}, timeout=LEAVE_S)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            tasks = (writing, reading, carrying, leaving)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _wanted(self) -> None:
        """Have the hub looked for, and do without it after a while."""
        if self._uplink is not None:
            self._uplink.want()
            if self._uplink.connected:
                return
        asyncio.get_running_loop().call_later(PATIENCE_S, self._conversation.tire)

    async def _read(self) -> None:
        """Take what the host says, until it closes its end."""
        async with contextlib.aclosing(lines(self._stdin, LONGEST_LINE)) as said:
            async for line in said:
                self._spoken.set()
                if isinstance(line, TooLong):
                    self._conversation.too_long()
                else:
                    self._conversation.from_host(line)
                if self._uplink is not None:
                    await self._uplink.room()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_RESPONSES_S):
                await self._conversation.answered()
                await self._lines.written()

    async def _carry(self) -> None:
        """Connect to the hub, once the host has spoken and has its first response, if that is known."""
        await self._spoken.wait()
        await self._lines.written()
        from hubbub_bridge.uplink import Uplink

        self._uplink = Uplink(self._endpoint, self._conversation, self._lines.written)
        await self._uplink.run()
