"""What serves HTTP beside gRPC, on a port of its own.

Whoever connects is a stranger until a request of theirs was let in. Of strangers few are kept at once, the latest ones,
and not for long, unless something is being answered to them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hubbubd.rpc import listen as listening

MAX_STRANGERS = 200
"""Connections at once over which nobody has been let in; the oldest that is idle makes room for another."""

STRANGER_S = 30.0
"""How long such a connection may take to send a request, or be idle."""

CERTIFICATE = "hubbub.certificate"
"""Of an ASGI scope: the certificate of the peer (DER), or None where none was asked for."""

LET_IN = "hubbub.let_in"
"""Of an ASGI scope: what to call once the request was let in."""


class Connection(H11Protocol):
    """A connection that is closed early as long as it is a stranger's.

    Raises nothing: a stranger that is too many, or too slow, finds its connection closed.
    """

    strangers: "OrderedDict[Connection, asyncio.TimerHandle]"

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Counts a stranger, and tells the application how to say that it is none."""
        super().connection_made(transport)
        secured = transport.get_extra_info("ssl_object")
        app, shown = self.app, secured.getpeercert(binary_form=True) if secured else None

        async def call(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, CERTIFICATE: shown, LET_IN: self.let_in}, receive, send)

        self.app = call
        self._watch()
        idle = [each for each in self.strangers if not each.answering]
        if len(self.strangers) > MAX_STRANGERS and idle:
            idle[0].cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets it."""
        self.let_in()
        super().connection_lost(exc)

    @property
    def answering(self) -> bool:
        """Whether a whole request has come whose answer is not over."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def let_in(self) -> None:
        """Somebody with a credential uses it."""
        timer = self.strangers.pop(self, None)
        if timer is not None:
            timer.cancel()

    def cut(self) -> None:
        """Closes it."""
        self.let_in()
        self.transport.abort()

    def _watch(self) -> None:
        self.strangers[self] = asyncio.get_running_loop().call_later(STRANGER_S, self._late)

    def _late(self) -> None:
        if self.answering:
            self._watch()
        else:
            self.cut()


def connection() -> type[Connection]:
    """The class of one server's connections, which counts them."""
    return type("Connection", (Connection,), {"strangers": OrderedDict[Connection, asyncio.TimerHandle]()})


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
