"""HTTP servers beside gRPC (uvicorn), for Connect and metrics, with bounds against strangers.

A connection is a stranger's until one of its requests was authenticated. Few of these are kept at a time, the newest
ones, and not for long, unless a request of theirs is being answered (against slow-loris attacks).
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, cast

import anyio
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hubbubd.rpc import listen as listening

MAX_STRANGERS = 200
"""The most connections of strangers; beyond that the oldest idle one is closed."""

STRANGER_S = 30.0
"""Seconds such a connection may take to send a request, or be idle."""

KEEP_ALIVE_S = 180
"""Seconds an idle connection is kept after a response: for longer than clients keep theirs.

A request that meets the end of its connection is lost. httpx keeps a connection for 5 s, aiohttp for 15, nginx and load
balancers for 60, Go for 90.
"""

LINGER_S = 2.0
"""Seconds in which a caller may still send what is not read, after a response that ends its connection."""

CERTIFICATE = "hubbub.certificate"
"""Key of an ASGI scope: the peer's certificate (DER), or None."""

LET_IN = "hubbub.let_in"
"""Key of an ASGI scope: the function to call once a request was authenticated."""

CUT = "hubbub.cut"
"""Key of an ASGI scope: the function that closes the connection at once."""


TOGETHER_BYTES = 16 * 1024
"""As much that is written in one turn of the loop is sent together: the head of a response with its body."""


class Gathered:
    """A connection's transport, which sends what is written in one turn of the loop at its end, at once.

    `lingers` is asked when it is to be closed; True if the connection closes it later.
    """

    def __init__(self, transport: asyncio.Transport, lingers: Callable[[], bool] = lambda: False) -> None:
        self._transport = transport
        self._lingers = lingers
        self._closing = False
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Send bytes, with what else is written now. More than TOGETHER_BYTES never wait."""
        if not data:
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._size > TOGETHER_BYTES:
            self._flush()  # so that the transport says at once when it is full
        elif len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self._flush()
        self._closing = True
        if not self._lingers():
            self._transport.close()

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._closing or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        together = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        if together and not self.is_closing():
            self._transport.write(together)


class Connection(H11Protocol):
    """A connection that is closed early while it is a stranger's."""

    strangers: "OrderedDict[Connection, asyncio.TimerHandle]"
    open_to_all: bool
    """Whether nobody needs a credential here: then a connection that was used may be idle like any other."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Count a stranger, and give the application the means to say that it is none."""
        self._lingering = False
        self._own = transport
        super().connection_made(cast("asyncio.Transport", Gathered(transport, self._lingers)))
        secured = transport.get_extra_info("ssl_object")
        app, shown = self.app, secured.getpeercert(binary_form=True) if secured else None

        async def call(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, CERTIFICATE: shown, LET_IN: self.let_in, CUT: self.cut}, receive, send)

        self.app = call
        self._watch()
        idle = [each for each in self.strangers if not each.answering]
        if len(self.strangers) > MAX_STRANGERS and idle:
            idle[0].cut()

    def data_received(self, data: bytes) -> None:
        """Take what the caller sends; nothing more after a response that ends the connection."""
        if not self._lingering:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.let_in()
        super().connection_lost(exc)

    @property
    def answering(self) -> bool:
        """Whether a complete request is being answered."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def let_in(self) -> None:
        """Note that a request was authenticated: the connection is no stranger's."""
        timer = self.strangers.pop(self, None)
        if timer is not None:
            timer.cancel()

    def cut(self) -> None:
        """Close the connection."""
        self.let_in()
        self.transport.abort()

    def _lingers(self) -> bool:
        """Keep a connection open for what its caller still sends: closed at once, it would be reset, and the response
        lost on its way (RFC 9112, section 9.6)."""
        if self._lingering or self.conn.their_state not in (h11.SEND_BODY, h11.ERROR):
            return False
        self._lingering = True
        if self._own.can_write_eof():
            self._own.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_S, self._own.close)
        return True

    def _watch(self) -> None:
        self.strangers[self] = asyncio.get_running_loop().call_later(STRANGER_S, self._late)

    def _late(self) -> None:
        rests = self.timeout_keep_alive_task is not None  # answered, and nothing of a next request has come
        if self.answering or (self.open_to_all and rests):
            self._watch()
        else:
            self.cut()


def connection(*, open_to_all: bool = False) -> type[Connection]:
    """Return the connection class of one server, with a count of its own."""
    own = {"strangers": OrderedDict[Connection, asyncio.TimerHandle](), "open_to_all": open_to_all}
    return type("Connection", (Connection,), own)


@asynccontextmanager
async def serving(
    config: uvicorn.Config,
    listen: str,
    *,
    secure: bool = False,
    closing: Callable[[asyncio.Future[None]], Awaitable[None]] | None = None,
) -> AsyncGenerator[str, None]:
    """Serve an application for the block and yield its base URL; `secure` says that it speaks TLS.

    On leaving, open requests have the seconds that `config` says. With `closing`, which is given a future of their end,
    they have until it returns. Raises as `listen.bound_socket`.
    """
    config.timeout_keep_alive = KEEP_ALIVE_S
    server = _Server(config)
    listener, address = listening.bound_socket(listen, secure=secure)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield f"{'https' if secure else 'http'}://{address}"
            finally:
                server.should_exit = True
                if closing is not None:
                    await closing(server.ended)
                    server.cut()


class _Server(uvicorn.Server):
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

    def cut(self) -> None:
        """Cancel the requests that have not ended."""
        self.force_exit = True
        for task in self.server_state.tasks:
            task.cancel()

    def capture_signals(self) -> nullcontext[None]:  # pyright: ignore[reportIncompatibleMethodOverride] - any context
        return nullcontext()
