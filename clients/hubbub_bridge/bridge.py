"""Runs the bridge: standard input and output on one side, the hub on the other. It imports gRPC late."""

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from hubbub_bridge.conversation import Conversation
from hubbub_bridge.options import BridgeOptions
from hubbub_bridge.stdio import LineTooLong, LineWriter, hung_up, lines

if TYPE_CHECKING:
    from hubbub_bridge.uplink import Uplink

LONGEST_LINE = 64 * 1024 * 1024
"""The most bytes of a line from the host; the hub's own limit is asked of the hub."""

PATIENCE_S = 2.0
"""Seconds for a hub to come, before the host gets what is known without it."""

LAST_RESPONSES_S = 0.4
"""Seconds for responses to arrive, after the host has closed its end."""

LOOK_S = 0.2
"""Seconds between looks whether a host that is not read has left."""

LEAVE_S = 0.3
"""Seconds for the hub to hear that the host has left."""


async def serve(endpoint: BridgeOptions, stdin: int = 0, stdout: int = 1) -> None:
    """Serve the host at these descriptors until it leaves, or SIGTERM or SIGINT."""
    await _Bridge(endpoint, stdin, stdout).run()


class _Bridge:
    def __init__(self, endpoint: BridgeOptions, stdin: int, stdout: int) -> None:
        self._endpoint = endpoint
        self._stdin = stdin
        self._spoken = asyncio.Event()
        self._left = asyncio.Event()
        self._lines = LineWriter(stdout, self._left.set)
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
                if isinstance(line, LineTooLong):
                    self._conversation.too_long()
                else:
                    self._conversation.from_host(line)
                await self._lines.room()
                if self._uplink is not None and not await self._room(self._uplink):
                    break
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_RESPONSES_S):
                await self._conversation.answered()
                await self._lines.written()

    async def _room(self, uplink: "Uplink") -> bool:
        """Wait while too much waits to be sent; False if the host has left meanwhile, and its end is not read."""
        waiting = asyncio.create_task(uplink.room())
        try:
            while not (await asyncio.wait({waiting}, timeout=LOOK_S))[0]:
                if hung_up(self._stdin):
                    return False
        finally:
            waiting.cancel()
        return True

    async def _carry(self) -> None:
        """Connect to the hub, once the host has spoken and has its first response, if that is known."""
        await self._spoken.wait()
        await self._lines.written()
        from hubbub_bridge.uplink import Uplink

        self._uplink = Uplink(self._endpoint, self._conversation, self._lines.written)
        await self._uplink.run()
