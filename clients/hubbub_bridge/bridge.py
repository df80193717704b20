"""Runs the bridge: standard input and output on one side, the hub on the other. It imports gRPC late."""

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from hubbub_bridge.conversation import Conversation
from hubbub_bridge.options import BridgeOptions
from hubbub_local.stdio import LineTooLong, PipeLineWriter, read_lines
from hubbub_shared.platform import pipes

if TYPE_CHECKING:
    from hubbub_bridge.uplink import Uplink

MAX_LINE_BYTES = 64 * 1024 * 1024
"""The most bytes of a line from the host; the hub has a limit of its own, which it sends."""

HUB_WAIT_S = 2.0
"""Seconds for a hub to connect, before the host gets responses from the cache."""

LAST_RESPONSES_LIMIT_S = 0.4
"""Seconds for responses to arrive, after the host has closed its end."""

HANGUP_POLL_S = 0.2
"""Seconds between looks whether a host that is not read has left."""

GOODBYE_LIMIT_S = 0.3
"""Seconds to tell the hub that the host has left."""


async def serve(endpoint: BridgeOptions, stdin: int = 0, stdout: int = 1) -> None:
    """Serve the host at these descriptors until the host leaves, or SIGTERM or SIGINT comes."""
    await _Bridge(endpoint, stdin, stdout).run()


class _Bridge:
    """One host, its conversation, and the connection to the hub."""

    def __init__(self, endpoint: BridgeOptions, stdin: int, stdout: int) -> None:
        self._endpoint = endpoint
        self._stdin = stdin
        self._host_has_written = asyncio.Event()
        self._host_has_left = asyncio.Event()
        self._writer = PipeLineWriter(stdout, self._host_has_left.set)
        self._conversation = Conversation(
            self._writer.queue_line, endpoint.open_cache(), endpoint.version, self._on_request
        )
        self._uplink: Uplink | None = None

    async def run(self) -> None:
        """Carry messages until the host leaves, a signal comes, or a task fails. Raises the error of a failed task."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._host_has_left.set)
        write_task = loop.create_task(self._writer.run())
        read_task = loop.create_task(self._read_host())
        uplink_task = loop.create_task(self._connect_and_carry())
        end_task = loop.create_task(self._host_has_left.wait())
        try:
            # If a task fails, the wait ends, and so does the bridge: the error is raised below.
            await asyncio.wait({write_task, read_task, uplink_task, end_task}, return_when=asyncio.FIRST_COMPLETED)
            if self._uplink is not None:
                self._uplink.leave()
                await asyncio.wait({uplink_task}, timeout=GOODBYE_LIMIT_S)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            tasks = (write_task, read_task, uplink_task, end_task)
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def _on_request(self) -> None:
        """Let the uplink connect to the hub at once, unless it is connected.

        The requests that still wait after HUB_WAIT_S are answered from the cache, as far as that is possible.
        """
        if self._uplink is not None:
            self._uplink.retry_now()
            if self._uplink.connected:
                return
        asyncio.get_running_loop().call_later(HUB_WAIT_S, self._conversation.answer_from_cache)

    async def _read_host(self) -> None:
        """Pass the lines of the host to the conversation until the host closes its end.

        Then wait for the last responses, at most LAST_RESPONSES_LIMIT_S.
        """
        async with contextlib.aclosing(read_lines(self._stdin, MAX_LINE_BYTES)) as host_lines:
            async for line in host_lines:
                self._host_has_written.set()
                if isinstance(line, LineTooLong):
                    self._conversation.refuse_long_line()
                else:
                    self._conversation.handle_host_message(line)
                await self._writer.wait_for_capacity()
                uplink = self._uplink
                if uplink is not None and not uplink.has_capacity and not await self._wait_for_capacity(uplink):
                    break  # the host has left
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_RESPONSES_LIMIT_S):
                await self._conversation.wait_until_answered()
                await self._writer.wait_until_written()

    async def _wait_for_capacity(self, uplink: "Uplink") -> bool:
        """Wait until fewer messages wait to be sent to the hub; return False if the host has left meanwhile.

        The host is not read during this wait, so the end of its pipe is looked for each HANGUP_POLL_S.
        """
        wait_task = asyncio.create_task(uplink.wait_for_capacity())
        try:
            while not (await asyncio.wait({wait_task}, timeout=HANGUP_POLL_S))[0]:
                if pipes.has_hung_up(self._stdin):
                    return False
        finally:
            wait_task.cancel()
        return True

    async def _connect_and_carry(self) -> None:
        """Connect to the hub, and carry messages until cancelled.

        Begin once the host has written a message, and has its response from the cache, if there is one: the import of
        gRPC below would delay that response.
        """
        await self._host_has_written.wait()
        await self._writer.wait_until_written()
        from hubbub_bridge.uplink import Uplink

        self._uplink = Uplink(self._endpoint, self._conversation, self._writer.wait_until_written)
        await self._uplink.run()
