"""One HTTP connection, with bounds for all clients, and narrower ones for unauthenticated ones.

A connection is a stranger's until one of its requests was authenticated. Few of these are kept at a time, the newest
ones, and not for long, unless a request of theirs is being answered (against slow-loris attacks).

Parsing is work of the event loop, on which everybody is served. So bytes are parsed in pieces, no more than TURN_BYTES
in one turn of the loop, and no piece while a request waits behind another (pipelining, RFC 9112, section 9.3.2). The
parser is llhttp, in C: what costs time is each call from it, one per header and per chunk.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hubbub_http.write_buffer import GatheringTransport

MAX_STRANGERS = 200
"""The most connections of strangers; beyond that the oldest idle one is closed."""

STRANGER_S = 30.0
"""Seconds such a connection may take to send a request, or be idle."""

UNBUFFERED: Final = (b"x-accel-buffering", b"no")
"""Header of a response that nginx is to pass on as it comes, whatever `proxy_buffering` says."""

KEEP_ALIVE_S: Final = 180
"""Seconds an idle connection is kept after a response: for longer than clients keep theirs.

A request that meets the end of its connection is lost. httpx keeps a connection for 5 s, aiohttp for 15, nginx and load
balancers for 60, Go for 90.
"""

LINGER_S = 2.0
"""Seconds in which a caller may still send what is not read, after a response that ends its connection."""

MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes of a request before its body, and as many behind it (trailers) or between two parts of it."""

MAX_HEADERS: Final = 256
"""Header fields of one request, those after its body (trailers) included."""

MAX_STRANGER_CHUNKS: Final = 256
"""Chunks of a stranger's request that are read before it was authenticated."""

TURN_BYTES: Final = 16 * 1024
"""Bytes that are parsed in one turn of the loop."""

STRANGER_BYTES: Final = 1024
"""Bytes of a stranger that are parsed before it is looked at whether there is more to parse."""

HELD_BYTES: Final = 1024 * 1024
"""Bytes that may wait to be parsed; reading pauses meanwhile."""

DRAINED_BYTES: Final = 64 * 1024
"""Bytes of a request that are read and dropped after its response, so that its connection can be used again."""

CERTIFICATE = "hubbub.certificate"
"""Key of an ASGI scope: the peer's certificate (DER), or None."""

LET_IN = "hubbub.let_in"
"""Key of an ASGI scope: the function to call once a request was authenticated."""

CUT = "hubbub.cut"
"""Key of an ASGI scope: the function that closes the connection at once."""

GONE = "hubbub.gone"
"""Key of an ASGI scope: the function that returns a future of the connection's end. Cancel it once it is not needed."""


class RequestRefused(Exception):
    """A request is malformed, or exceeds a bound; `status` is the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Flow(FlowControl):
    """Flow control that reads nothing while bytes wait to be parsed."""

    def __init__(self, transport: asyncio.Transport, holds: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._holds = holds

    def detach(self) -> None:
        """Drop the reference to the connection, which refers to this."""
        self._holds = lambda: False

    def resume_reading(self) -> None:
        """Read on, unless something waits."""
        if not self._holds():
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    """A connection that is closed early while it is a stranger's."""

    strangers: "OrderedDict[HttpConnection, asyncio.TimerHandle]"
    open_to_all: bool
    """Whether nobody needs a credential here: then a connection that was used may be idle like any other."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin as a connection of a stranger (no request was authenticated). Of too many close the oldest idle one."""
        # Lingering: what comes is dropped. Broken: nothing more is parsed. Scheduled: the next turn of the loop parses.
        # Upgrading: the head that was read asks for another protocol.
        self._lingering = self._broken = self._scheduled = self._upgrading = False
        self._held = memoryview(b"")  # what is not parsed yet
        # Beside a body: the bytes since its last part. Drained: bytes of this request after its response.
        self._in_head, self._beside_body, self._fields, self._chunks, self._drained = True, 0, 0, 0, 0
        self._own = transport
        self._served: RequestResponseCycle | None = None
        self._gone: asyncio.Future[None] | None = None
        self._gathered = GatheringTransport(transport, self._linger)
        super().connection_made(cast("asyncio.Transport", self._gathered))
        self.timeout_keep_alive = KEEP_ALIVE_S
        self.flow = self._flow = _Flow(transport, lambda: len(self._held) > 0)
        secured = transport.get_extra_info("ssl_object")
        self._certificate = secured.getpeercert(binary_form=True) if secured else None
        self._start_timeout()
        idle = [each for each in self.strangers if not each.is_answering]
        if len(self.strangers) > MAX_STRANGERS and idle:
            idle[0].cut()

    def data_received(self, data: bytes) -> None:
        """Parse what the caller sends, but nothing after a response that ends the connection.

        A connection on which more than HELD_BYTES wait to be parsed is closed at once.
        """
        if self._lingering:
            return
        self._unset_keepalive_if_required()
        self._held = memoryview(bytes(self._held) + data if self._held else data)
        if len(self._held) > HELD_BYTES:
            self.cut()
        elif not self._scheduled:
            self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and disconnect the request that is served: uvicorn disconnects the last one only."""
        self._lingering, self._held = True, memoryview(b"")
        self.mark_authenticated()
        super().connection_lost(exc)
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        # They refer to the connection, which refers to them: only a garbage collection would free the three.
        self._gathered.detach()
        self._flow.detach()

    def watch_end(self) -> "asyncio.Future[None]":
        """Return a future that is done once the connection has ended, for the request that is served."""
        self._gone = gone = self.loop.create_future()
        if self._own.is_closing():
            gone.set_result(None)
        self.flow.resume_reading()  # else the end would not be seen
        return gone

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Remember the request that is served now, and start it."""
        self._served = cycle
        members = {
            CERTIFICATE: self._certificate,
            LET_IN: self.mark_authenticated,
            CUT: self.cut,
            GONE: self.watch_end,
        }
        super()._start_asgi_task(cycle, partial(_call_app, app, members))

    @property
    def is_answering(self) -> bool:
        """Whether a complete request is being answered."""
        cycle = self._last_request
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    @property
    def _last_request(self) -> RequestResponseCycle | None:
        """The request that was read last; None before the first (uvicorn's type lacks the None)."""
        return self.cycle

    @property
    def is_stranger(self) -> bool:
        """Whether no request was authenticated."""
        return self in self.strangers

    def mark_authenticated(self) -> None:
        """Note that a request was authenticated: the connection is a stranger's no longer.

        What was not parsed of a stranger (`_may_parse`) is parsed in the next turn of the loop.
        """
        timer = self.strangers.pop(self, None)
        if timer is not None:
            timer.cancel()
            self._parse_soon()

    def cut(self) -> None:
        """Close the connection at once: nothing more is read, and it counts among the strangers no longer."""
        self._lingering = True
        self.mark_authenticated()
        self.transport.abort()

    # Parsing

    def _parse(self) -> None:
        """Parse waiting bytes, at most TURN_BYTES in one turn of the loop."""
        self._scheduled = False
        budget = TURN_BYTES
        while self._held and budget > 0 and self._may_parse():
            piece = self._held[: min(budget, STRANGER_BYTES if self.is_stranger else TURN_BYTES)]
            self._held = self._held[len(piece) :]
            budget -= len(piece)
            self._feed_parser(piece)
        if self._held:
            self.flow.pause_reading()
            self._parse_soon()
            return
        last = self._last_request
        if not self.pipeline and (last is None or len(last.body) <= HIGH_WATER_LIMIT):
            self.flow.resume_reading()

    def _may_parse(self) -> bool:
        """Return whether more may be parsed: not while a request waits for another, nor many chunks of a stranger."""
        return not (
            self._lingering
            or self._broken
            or self.pipeline
            or (self._chunks >= MAX_STRANGER_CHUNKS and self.is_stranger)
        )

    def _parse_soon(self) -> None:
        """Parse the waiting bytes in the next turn of the loop, if there are any and they may be parsed."""
        if self._held and not self._scheduled and self._may_parse():
            self._scheduled = True
            self.loop.call_soon(self._parse)

    def _feed_parser(self, piece: memoryview) -> None:
        """Give the parser a piece; ignore an upgrade, refuse a request that is malformed or exceeds a bound."""
        try:
            self._check_size(len(piece))
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:  # its argument says where the body begins in the piece
            self._held = memoryview(
                self._rebuild_head_without_upgrade() + bytes(piece[upgrade.args[0] :]) + bytes(self._held)
            )
        except RequestRefused as refused:
            self._refuse(refused)
        except httptools.HttpParserError as error:
            cause = error.__context__  # what one of the methods below has raised, if the parser called it
            self._refuse(cause if isinstance(cause, RequestRefused) else RequestRefused(400, "this is not HTTP/1.1"))

    def _check_size(self, size: int) -> None:
        """Raise RequestRefused for a head that is too long; close after a response whose request goes on for too long.

        The parser keeps a field until it is whole, and copies it with each piece.
        """
        self._beside_body += size
        if self._beside_body > MAX_HEAD_BYTES + TURN_BYTES:  # the end of a body may be in the same piece
            raise _LONG_HEAD
        if not self._in_head and self.cycle.more_body and self.cycle.response_complete:
            self._drained += size
            if self._drained > DRAINED_BYTES:
                self.transport.close()

    def _rebuild_head_without_upgrade(self) -> bytes:
        """Return the head of a request without its header `upgrade`, and start a new parser for it.

        A server may ignore an upgrade (RFC 9110, section 7.8); the parser would take the body for the other protocol.
        """
        self._upgrading = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        head = [b"%b %b HTTP/1.1" % (self.scope["method"].encode(), self.url)]
        head += [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join((*head, b"", b""))

    # As the parser calls them

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        super().on_message_begin()
        self._fields = self._chunks = self._drained = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a field of a request, and pass it on unless it is of the trailers. Raises RequestRefused."""
        self._fields += 1
        if self._fields > MAX_HEADERS:
            raise RequestRefused(431, f"a request may have {MAX_HEADERS} header fields")
        if self._in_head:
            # White space around a value is no part of it (RFC 9110, section 5.5); the parser takes off what is before.
            name, value = name.lower(), value.rstrip(b" \t")
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the head of a request; what follows is its body. Raises RequestRefused."""
        self._in_head = False
        self.scope["method"] = self.parser.get_method().decode("ascii")
        _check_head(self.parser.get_http_version(), self.scope["method"], self.url, self.headers)
        self._upgrading = self.parser.should_upgrade()
        if not self._upgrading:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count a part of a body, or a chunk, and pass it on."""
        self._chunks += 1
        self._beside_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request is complete. The end of a head that asks for another protocol is none: it is ignored."""
        self._in_head, self._beside_body = True, 0
        if not self._upgrading:  # else this is only the head, which is parsed once more: see `_feed_parser`
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send the rest of a response that uvicorn has finished, and go on parsing."""
        super().on_response_complete()
        self._gathered.flush()
        if self._held:
            self._unset_keepalive_if_required()
        self._parse_soon()

    # The end

    def _refuse(self, refused: RequestRefused) -> None:
        """End the connection with an error response; a request that is being answered gets its own response instead."""
        self._broken, cycle = True, self._last_request
        if cycle is not None and not (cycle.response_complete or cycle.more_body):
            cycle.keep_alive = False
            return
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:  # an error in the middle of a response would be taken for a part of it
                self.cut()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        body = f"{refused}\n".encode()
        phrase = HTTPStatus(refused.status).phrase.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (refused.status, phrase, len(body), body)
        )
        self.transport.close()

    def _linger(self) -> bool:
        """Keep the connection open for LINGER_S to read what the caller still sends; return whether that is needed.

        A connection that is closed at once is reset, and the response may be lost on its way (RFC 9112, section 9.6).
        """
        unread = self._broken or self._held or ((cycle := self._last_request) is not None and cycle.more_body)
        if self._lingering or not unread:
            return False
        self._lingering, self._held = True, memoryview(b"")
        if self._own.can_write_eof():
            with suppress(OSError):  # the caller has left meanwhile, and asyncio has not noticed yet
                self._own.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_S, self._own.close)
        return True

    def _start_timeout(self) -> None:
        """Count the connection among the strangers, for STRANGER_S."""
        self.strangers[self] = asyncio.get_running_loop().call_later(STRANGER_S, self._on_timeout)

    def _on_timeout(self) -> None:
        """Close a stranger that is idle or slow; give one whose request is being answered more time."""
        is_idle = self.timeout_keep_alive_task is not None  # answered, and nothing of a next request has come
        if self.is_answering or (self.open_to_all and is_idle):
            self._start_timeout()
        else:
            self.cut()


_LONG_HEAD: Final = RequestRefused(431, f"what comes before or behind a body may have {MAX_HEAD_BYTES} bytes")


async def _call_app(app: Any, members: dict[str, Any], scope: Any, receive: Any, send: Any) -> None:
    """Call an application; its scope has the members of the connection as well."""
    await app({**scope, **members}, receive, partial(_send_unbuffered, send))


async def _send_unbuffered(send: Any, event: Any) -> None:
    """Send an event of an application; for a response without a length, tell proxies (nginx) not to buffer it."""
    if event["type"] == "http.response.start":
        headers = [*event.get("headers", ())]
        if not any(name.lower() == b"content-length" for name, _ in headers):
            event = {**event, "headers": [*headers, UNBUFFERED]}
    await send(event)


def _check_head(version: str, method: str, url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Raise RequestRefused for a head that is too large, or that a proxy may read otherwise (RFC 9112, 3.2 and 6)."""
    size, hosts, codings = len(url), 0, list[bytes]()
    for name, value in headers:
        size += len(name) + len(value) + 4  # colon, space and line end
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings.append(value.strip().lower())
    if size > MAX_HEAD_BYTES:
        raise _LONG_HEAD
    if version not in ("1.0", "1.1"):
        raise RequestRefused(400, "HTTP/1.1 is spoken here")
    if method == "CONNECT":
        raise RequestRefused(400, "this is no proxy")
    if hosts > 1 or (not hosts and version == "1.1"):
        raise RequestRefused(400, "a request has one Host")
    if codings and version == "1.0":
        raise RequestRefused(400, "HTTP/1.0 has no Transfer-Encoding")
    if codings not in ([], [b"chunked"]):
        raise RequestRefused(400, "the only Transfer-Encoding taken is chunked")


def make_connection_class(*, open_to_all: bool = False) -> type[HttpConnection]:
    """Return a connection class for one server, with its own count of strangers.

    `open_to_all` says that nobody needs a credential there.
    """
    own = {"strangers": OrderedDict[HttpConnection, asyncio.TimerHandle](), "open_to_all": open_to_all}
    return type("HttpConnection", (HttpConnection,), own)
