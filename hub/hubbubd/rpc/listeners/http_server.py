"""HTTP servers beside gRPC (uvicorn), for Connect, metrics and hosts. What one connection may do: `hubbub_http`."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import anyio
import uvicorn

from hubbub_http import HttpConnection
from hubbubd.config.sections.tls import TlsFiles
from hubbubd.rpc.listeners import sockets as listening
from hubbubd.rpc.listeners.tls import ssl_context

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@asynccontextmanager
async def serve_application(
    app: "ASGIApp",
    listen: str,
    *,
    connections: type[HttpConnection],
    tls: TlsFiles | None = None,
    max_requests: int | None = None,
    grace_s: int | None = None,
    closing: Callable[[asyncio.Future[None]], Awaitable[None]] | None = None,
) -> AsyncGenerator[str, None]:
    """Serve an ASGI application for the block, with TLS if there are files for it, and yield its base URL.

    More than `max_requests` at once are refused. On leaving, open requests have `grace_s` seconds; with `closing`,
    until `closing` returns, which gets a future that is done once all have ended. Raises ConfigError for an address or
    TLS files that cannot be used, OSError for an address that cannot be bound.
    """
    context = ssl_context(tls) if tls else None
    config = uvicorn.Config(
        app,
        http=connections,
        interface="asgi3",
        ssl_context_factory=(lambda _config, _default: context) if context else None,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the caller's address is that of the connection, not what X-Forwarded-For claims
        limit_concurrency=max_requests,
        timeout_graceful_shutdown=grace_s,
    )
    server = _UvicornServer(config)
    listener, address = listening.open_listener(listen, secure=tls is not None)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield f"{'https' if tls else 'http'}://{address}"
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
        """Serve until `should_exit` is set and all requests have ended; then set the result of `ended`."""
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
