"""How a message of a host comes over HTTP, and what goes back: JSON, or a stream of events."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog
from anyio import to_thread
from starlette.types import Receive, Scope, Send

from hubbub_http import CUT, GONE
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
from hubbubd.timing.limited import limited

log = structlog.get_logger(__name__)

JSON_AT_ONCE: Final = 16 * 1024
"""Bytes from which on a message is read in a worker thread, one at a time."""

REQUEST_S: Final = 60.0
"""Seconds a host may take to send a message."""

KEEPALIVE_S: Final = 15.0
"""Seconds between comments on a stream where nothing else is said, so that nobody between takes it for dead."""

STALL_S: Final = 60.0
"""Seconds a host may take to read what it was sent."""

PRIME_S: Final = 0.25
"""Seconds after which a request without a response gets a stream that can be resumed, where the host knows how."""

RETRY_MS: Final = 5000
"""Milliseconds after which a host may resume a stream that broke. Some try twice and then wait for good, so that a hub
that was killed must be there again after twice as long."""

PRIMED: Final = "2025-11-25"
"""The first revision whose streams begin with an event without data, so that they can be resumed from the start."""

VERSION: Final = "mcp-protocol-version"
SESSION: Final = "mcp-session-id"
HOLD: Final = "hubbub-hold-s"
"""For how many seconds a request is held while people are asked."""

ARGUMENT: Final = "mcp-param-"
"""What the headers begin with that repeat arguments."""

_ONCE: Final = frozenset({VERSION, SESSION, "mcp-method", "mcp-name"})
"""Headers that may be there once: else each reader could take another one for the right one."""

Headers = tuple[tuple[bytes, bytes], ...]

CLOSE: Final[Headers] = ((b"connection", b"close"),)
"""Sent where the rest of a message is not read, so that nothing else can come over the connection."""

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
    """A response of HTTP instead of one of MCP."""

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
    """The same by name; of several with one name the last."""
    doubled: str | None
    """The name of a field that may be there once, and is there twice."""
    extra_headers: Headers = ()
    """Headers of the response, whatever it is."""
    hold_bytes: Callable[[int], AbstractContextManager[None]] = field(default=lambda _: nullcontext(), init=False)
    """Counts bytes of the response, more than SMALL_BYTES, while they are sent. Raises ResourceExhausted."""
    has_begun: bool = field(default=False, init=False)
    """Whether the response has begun."""

    @classmethod
    def of(cls, scope: Scope, receive: Receive, send: Send) -> "HostHttpRequest":
        """Return the request of an ASGI scope."""
        fields: list[tuple[str, str]] = []
        headers: dict[str, str] = {}
        doubled: str | None = None
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            if name in headers and (name in _ONCE or name.startswith(ARGUMENT)):
                doubled = name
            headers[name] = value.strip()
            fields.append((name, value))
        return cls(scope=scope, receive=receive, send=send, fields=fields, headers=headers, doubled=doubled)

    @property
    def peer(self) -> str:
        """Where the connection comes from, unique among open connections; "" if that is not known."""
        client = self.scope.get("client")
        return f"{client[0]}:{client[1]}" if client else ""

    @property
    def hold_s(self) -> float | None:
        """For how many seconds to hold the request while people are asked; None without the header. Raises Refusal."""
        header = self.headers.get(HOLD)
        if header is None:
            return None
        held_s = bounds.parse_real(header, high=LONGEST_HOLD_S)
        if held_s is None or held_s < 0:
            raise Refusal(INVALID_REQUEST, f"{HOLD} must be a number of seconds from 0 to {LONGEST_HOLD_S}")
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
            return await limited(self._read_body(max_bytes), REQUEST_S)
        except TimeoutError:
            late = Refusal(INVALID_REQUEST, f"no message came within {REQUEST_S:g} s", {"reason": "MALFORMED_REQUEST"})
            raise HttpRefusal(408, late, CLOSE) from None

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
                raise HttpRefusal(413, MessageTooLarge(f"a message may have {max_bytes} bytes", max_bytes), CLOSE)
            if not event.get("more_body", False):
                return b"".join(parts)

    def watch_connection(self) -> asyncio.Future[None]:
        """Return a future that is done once the host has closed the connection; cancel it once it is not needed."""
        return self.scope[GONE]()

    async def answer(self, status: int, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Send the whole response. A response that has begun is only ended: its status was sent already."""
        if self.has_begun:
            await self.end()
            return
        sized = [(b"content-length", str(len(body)).encode()), *headers]
        if body:
            sized.append((b"content-type", b"application/json"))
        if len(body) <= SMALL_BYTES:
            await self.begin(status, sized)
            await self.end(body)
            return
        with self.hold_bytes(len(body)):
            await self.begin(status, sized)
            await self.send({"type": "http.response.body", "body": body, "more_body": True})
            await self.end()  # waits until most of it was read

    async def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send the head of the response."""
        self.has_begun = True
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *self.extra_headers]})

    async def end(self, body: bytes = b"") -> None:
        """End the response, with the last of its body. Raises TimeoutError for a host that does not read it."""
        await limited(self._end(body), STALL_S)

    async def _end(self, body: bytes) -> None:
        await self.send({"type": "http.response.body", "body": body})

    async def cut(self) -> None:
        """Close the connection, in the middle of the response: a host that reads nothing would keep it open."""
        cut: Callable[[], None] = self.scope.get(CUT, lambda: None)
        cut()
        # Wait until the connection is closed.
        while (await self.receive())["type"] != "http.disconnect":
            pass


async def read_message(request: HostHttpRequest, max_bytes: int, reading: anyio.CapacityLimiter) -> Message | None:
    """Return the message of a request; None for no valid message, after its refusal was sent.

    Raises HttpRefusal, ConnectionError.
    """
    content_type = request.headers.get("content-type") or ""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HttpRefusal(415, Refusal(INVALID_REQUEST, "Content-Type must be application/json"), CLOSE)
    body = await request.read_body(max_bytes)
    short = len(body) <= JSON_AT_ONCE
    try:
        return messages.parse(body) if short else await to_thread.run_sync(messages.parse, body, limiter=reading)
    except Refusal as refusal:
        id_ = messages.find_refused_id(body) if short else None
        await request.answer(
            413 if isinstance(refusal, MessageTooLarge) else 400, messages.make_error_response(id_, refusal)
        )
        return None


async def reply(request: HostHttpRequest, task: asyncio.Task[bytes], outbox: HostOutbox, id_: Id) -> None:
    """Send the response of a request without a session, and before it the messages that the request causes.

    The request is cancelled when its host disconnects: there is no other way to cancel it. Raises HubError.
    """
    task.add_done_callback(lambda _: outbox.close())
    gone = request.watch_connection()
    gone.add_done_callback(lambda _: task.cancel())
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
        await stream.pass_on(outbox, until=gone)
        response = _get_response(task, error_id=id_)  # the stream has begun: an error can only be an event of it
        if response is not None:
            await stream.send_messages([response])
        await request.end()
    finally:
        gone.cancel()
        task.cancel()


async def reply_resumably(
    request: HostHttpRequest, task: asyncio.Task[bytes], replay: ReplayStream, revision: str
) -> None:
    """Send the response of a request of a session, and before it the messages that the request causes.

    The request goes on when its connection breaks, and its host can resume the stream. Raises HubError.
    """
    replay.end_with(task)
    outbox, primed = replay.outlet, revision >= PRIMED
    gone = _watch_connection(request, replay, outbox)
    try:
        await outbox.wait_for_news(PRIME_S if primed else KEEPALIVE_S)
        if gone.done():  # the host has got no event to resume from
            replay.forget()
        elif task.done() and replay.is_unused:  # nothing of it is kept
            response = _get_response(task)
            if response is None:
                await request.answer(202)
            else:
                await request.answer(200, response)
        else:
            replay.is_known_to_host = True
            await _send_replay(request, replay, outbox, 1, gone, primed=primed)
    finally:
        gone.cancel()


async def resume_stream(request: HostHttpRequest, replay: ReplayStream, after: int) -> None:
    """Send the messages of a stream after the event `after`: those that have come since, and further ones."""
    outbox, first = replay.reopen(after)
    replay.presence.set_connected(connected=True)
    gone = _watch_connection(request, replay, outbox)
    try:
        await _send_replay(request, replay, outbox, first, gone, primed=False)
    finally:
        gone.cancel()


def _watch_connection(request: HostHttpRequest, replay: ReplayStream, outbox: HostOutbox) -> asyncio.Future[None]:
    """Return a future that is done once the host has closed the connection; that also closes the outbox.

    The future is cancelled by its user once the request has been served.
    """

    def on_gone(gone: asyncio.Future[None]) -> None:
        """Close the outbox, and note that the host is away, unless the request has been served."""
        if not gone.cancelled():
            outbox.close()
            if replay.outlet is outbox:  # else the host has resumed the stream over another connection
                replay.presence.set_connected(connected=False)

    gone = request.watch_connection()
    gone.add_done_callback(on_gone)
    return gone


async def _send_replay(
    request: HostHttpRequest,
    replay: ReplayStream,
    outbox: HostOutbox,
    first: int,
    gone: asyncio.Future[None],
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
    await stream.pass_on(outbox, until=gone)
    if gone.done():
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
        """`event_id` names events by their number on this connection, from 0 on."""
        self._request = request
        self._event_id = event_id
        self._count = 0

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

    async def pass_on(self, outbox: HostOutbox, *, until: asyncio.Future[None]) -> None:
        """Send what is in the outbox until it is closed, or until the future is done, as the host has disconnected."""
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

    async def send_messages(self, waiting: Sequence[bytes]) -> None:
        """Send messages, each as an event; an error in place of a response that exceeds the limit of unread bytes."""
        if not waiting:
            return
        count = self._count
        try:
            await self._send(b"".join(map(self._format_event, waiting)))
        except ResourceExhausted:  # together they are too long: each by itself
            self._count = count
            for message in waiting:
                await self._send_message(message)

    async def _send_message(self, message: bytes) -> None:
        """Send one message as an event. Without room for it, a response becomes an error, and others are dropped."""
        number = self._count
        try:
            await self._send(self._format_event(message))
        except ResourceExhausted as exc:
            log.warning("no room for a message to a host", reason=exc.reason, bytes=len(message), **exc.metadata)
            if (id_ := messages.read_response_id(message)) is not None:
                self._count = number
                await self._send(self._format_event(messages.make_error_response(id_, refusal_from_error(exc))))

    def _format_event(self, message: bytes) -> bytes:
        """Return a message as the next event of the stream."""
        named = b"" if self._event_id is None else f"id: {self._event_id(self._count)}\n".encode()
        self._count += 1
        return b"event: message\n" + named + b"data: " + message + b"\n\n"

    async def _send(self, data: bytes) -> None:
        """Send bytes, and wait until most were read. Raises ConnectionError once the credential has ended."""
        if not current().is_credential_valid():
            raise ConnectionError  # its credential has ended
        with self._request.hold_bytes(len(data)) if len(data) > SMALL_BYTES else nullcontext():
            await limited(self._send_chunk(data), STALL_S)

    async def _send_chunk(self, data: bytes) -> None:
        """Send bytes of the body, and wait until the connection has room again, by a second, empty piece."""
        await self._request.send({"type": "http.response.body", "body": data, "more_body": True})
        await self._request.send({"type": "http.response.body", "more_body": True})
