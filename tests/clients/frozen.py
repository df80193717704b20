"""A TCP proxy in front of a hub that can stop passing bytes, as a member does that is stopped (SIGSTOP)."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Proxy:
    """Passes everything on while it is not `frozen`; then it still takes connections, as a kernel does."""

    def __init__(self, port: int) -> None:
        self.address = ""
        self.frozen = False
        self._port = port
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
            finally:
                back.transport.abort()
                writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.frozen:
                await asyncio.Event().wait()
            writer.write(data)
            await writer.drain()
        writer.transport.abort()

    async def end(self) -> None:
        """Break all connections, and take no more."""
        if self._server is not None:
            self._server.close()
        for each in self._open:
            each.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)


@asynccontextmanager
async def proxy(port: int) -> AsyncGenerator[Proxy]:
    """A proxy to a port of this machine."""
    made = Proxy(port)
    await made.start()
    yield made
    await made.end()
