"""HTTP servers beside gRPC (uvicorn), for Connect, metrics and hosts. What one connection may do: `hubbub_http`."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext

import anyio
import uvicorn

from hubbubd.rpc.listeners import sockets as listening


@asynccontextmanager
async def serve_application(
    config: uvicorn.Config,
    listen: str,
    *,
    secure: bool = False,
    closing: Callable[[asyncio.Future[None]], Awaitable[None]] | None = None,
) -> AsyncGenerator[str, None]:
    """Serve an application for the block and yield its base URL; `secure` says that it speaks TLS.

    On leaving, open requests have the seconds that `config` says. With `closing`, which gets a future of their end,
    they have until it returns. Raises as `sockets.open_listener`.
    """
    server = _UvicornServer(config)
    listener, address = listening.open_listener(listen, secure=secure)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield f"{'https' if secure else 'http'}://{address}"
            finally:
                server.should_exit = True
                if closing is not None:
                    await closing(server.ended)
                    server.cancel_requests()


class _UvicornServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the hub."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set and all requests have ended."""
        try:
            await super().serve(sockets)
        finally:
            self.ended.set_result(None)

    def cancel_requests(self) -> None:
        """Cancel the requests that have not ended."""
        self.force_exit = True
        for task in self.server_state.tasks:
            task.cancel()

    def capture_signals(self) -> nullcontext[None]:  # pyright: ignore[reportIncompatibleMethodOverride] - any context
        """Capture none: signals are the hub's."""
        return nullcontext()
