"""What lies between a hub and a server over HTTP, with faults: a proxy whose lines do as a test says.

A line leads to one server and is reached under a path of its own. Its plan says, for each kind of exchange, which fault
befalls the first one, the second one, and so on; `None`, and whatever the plan does not name, passes unharmed. The kind
of an exchange is the JSON-RPC method of its POST, `answer` for the answer to something the server asked, or its HTTP
method.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import h11

DELAY_S = 0.3
TOGETHER_S = 0.1
"""How long an event may wait for the one that is to overtake it."""

CHUNK = 65536
CRUMB = 7


class Fault(StrEnum):
    """What befalls an exchange."""

    DELAY = "its request is held up for a moment"
    CUT_BEFORE = "the connection breaks before the server sees it"
    CUT_AFTER = "the server has done it, and the connection breaks before its response"
    REFUSE = "something in between refuses it with HTTP 502"
    TWICE = "its request reaches the server twice"
    STALL_BEFORE = "its request never reaches the server"
    STALL_AFTER = "its response never comes"
    CUT_EVENT = "the connection breaks in the middle of the first event"
    CUT_STREAM = "the connection breaks after the first event"
    END_EVENT = "the stream ends properly in the middle of the first event"
    END_STREAM = "the stream ends properly after the first event"
    HALF_CLOSE = "the server's side is closed after the first event, the other stays open"
    CLIENT_HALF_CLOSE = "the hub's side is closed once the request is through, the other stays open"
    STALL_EVENT = "nothing more comes from the middle of the first event on"
    DOUBLE_EVENTS = "each event comes twice"
    SWAP_EVENTS = "events that come together change places"
    TRICKLE = "the response comes in crumbs"


ENDLESS = {Fault.STALL_BEFORE, Fault.STALL_AFTER, Fault.STALL_EVENT}
"""Those that only a time limit ends."""

Plan = Mapping[str, Sequence[Fault | None]]


class Cut(Exception):
    """The connection to the hub breaks here."""


@dataclass
class Line:
    """The way to one server. `answers` are those that it took and whose receipt came back to the hub."""

    server: str
    plan: Plan = field(default_factory=dict[str, Sequence[Fault | None]])
    seen: dict[str, int] = field(default_factory=dict[str, int])
    struck: list[tuple[str, Fault]] = field(default_factory=list[tuple[str, Fault]])
    reached: list[Any] = field(default_factory=list[Any])
    """The answers that reached the server, as often as they did."""
    answers: list[Any] = field(default_factory=list[Any])

    def next(self, kind: str) -> Fault | None:
        """The fault of the next exchange of a kind."""
        number = self.seen[kind] = self.seen.get(kind, 0) + 1
        planned = self.plan.get(kind, ())
        fault = planned[number - 1] if number <= len(planned) else None
        if fault is not None:
            self.struck.append((kind, fault))
        return fault

    def heal(self) -> None:
        """From now on nothing goes wrong."""
        self.plan = {}


class Proxy:
    """Listens for the hub; `lines` by the first part of the path."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.origin = ""

    def line(self, name: str, server: str, plan: Plan | None = None) -> str:
        """A new way to `server`, an origin with a path; the URL under which the hub reaches it."""
        self.lines[name] = Line(server, plan or {})
        return f"{self.origin}/{name}{urlsplit(server).path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the hub."""
        try:
            with suppress(Cut, ConnectionError, h11.RemoteProtocolError):
                await _Side(h11.Connection(h11.SERVER), reader, writer).serve(self._exchange)
        finally:
            # What the system still holds back is not sent: a broken connection looks broken.
            writer.transport.abort()

    async def _exchange(self, hub: "_Side", head: h11.Request, body: bytes) -> None:
        name, _, _ = head.target.decode().removeprefix("/").partition("/")
        line = self.lines.get(name)
        if line is None:
            raise Cut  # a client of a test beside this one, which looks for a hub that had this port before
        kind, message = _kind(head, body)
        fault = line.next(kind)
        match fault:
            case Fault.CUT_BEFORE:
                raise Cut
            case Fault.STALL_BEFORE:
                await hub.until_closed()
            case Fault.REFUSE:
                return await hub.respond(502, b"no way through")
            case Fault.DELAY:
                await asyncio.sleep(DELAY_S)
            case _:
                pass
        async with _to(line.server) as server:
            await server.request(head, body, urlsplit(line.server).path)
            if fault is Fault.TWICE:
                async with _to(line.server) as again:
                    await again.request(head, body, urlsplit(line.server).path)
                    return await self._respond(line, hub, again, fault, message)
            if fault is Fault.CLIENT_HALF_CLOSE:
                server.writer.write_eof()
            return await self._respond(line, hub, server, fault, message)

    async def _respond(self, line: Line, hub: "_Side", server: "_Side", fault: Fault | None, message: Any) -> None:
        response = await server.head()
        answered = "method" not in message and response.status_code < 300
        if answered:
            line.reached.append(message.get("result"))
        if fault is Fault.CUT_AFTER:
            raise Cut
        if fault is Fault.STALL_AFTER:
            await hub.until_closed()
        await hub.begin(response)
        await hub.gone_or(
            _pass(hub, server, fault, streams=b"text/event-stream" in dict(response.headers).get(b"content-type", b""))
        )
        if answered:
            line.answers.append(message.get("result"))


async def _pass(hub: "_Side", server: "_Side", fault: Fault | None, *, streams: bool) -> None:
    """Passes a body on, event by event; one that is no stream is one event."""
    pieces = _events(server.body()) if streams else _whole(server.body())
    if fault is Fault.SWAP_EVENTS:
        pieces = _swapped(pieces)
    async for piece in pieces:
        half = piece[: len(piece) // 2]
        match fault:
            case Fault.CUT_EVENT:
                await hub.send(half)
                await asyncio.sleep(TOGETHER_S)
                raise Cut
            case Fault.END_EVENT:
                await hub.send(half)
                break
            case Fault.STALL_EVENT:
                await hub.send(half)
                await asyncio.Event().wait()
            case Fault.DOUBLE_EVENTS:
                await hub.send(piece + piece)
            case Fault.TRICKLE:
                for at in range(0, len(piece), CRUMB):
                    await hub.send(piece[at : at + CRUMB])
            case _:
                await hub.send(piece)
        if fault is Fault.END_STREAM:
            break
        if fault is Fault.CUT_STREAM:
            await asyncio.sleep(TOGETHER_S)
            raise Cut
        if fault is Fault.HALF_CLOSE:
            hub.writer.write_eof()
            await asyncio.Event().wait()
    await hub.end()


async def _whole(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if whole := b"".join([chunk async for chunk in chunks]):
        yield whole


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole events, however the bytes come; a stream may end within one."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk.replace(b"\r\n", b"\n")).split(b"\n\n")
        for event in whole:
            yield event + b"\n\n"
    if rest:
        yield rest


async def _swapped(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Events in pairs, the second one first, where it comes soon enough."""
    following = asyncio.ensure_future(anext(events, None))
    try:
        while (event := await following) is not None:
            following = asyncio.ensure_future(anext(events, None))
            await asyncio.wait([following], timeout=TOGETHER_S)
            if following.done() and (overtaking := following.result()) is not None:
                yield overtaking
                following = asyncio.ensure_future(anext(events, None))
            yield event
    finally:
        following.cancel()


def _kind(head: h11.Request, body: bytes) -> tuple[str, Any]:
    message: Any = json.loads(body) if body else {"method": head.method.decode()}
    return message.get("method", "answer"), message


@dataclass
class _Side:
    """A connection on either side of the proxy."""

    http: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def serve(self, exchange: Callable[["_Side", h11.Request, bytes], Any]) -> None:
        """Takes one request after the other."""
        while isinstance(head := await self._next(), h11.Request):
            body = b"".join([chunk async for chunk in self.body()])
            await exchange(self, head, body)
            if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
                return
            self.http.start_next_cycle()

    async def request(self, head: h11.Request, body: bytes, path: str) -> None:
        """Sends a request as it came, to another place."""
        headers = [(name, value) for name, value in head.headers if name not in (b"host", b"connection")]
        host = ":".join(map(str, self.writer.get_extra_info("peername")[:2]))
        await self._send(
            h11.Request(method=head.method, target=path, headers=[("Host", host), ("Connection", "close"), *headers])
        )
        if body:
            await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def head(self) -> h11.Response:
        """The head of the response. Raises Cut when there is none."""
        if not isinstance(response := await self._next(), h11.Response):
            raise Cut
        return response

    async def body(self) -> AsyncIterator[bytes]:
        """The body of what comes. Raises Cut when it breaks off."""
        while isinstance(data := await self._next(), h11.Data):
            yield bytes(data.data)
        if not isinstance(data, h11.EndOfMessage):
            raise Cut

    async def begin(self, response: h11.Response) -> None:
        """Sends the head of a response on; its body will be in chunks."""
        framing = (b"transfer-encoding", b"content-length", b"connection")
        headers = [(name, value) for name, value in response.headers if name not in framing]
        await self._send(h11.Response(status_code=response.status_code, headers=headers, reason=response.reason))

    async def respond(self, status: int, body: bytes) -> None:
        """A whole response of the proxy's own."""
        await self._send(h11.Response(status_code=status, headers=[("Content-Length", str(len(body)))]))
        await self.send(body)
        await self.end()

    async def send(self, data: bytes) -> None:
        """A part of a body."""
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        """The end of a body."""
        await self._send(h11.EndOfMessage())

    async def until_closed(self) -> None:
        """Waits until the other side has closed; raises Cut then."""
        await self.reader.read()
        raise Cut

    async def gone_or(self, passing: Any) -> None:
        """Passes on, until the other side has closed."""
        work, closed = asyncio.ensure_future(passing), asyncio.ensure_future(self._closed())
        try:
            await asyncio.wait([work, closed], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise Cut
        finally:
            for each in (work, closed):
                each.cancel()
            await asyncio.wait([work, closed])

    async def _closed(self) -> None:
        # Nothing is said by the hub while it waits for a response.
        while not self.reader.at_eof():
            await asyncio.sleep(0.02)

    async def _send(self, event: h11.Event) -> None:
        data = self.http.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def _next(self) -> h11.Event | type[h11.Event]:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.reader.read(CHUNK))
        return event


@asynccontextmanager
async def _to(server: str) -> AsyncIterator[_Side]:
    place = urlsplit(server)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        yield _Side(h11.Connection(h11.CLIENT), reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy that listens on loopback until the end of the block."""
    served = Proxy()
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await served.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the block
        finally:
            connections.discard(task)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    served.origin = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        listening.close()
        for each in [*connections]:
            each.cancel()
        if connections:
            await asyncio.wait(connections)
