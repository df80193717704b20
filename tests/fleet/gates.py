"""Gates before the ports of others: while one is shut, no byte passes, as if packets were held back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

CHUNK_BYTES = 1 << 16


class Gate:
    """Passes on connections to a port of 127.0.0.1. While it is shut all stay open and silent, new ones too."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.port = 0
        self._open = asyncio.Event()
        self._open.set()
        self._shut = 0
        self._serving = set[asyncio.Task[None]]()

    def shut(self) -> None:
        """Let nothing pass until it was opened as often as it was shut."""
        self._shut += 1
        self._open.clear()

    def open(self) -> None:
        """Let everything pass again, what was held back first."""
        self._shut -= 1
        if not self._shut:
            self._open.set()

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncGenerator["Gate"]:
        """Serve until the end of the block, at this port or at any."""
        listening = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = listening.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listening.close()
            for task in [*self._serving]:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        both = [writer]
        try:
            await self._open.wait()
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
            both.append(back)
            ways = [asyncio.create_task(self._pass(reader, back)), asyncio.create_task(self._pass(there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:  # nobody listens there
            pass
        finally:
            for each in both:
                each.transport.abort()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
