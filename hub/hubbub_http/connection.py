"""One HTTP connection, with bounds for all clients, and narrower ones for unauthenticated ones.

A connection is a stranger's until one of its requests was authenticated. Only MAX_STRANGERS such connections stay open,
the newest, and each for STRANGER_S, unless a request of it is being answered (against slow-loris attacks).

Parsing takes time of the event loop, which serves all clients. So bytes are parsed in pieces, no more than TURN_BYTES
in one turn of the loop, and no piece while a request waits behind another (pipelining, RFC 9112, section 9.3.2). The
parser is llhttp, in C: its callbacks cost the time, one per header and per chunk.
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
"""Seconds that a stranger's connection may take to send a request, or be idle."""

UNBUFFERED: Final = (b"x-accel-buffering", b"no")
"""Header of a response that nginx must not buffer, whatever `proxy_buffering` says."""

KEEP_ALIVE_S: Final = 180
"""Seconds that an idle connection stays open after a response: longer than clients keep connections.

A request that meets the end of its connection is lost. httpx keeps a connection for 5 s, aiohttp for 15, nginx and load
balancers for 60, Go for 90.
"""

LINGER_S = 2.0
"""Seconds for which bytes of a client are still read and dropped after a response that ends its connection."""

MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes of a request before its body; as many behind the body (trailers), and between two parts of it."""

MAX_HEADERS: Final = 256
"""Header fields of one request, those after its body (trailers) included."""

MAX_STRANGER_CHUNKS: Final = 256
"""Chunks of a stranger's request that are read before it was authenticated."""

TURN_BYTES: Final = 16 * 1024
"""Bytes that are parsed in one turn of the loop."""

STRANGER_BYTES: Final = 1024
"""Bytes of a stranger that are parsed at once; then `_may_parse` decides about more."""

MAX_UNPARSED_BYTES: Final = 1024 * 1024
"""Bytes that may wait to be parsed; reading pauses meanwhile."""

DRAINED_BYTES: Final = 64 * 1024
"""Bytes of a request that are read and dropped after its response, so that its connection can be used again."""

CERTIFICATE = "hubbub.certificate"
"""Key of an ASGI scope: the peer's certificate (DER), or None."""

MARK_AUTHENTICATED = "hubbub.let_in"
"""Key of an ASGI scope: `mark_authenticated`, to be called once a request was authenticated."""

CUT = "hubbub.cut"
"""Key of an ASGI scope: the function that closes the connection at once."""

WATCH_END = "hubbub.gone"
"""Key of an ASGI scope: `watch_end`, which returns a future of the connection's end. Cancel an unneeded future."""


class RequestRefused(Exception):
    """A request is malformed, or exceeds a bound; `status` is the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Flow(FlowControl):
    """Flow control that reads nothing while bytes wait to be parsed: while `has_unparsed` returns True."""

    def __init__(self, transport: asyncio.Transport, has_unparsed: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._has_unparsed = has_unparsed

    def detach(self) -> None:
        """Drop the callback, which refers to the connection, and so break a cycle of references."""
        self._has_unparsed = lambda: False

    def resume_reading(self) -> None:
        """Read on, unless bytes wait to be parsed."""
        if not self._has_unparsed():
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    """A connection with bounds. While it is a stranger's, it may be closed early."""

    strangers: "OrderedDict[HttpConnection, asyncio.TimerHandle]"
    open_to_all: bool
    """Whether no client needs a credential here: a used connection may then be idle like an authenticated one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start as a stranger's connection. If there are too many of these, close the oldest idle one."""
        # Lingering: received bytes are dropped. Broken: no more bytes are parsed. Scheduled: the next turn of the loop
        # parses. Upgrading: the head that was read asks for another protocol.
        self._lingering = self._broken = self._scheduled = self._upgrading = False
        self._unparsed = memoryview(b"")  # received, and not parsed yet
        # Beside a body: bytes since the last part of a body. Drained: bytes of this request after its response.
        self._in_head, self._beside_bytes, self._field_count, self._chunk_count, self._drained_bytes = True, 0, 0, 0, 0
        self._socket_transport = transport
        self._served_cycle: RequestResponseCycle | None = None
        self._end_future: asyncio.Future[None] | None = None
        self._gathering_transport = GatheringTransport(transport, self._linger)
        super().connection_made(cast("asyncio.Transport", self._gathering_transport))
        self.timeout_keep_alive = KEEP_ALIVE_S
        self.flow = self._flow = _Flow(transport, lambda: len(self._unparsed) > 0)
        tls = transport.get_extra_info("ssl_object")
        self._certificate = tls.getpeercert(binary_form=True) if tls else None
        self._start_timeout()
        idle = [each for each in self.strangers if not each.is_answering]
        if len(self.strangers) > MAX_STRANGERS and idle:
            idle[0].cut()

    def data_received(self, data: bytes) -> None:
        """Parse what the client sends; drop it after a response that ends the connection.

        A connection on which more than MAX_UNPARSED_BYTES wait to be parsed is closed at once.
        """
        if self._lingering:
            return
        self._unset_keepalive_if_required()
        self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
        if len(self._unparsed) > MAX_UNPARSED_BYTES:
            self.cut()
        elif not self._scheduled:
            self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what waits, and disconnect the request that is served: uvicorn disconnects only the last one read."""
        self._lingering, self._unparsed = True, memoryview(b"")
        self.mark_authenticated()
        super().connection_lost(exc)
        if self._served_cycle is not None and not self._served_cycle.response_complete:
            self._served_cycle.disconnected = True
            self._served_cycle.message_event.set()
        if self._end_future is not None and not self._end_future.done():
            self._end_future.set_result(None)
        # They and the connection refer to each other: without this only a garbage collection would free them.
        self._gathering_transport.detach()
        self._flow.detach()

    def watch_end(self) -> "asyncio.Future[None]":
        """Return a future that is done once the connection has ended; there is one at a time."""
        self._end_future = end = self.loop.create_future()
        if self._socket_transport.is_closing():
            end.set_result(None)
        self.flow.resume_reading()  # the end is noticed only while reading
        return end

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Note the request that is served now, and start its task; its scope gets the keys of this module."""
        self._served_cycle = cycle
        members = {
            CERTIFICATE: self._certificate,
            MARK_AUTHENTICATED: self.mark_authenticated,
            CUT: self.cut,
            WATCH_END: self.watch_end,
        }
        super()._start_asgi_task(cycle, partial(_call_app, app, members))

    @property
    def is_answering(self) -> bool:
        """Whether a request has come completely, and its response is not complete."""
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
        """Note that a request was authenticated: the connection is no stranger's any more.

        Bytes that `_may_parse` has held back are parsed in the next turn of the loop.
        """
        timer = self.strangers.pop(self, None)
        if timer is not None:
            timer.cancel()
            self._parse_soon()

    def cut(self) -> None:
        """Close the connection at once, without reading more, and remove it from the strangers."""
        self._lingering = True
        self.mark_authenticated()
        self.transport.abort()

    # Parsing

    def _parse(self) -> None:
        """Parse waiting bytes, at most TURN_BYTES; schedule the rest, and pause reading until it is parsed."""
        self._scheduled = False
        budget = TURN_BYTES
        while self._unparsed and budget > 0 and self._may_parse():
            piece = self._unparsed[: min(budget, STRANGER_BYTES if self.is_stranger else TURN_BYTES)]
            self._unparsed = self._unparsed[len(piece) :]
            budget -= len(piece)
            self._feed_parser(piece)
        if self._unparsed:
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
            or (self._chunk_count >= MAX_STRANGER_CHUNKS and self.is_stranger)
        )

    def _parse_soon(self) -> None:
        """Parse the waiting bytes in the next turn of the loop, if there are any and they may be parsed."""
        if self._unparsed and not self._scheduled and self._may_parse():
            self._scheduled = True
            self.loop.call_soon(self._parse)

    def _feed_parser(self, piece: memoryview) -> None:
        """Feed the parser with a piece; ignore an upgrade, refuse a request that is malformed or exceeds a bound."""
        try:
            self._check_size(len(piece))
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:  # its argument says where the body begins in the piece
            self._unparsed = memoryview(
                self._rebuild_head_without_upgrade() + bytes(piece[upgrade.args[0] :]) + bytes(self._unparsed)
            )
        except RequestRefused as refusal:
            self._refuse(refusal)
        except httptools.HttpParserError as error:
            cause = error.__context__  # the error of a callback below, if one has raised
            self._refuse(cause if isinstance(cause, RequestRefused) else RequestRefused(400, "this is not HTTP/1.1"))

    def _check_size(self, size_bytes: int) -> None:
        """Raise RequestRefused for too long a head; close if a request goes on for too long after its response.

        The bound on a head is needed since the parser stores a field until it is whole, and copies it with each piece.
        """
        self._beside_bytes += size_bytes
        if self._beside_bytes > MAX_HEAD_BYTES + TURN_BYTES:  # the end of a body may be in the same piece
            raise _LONG_HEAD
        if not self._in_head and self.cycle.more_body and self.cycle.response_complete:
            self._drained_bytes += size_bytes
            if self._drained_bytes > DRAINED_BYTES:
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
        """Reset the counts for a new request."""
        super().on_message_begin()
        self._field_count = self._chunk_count = self._drained_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header field, and store it unless it is a trailer. Raises RequestRefused for too many."""
        self._field_count += 1
        if self._field_count > MAX_HEADERS:
            raise RequestRefused(431, f"a request may have {MAX_HEADERS} header fields")
        if self._in_head:
            # White space around a value is no part of it (RFC 9110, section 5.5); the parser removes what is before.
            name, value = name.lower(), value.rstrip(b" \t")
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the head of a request, and start the request unless it asks for an upgrade. Raises RequestRefused."""
        self._in_head = False
        self.scope["method"] = self.parser.get_method().decode("ascii")
        _check_head(self.parser.get_http_version(), self.scope["method"], self.url, self.headers)
        self._upgrading = self.parser.should_upgrade()
        if not self._upgrading:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count a part of a body (a piece or a chunk), and pass it on."""
        self._chunk_count += 1
        self._beside_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request is complete; ignore this at the end of a head that asks for another protocol."""
        self._in_head, self._beside_bytes = True, 0
        if not self._upgrading:  # such a head is parsed once more: see `_feed_parser`
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send what is queued of a complete response, and go on parsing."""
        super().on_response_complete()
        self._gathering_transport.flush()
        if self._unparsed:
            self._unset_keepalive_if_required()
        self._parse_soon()

    # The end

    def _refuse(self, refusal: RequestRefused) -> None:
        """End the connection: with an error response, or after the response to a request that is being answered."""
        self._broken, cycle = True, self._last_request
        if cycle is not None and not (cycle.response_complete or cycle.more_body):
            cycle.keep_alive = False
            return
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:  # a client would take an error response for a part of it
                self.cut()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        body = f"{refusal}\n".encode()
        phrase = HTTPStatus(refusal.status).phrase.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (refusal.status, phrase, len(body), body)
        )
        self.transport.close()

    def _linger(self) -> bool:
        """Stop sending, but read for LINGER_S what the client still sends; return False if that is not needed.

        A connection that is closed at once is reset, and the response may be lost on its way (RFC 9112, section 9.6).
        """
        unread = self._broken or self._unparsed or ((cycle := self._last_request) is not None and cycle.more_body)
        if self._lingering or not unread:
            return False
        self._lingering, self._unparsed = True, memoryview(b"")
        if self._socket_transport.can_write_eof():
            with suppress(OSError):  # the client has closed, and asyncio has not noticed yet
                self._socket_transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_S, self._socket_transport.close)
        return True

    def _start_timeout(self) -> None:
        """Count the connection among the strangers, for STRANGER_S."""
        self.strangers[self] = asyncio.get_running_loop().call_later(STRANGER_S, self._on_timeout)

    def _on_timeout(self) -> None:
        """Close a stranger's idle or slow connection; give it more time while a request is being answered."""
        is_idle = self.timeout_keep_alive_task is not None  # it runs from a response to the next request
        if self.is_answering or (self.open_to_all and is_idle):
            self._start_timeout()
        else:
            self.cut()


_LONG_HEAD: Final = RequestRefused(431, f"what comes before or behind a body may have {MAX_HEAD_BYTES} bytes")


async def _call_app(app: Any, members: dict[str, Any], scope: Any, receive: Any, send: Any) -> None:
    """Call an ASGI application with a scope that has the members of the connection, too."""
    await app({**scope, **members}, receive, partial(_send_unbuffered, send))


async def _send_unbuffered(send: Any, event: Any) -> None:
    """Send an event of an application; for a response without a length, tell proxies (nginx) not to buffer it."""
    if event["type"] == "http.response.start":
        headers = [*event.get("headers", ())]
        if not any(name.lower() == b"content-length" for name, _ in headers):
            event = {**event, "headers": [*headers, UNBUFFERED]}
    await send(event)


def _check_head(version: str, method: str, url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Raise RequestRefused for a head that is too large, or that a proxy may read differently (RFC 9112, 3.2 and 6)."""
    size, host_count, codings = len(url), 0, list[bytes]()
    for name, value in headers:
        size += len(name) + len(value) + 4  # colon, space and line end
        if name == b"host":
            host_count += 1
        elif name == b"transfer-encoding":
            codings.append(value.strip().lower())
    if size > MAX_HEAD_BYTES:
        raise _LONG_HEAD
    if version not in ("1.0", "1.1"):
        raise RequestRefused(400, "HTTP/1.1 is spoken here")
    if method == "CONNECT":
        raise RequestRefused(400, "this is no proxy")
    if host_count > 1 or (not host_count and version == "1.1"):
        raise RequestRefused(400, "a request has one Host")
    if codings and version == "1.0":
        raise RequestRefused(400, "HTTP/1.0 has no Transfer-Encoding")
    if codings not in ([], [b"chunked"]):
        raise RequestRefused(400, "the only Transfer-Encoding taken is chunked")


def make_connection_class(*, open_to_all: bool = False) -> type[HttpConnection]:
    """Return a connection class for one server, with a count of strangers of its own.

    `open_to_all`: no client of the server needs a credential.
    """
    attributes = {"strangers": OrderedDict[HttpConnection, asyncio.TimerHandle](), "open_to_all": open_to_all}
    return type("HttpConnection", (HttpConnection,), attributes)
