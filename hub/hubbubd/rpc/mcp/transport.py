"""Reads the message of a host from an HTTP request, and sends the response: JSON, or a stream of events."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog
from anyio import to_thread
from starlette.types import Receive, Scope, Send

from hubbub_http import CUT, WATCH_END
from hubbubd import bounds
from hubbubd.config.sections.mcp import LONGEST_HOLD_S
from hubbubd.core.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from hubbubd.downstream import HostOutbox, ReplayStream
from hubbubd.downstream.calls.call_results import refusal_from_error
from hubbubd.downstream.hosts.unread_bytes import SMALL_BYTES
from hubbubd.downstream.protocol import messages
from hubbubd.downstream.protocol.messages import Id, Message, MessageTooLarge, Refusal
from hubbubd.errors import HubError, ResourceExhausted
from hubbubd.rpc.context import current
from hubbubd.timing.limited import run_with_limit

log = structlog.get_logger(__name__)

MAX_INLINE_JSON_BYTES: Final = 16 * 1024
"""Longer messages are parsed in a worker thread, one at a time."""

REQUEST_S: Final = 60.0
"""Seconds a host may take to send a message."""

KEEPALIVE_S: Final = 15.0
"""Seconds between comments on an idle stream, so that no proxy takes the connection for dead."""

STALL_S: Final = 60.0
"""Seconds a host may take to read what it was sent."""

PRIME_S: Final = 0.25
"""Seconds after which a request without a response gets a resumable stream, if the host's revision has these."""

RETRY_MS: Final = 5000
"""Milliseconds after which a host may resume a stream that broke. Some try twice and then wait for good, so that a hub
that was killed must be there again after twice as long."""

FIRST_PRIMED_REVISION: Final = "2025-11-25"
"""The first revision whose streams begin with an event without data, so that they can be resumed from the start."""

VERSION_HEADER: Final = "mcp-protocol-version"
SESSION_HEADER: Final = "mcp-session-id"
HOLD_HEADER: Final = "hubbub-hold-s"
"""For how many seconds a request is held while people are asked."""

ARGUMENT_PREFIX: Final = "mcp-param-"
"""The start of the names of headers that repeat arguments."""

_SINGLE_HEADERS: Final = frozenset({VERSION_HEADER, SESSION_HEADER, "mcp-method", "mcp-name"})
"""Headers that a request may have only once: else two readers could each use another one."""

Headers = tuple[tuple[bytes, bytes], ...]

CLOSE_HEADERS: Final[Headers] = ((b"connection", b"close"),)
"""Sent where the rest of a message is not read: the connection cannot be used for another request."""

STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
}
"""HTTP statuses of JSON-RPC errors from 2026-07-28 on."""


class HttpRefusal(Exception):
    """Refuses a request with an HTTP status, instead of a response of MCP."""

    def __init__(self, status: int, refusal: Refusal, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(refusal.message)
        self.status = status
        self.refusal = refusal
        self.headers = headers


@dataclass(slots=True, kw_only=True)
class HostHttpRequest:
    """One HTTP request, without its body."""

    scope: Scope
    receive: Receive
    send: Send
    fields: list[tuple[str, str]]
    """The header fields as they came, with names in lower case."""
    headers: dict[str, str]
    """The header values by name; of several with one name the last."""
    duplicate_header: str | None
    """The name of a header of _SINGLE_HEADERS or an argument that the request has twice; None if there is none."""
    extra_headers: Headers = ()
    """Headers that every response to this request gets."""
    hold_bytes: Callable[[int], AbstractContextManager[None]] = field(default=lambda _: nullcontext(), init=False)
    """Counts a chunk of more than SMALL_BYTES as unread while it is sent. Raises ResourceExhausted."""
    has_started: bool = field(default=False, init=False)
    """Whether the response has begun."""

    @classmethod
    def of(cls, scope: Scope, receive: Receive, send: Send) -> "HostHttpRequest":
        """Return the request of an ASGI scope."""
        fields: list[tuple[str, str]] = []
        headers: dict[str, str] = {}
        duplicate_header: str | None = None
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            if name in headers and (name in _SINGLE_HEADERS or name.startswith(ARGUMENT_PREFIX)):
                duplicate_header = name
            headers[name] = value.strip()
            fields.append((name, value))
        return cls(
            scope=scope, receive=receive, send=send, fields=fields, headers=headers, duplicate_header=duplicate_header
        )

    @property
    def peer(self) -> str:
        """Address and port of the host, unique among open connections; "" if they are not known."""
        client = self.scope.get("client")
        return f"{client[0]}:{client[1]}" if client else ""

    @property
    def hold_s(self) -> float | None:
        """For how many seconds to hold the request while people are asked; None without the header. Raises Refusal."""
        header = self.headers.get(HOLD_HEADER)
        if header is None:
            return None
        held_s = bounds.parse_real(header, high=LONGEST_HOLD_S)
        if held_s is None or held_s < 0:
            raise Refusal(INVALID_REQUEST, f"{HOLD_HEADER} must be a number of seconds from 0 to {LONGEST_HOLD_S}")
        return held_s

    def require_accept(self, *kinds: str) -> None:
        """Raise HttpRefusal unless the response may be of each of these kinds; without an Accept any will do."""
        ranges: set[str] = set()
        for media_range in (self.headers.get("accept") or "*/*").split(","):
            ranges.add(media_range.partition(";")[0].strip().lower())
        for kind in kinds:
            if ranges.isdisjoint((kind, f"{kind.partition('/')[0]}/*", "*/*")):
                raise HttpRefusal(406, Refusal(INVALID_REQUEST, f"Accept must have {' and '.join(kinds)}"))

    async def read_body(self, max_bytes: int) -> bytes:
        """Return the body. Raises HttpRefusal for a body too long or too slow, ConnectionError for a lost host."""
        try:
            return await run_with_limit(self._read_body(max_bytes), REQUEST_S)
        except TimeoutError:
            late = Refusal(INVALID_REQUEST, f"no message came within {REQUEST_S:g} s", {"reason": "MALFORMED_REQUEST"})
            raise HttpRefusal(408, late, CLOSE_HEADERS) from None

    async def _read_body(self, max_bytes: int) -> bytes:
        """Return the body. Raises HttpRefusal for a body that is too long, ConnectionError for a lost host."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                raise ConnectionError
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if size > max_bytes:
                raise HttpRefusal(
                    413, MessageTooLarge(f"a message may have {max_bytes} bytes", max_bytes), CLOSE_HEADERS
                )
            if not event.get("more_body", False):
                return b"".join(parts)

    def watch_connection(self) -> asyncio.Future[None]:
        """Return a future that is done once the host has closed the connection; cancel it once it is not needed."""
        return self.scope[WATCH_END]()

    async def answer(self, status: int, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Send the whole response. A response that has begun is only ended: its status was sent already."""
        if self.has_started:
            await self.end()
            return
        all_headers = [(b"content-length", str(len(body)).encode()), *headers]
        if body:
            all_headers.append((b"content-type", b"application/json"))
        if len(body) <= SMALL_BYTES:
            await self.begin(status, all_headers)
            await self.end(body)
            return
        with self.hold_bytes(len(body)):
            await self.begin(status, all_headers)
            await self.send({"type": "http.response.body", "body": body, "more_body": True})
            await self.end()  # waits until most of it was read

    async def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send the head of the response."""
        self.has_started = True
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *self.extra_headers]})

    async def end(self, body: bytes = b"") -> None:
        """End the response, with the last of its body. Raises TimeoutError for a host that does not read it."""
        await run_with_limit(self._end(body), STALL_S)

    async def _end(self, body: bytes) -> None:
        """Send the last part of the body."""
        await self.send({"type": "http.response.body", "body": body})

    async def cut(self) -> None:
        """Close the connection at once, for a host that reads nothing, and wait until it is closed."""
        cut: Callable[[], None] = self.scope.get(CUT, lambda: None)
        cut()
        while (await self.receive())["type"] != "http.disconnect":
            pass


async def read_message(request: HostHttpRequest, max_bytes: int, reading: anyio.CapacityLimiter) -> Message | None:
    """Return the message of a request; None for no valid message, after its refusal was sent.

    Raises HttpRefusal, ConnectionError.
    """
    content_type = request.headers.get("content-type") or ""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HttpRefusal(415, Refusal(INVALID_REQUEST, "Content-Type must be application/json"), CLOSE_HEADERS)
    body = await request.read_body(max_bytes)
    is_short = len(body) <= MAX_INLINE_JSON_BYTES
    try:
        return messages.parse(body) if is_short else await to_thread.run_sync(messages.parse, body, limiter=reading)
    except Refusal as refusal:
        id_ = messages.find_refused_id(body) if is_short else None
        await request.answer(
            413 if isinstance(refusal, MessageTooLarge) else 400, messages.make_error_response(id_, refusal)
        )
        return None


async def reply(request: HostHttpRequest, task: asyncio.Task[bytes], outbox: HostOutbox, id_: Id) -> None:
    """Send the response of a request without a session, and before it the messages that the request causes.

    The request is cancelled when its host disconnects: there is no other way to cancel it. Raises HubError.
    """
    task.add_done_callback(lambda _: outbox.close())
    host_closed = request.watch_connection()
    host_closed.add_done_callback(lambda _: task.cancel())
    stream = HostEventStream(request)
    try:
        await outbox.wait_for_news(KEEPALIVE_S)
        if task.done() and outbox.is_empty:
            response = _get_response(task)
            if response is None:  # it was cancelled: there is nothing to say (MCP, basic/utilities/cancellation)
                await request.answer(202)
            else:
                code = messages.read_error_code(response)
                await request.answer(200 if code is None else STATUS.get(code, 200), response)
            return
        await stream.begin()
        await stream.send_outbox(outbox, until=host_closed)
        response = _get_response(task, error_id=id_)  # the stream has begun: an error can only be an event of it
        if response is not None:
            await stream.send_messages([response])
        await request.end()
    finally:
        host_closed.cancel()
        task.cancel()


async def reply_resumably(
    request: HostHttpRequest, task: asyncio.Task[bytes], replay: ReplayStream, revision: str
) -> None:
    """Send the response of a request of a session, and before it the messages that the request causes.

    The request goes on when its connection breaks, and its host can resume the stream. Raises HubError.
    """
    replay.end_with(task)
    outbox, is_primed = replay.outlet, revision >= FIRST_PRIMED_REVISION
    host_closed = _watch_connection(request, replay, outbox)
    try:
        await outbox.wait_for_news(PRIME_S if is_primed else KEEPALIVE_S)
        if host_closed.done():  # the host has got no event to resume from
            replay.forget()
        elif task.done() and replay.is_unused:  # nothing of it is kept
            response = _get_response(task)
            if response is None:
                await request.answer(202)
            else:
                await request.answer(200, response)
        else:
            replay.is_known_to_host = True
            await _send_replay(request, replay, outbox, 1, host_closed, primed=is_primed)
    finally:
        host_closed.cancel()


async def resume_stream(request: HostHttpRequest, replay: ReplayStream, after: int) -> None:
    """Send the stored messages of a stream after event number `after`, and then each new one."""
    outbox, first = replay.reopen(after)
    replay.presence.set_connected(connected=True)
    host_closed = _watch_connection(request, replay, outbox)
    try:
        await _send_replay(request, replay, outbox, first, host_closed, primed=False)
    finally:
        host_closed.cancel()


def _watch_connection(request: HostHttpRequest, replay: ReplayStream, outbox: HostOutbox) -> asyncio.Future[None]:
    """Return a future that is done once the host has closed the connection; that also closes the outbox.

    The future is cancelled by its user once the request has been served.
    """

    def on_closed(connection_closed: asyncio.Future[None]) -> None:
        """Close the outbox, and note that the host is away, unless the request has been served."""
        if not connection_closed.cancelled():
            outbox.close()
            if replay.outlet is outbox:  # else the host has resumed the stream over another connection
                replay.presence.set_connected(connected=False)

    connection_closed = request.watch_connection()
    connection_closed.add_done_callback(on_closed)
    return connection_closed


async def _send_replay(
    request: HostHttpRequest,
    replay: ReplayStream,
    outbox: HostOutbox,
    first: int,
    host_closed: asyncio.Future[None],
    *,
    primed: bool,
) -> None:
    """Send a stream that can be resumed, from its event number `first` on, until it ends or the host closes it.

    With `primed`, an event without data comes first. It has an id, so that the host can resume before the first event.
    """
    stream = HostEventStream(request, lambda number: replay.event_id(first + number))
    await stream.begin()
    if primed:
        await stream.prime(replay.event_id(first - 1))
    await stream.send_outbox(outbox, until=host_closed)
    if host_closed.done():
        return
    await request.end()
    if outbox is replay.outlet and not outbox.overrun:
        replay.note_delivered()


def _get_response(task: asyncio.Task[bytes], error_id: Id | None = None) -> bytes | None:
    """Return the response of a request; None if it was cancelled or has not ended, as neither gets a response.

    Raises HubError for a request that was cut short. With `error_id` that error is the response, under this id.
    """
    if not task.done() or task.cancelled():
        return None
    error = task.exception()
    if isinstance(error, HubError) and error_id is not None:
        return messages.make_error_response(error_id, refusal_from_error(error))
    return task.result()


class HostEventStream:
    """Server-sent events as the response of a request."""

    def __init__(self, request: HostHttpRequest, event_id: Callable[[int], str] | None = None) -> None:
        """`event_id` returns the id of an event by its number on this connection, from 0 on; None sends no ids."""
        self._request = request
        self._event_id = event_id
        self._event_count = 0

    async def begin(self) -> None:
        """Send the head of the response."""
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-cache, no-transform"),
        ]
        await self._request.begin(200, headers)

    async def prime(self, event_id: str) -> None:
        """Send an event without data: its id is where to resume."""
        await self._send(f"id: {event_id}\nretry: {RETRY_MS}\ndata:\n\n".encode())

    async def send_outbox(self, outbox: HostOutbox, *, until: asyncio.Future[None]) -> None:
        """Send messages of the outbox as they come, until the outbox is closed, or the future `until` is done."""
        until.add_done_callback(lambda _: outbox.close())
        while True:
            if not await outbox.wait_for_news(KEEPALIVE_S):
                await self._send(b": \n\n")  # a comment: a sign of life
                continue
            if until.done():
                return
            await self.send_messages(outbox.take_all())
            if outbox.closed and outbox.is_empty:
                return

    async def send_messages(self, queued: Sequence[bytes]) -> None:
        """Send messages, each as an event. Over the limit of unread bytes, send them one by one (`_send_message`)."""
        if not queued:
            return
        first_number = self._event_count
        try:
            await self._send(b"".join(map(self._format_event, queued)))
        except ResourceExhausted:  # together they exceed the limit
            self._event_count = first_number
            for message in queued:
                await self._send_message(message)

    async def _send_message(self, message: bytes) -> None:
        """Send a message as an event. Over the limit of unread bytes, drop it; a response is replaced by an error."""
        number = self._event_count
        try:
            await self._send(self._format_event(message))
        except ResourceExhausted as exc:
            log.warning("no room for a message to a host", reason=exc.reason, bytes=len(message), **exc.metadata)
            if (id_ := messages.read_response_id(message)) is not None:
                self._event_count = number
                await self._send(self._format_event(messages.make_error_response(id_, refusal_from_error(exc))))

    def _format_event(self, message: bytes) -> bytes:
        """Return a message as the next event of the stream."""
        id_line = b"" if self._event_id is None else f"id: {self._event_id(self._event_count)}\n".encode()
        self._event_count += 1
        return b"event: message\n" + id_line + b"data: " + message + b"\n\n"

    async def _send(self, data: bytes) -> None:
        """Send bytes, and wait until most were read. Raises ConnectionError once the credential has ended."""
        if not current().is_credential_valid():
            raise ConnectionError  # its credential has ended
        with self._request.hold_bytes(len(data)) if len(data) > SMALL_BYTES else nullcontext():
            await run_with_limit(self._send_chunk(data), STALL_S)

    async def _send_chunk(self, data: bytes) -> None:
        """Send bytes of the body, then an empty chunk, whose sending waits until the connection has room again."""
        await self._request.send({"type": "http.response.body", "body": data, "more_body": True})
        await self._request.send({"type": "http.response.body", "more_body": True})
