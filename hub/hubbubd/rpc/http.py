"""What serves HTTP beside gRPC, on a port of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext

import anyio
import uvicorn

from hubbubd.rpc import listen as listening


@asynccontextmanager
async def serving(config: uvicorn.Config, listen: str, *, secure: bool = False) -> AsyncGenerator[str, None]:
    """Serves an application while the block is open, and yields the base URL; `secure` is whether it speaks TLS.

    Raises as `listen.bound_socket`.
    """
    server = _Server(config)
    listener, address = listening.bound_socket(listen, secure=secure)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield f"{'https' if secure else 'http'}://{address}"
            finally:
                server.should_exit = True


class _Server(uvicorn.Server):
    """A server whose signals are the hub's."""

    def capture_signals(self) -> nullcontext[None]:  # pyright: ignore[reportIncompatibleMethodOverride] - any context
        return nullcontext()
