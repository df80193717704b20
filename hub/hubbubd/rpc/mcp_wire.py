"""How a message of a host comes over HTTP, and what goes back: JSON, or a stream of events."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.types import Receive, Scope, Send

from hubbubd import payload
from hubbubd.core.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from hubbubd.downstream import Outlet
from hubbubd.downstream.messages import Refusal

REQUEST_S: Final = 60.0
"""Seconds a host may take to send a message."""

KEEPALIVE_S: Final = 15.0
"""Seconds between comments on a stream where nothing else is said, so that nobody between takes it for dead."""

STALL_S: Final = 60.0
"""Seconds a host may take to read what it was sent."""

VERSION: Final = b"mcp-protocol-version"
SESSION: Final = b"mcp-session-id"
ARGUMENT: Final = b"mcp-param-"
"""What the headers begin with that repeat arguments."""

_ONCE: Final = (VERSION, SESSION, b"mcp-method", b"mcp-name")
"""Headers that may be there once: else each reader could take another one for the right one."""

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


class Answered(Exception):
    """A response of HTTP instead of one of MCP."""

    def __init__(self, status: int, refusal: Refusal, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(refusal.message)
        self.status = status
        self.refusal = refusal
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Received:
    """One HTTP request, without its body."""

    scope: Scope
    receive: Receive
    send: Send
    headers: dict[bytes, bytes]
    doubled: bytes | None

    @classmethod
    def of(cls, scope: Scope, receive: Receive, send: Send) -> "Received":
        headers: dict[bytes, bytes] = {}
        doubled: bytes | None = None
        for key, value in scope["headers"]:
            if key in headers and (key in _ONCE or key.startswith(ARGUMENT)):
                doubled = key
            headers[key] = value
        return cls(scope, receive, send, headers, doubled)

    def text(self, key: bytes) -> str | None:
        value = self.headers.get(key)
        return None if value is None else value.decode("latin-1").strip()

    def require_accept(self, *kinds: str) -> None:
        """Raise Answered unless the response may be of each of these kinds. Without the header it may be of any."""
        ranges = [each.partition(";")[0].strip().lower() for each in (self.text(b"accept") or "*/*").split(",")]
        for kind in kinds:
            if not {kind, f"{kind.partition('/')[0]}/*", "*/*"} & set(ranges):
                raise Answered(406, Refusal(INVALID_REQUEST, f"Accept must have {' and '.join(kinds)}"))

    async def body(self, most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        async with asyncio.timeout(REQUEST_S):
            while True:
                event = await self.receive()
                if event["type"] == "http.disconnect":
                    raise ConnectionError
                parts.append(event.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise Answered(413, Refusal(INVALID_REQUEST, f"a message may have {most} bytes"))
                if not event.get("more_body", False):
                    return b"".join(parts)

    async def gone(self) -> None:
        """Wait until the host has closed the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        sized = [(b"content-length", str(len(body)).encode()), *headers]
        if body:
            sized.append((b"content-type", b"application/json"))
        await self.send({"type": "http.response.start", "status": status, "headers": sized})
        await self.send({"type": "http.response.body", "body": body})


async def reply(request: Received, task: asyncio.Task[bytes], outlet: Outlet, *, stateless: bool) -> None:
    """Send the response of a request, and before it what the request says meanwhile."""
    task.add_done_callback(lambda _: outlet.close())
    gone = asyncio.create_task(request.gone())
    if stateless:  # there is no other way to cancel a request
        gone.add_done_callback(lambda _: task.cancel())
    stream = Stream(request)
    try:
        await outlet.news(KEEPALIVE_S)
        if task.done() and outlet.empty:
            response = _outcome(task)
            if response is None:
                await request.answer(202)
            else:
                await request.answer(_status(response) if stateless else 200, response)
            return
        await stream.begin()
        await stream.pass_on(outlet, until=gone)
        if (response := _outcome(task)) is not None:
            await stream.say([response])
        await stream.end()
    finally:
        gone.cancel()
        if stateless:
            task.cancel()


def _outcome(task: asyncio.Task[bytes]) -> bytes | None:
    """Return the response of a request; None if it was cancelled: then there is none."""
    return task.result() if task.done() and not task.cancelled() else None


def _status(response: bytes) -> int:
    if b'"error":' not in response[-4096:] and b'"error":' not in response[:256]:
        return 200
    error = payload.loads(response).get("error")
    return STATUS.get(error["code"], 200) if error else 200


class Stream:
    """Server-sent events as the response of a request."""

    def __init__(self, request: Received) -> None:
        self._request = request

    async def begin(self) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
        ]
        await self._request.send({"type": "http.response.start", "status": 200, "headers": headers})

    async def pass_on(self, outlet: Outlet, *, until: asyncio.Task[None]) -> None:
        """Send what the outlet has, until it is closed or the host is gone."""
        until.add_done_callback(lambda _: outlet.close())
        while True:
            if not await outlet.news(KEEPALIVE_S):
                await self._send(b": \n\n")
                continue
            await self.say(outlet.take())
            if outlet.closed:
                return

    async def say(self, said: Sequence[bytes]) -> None:
        """Send messages, each as an event."""
        if said:
            await self._send(b"".join(b"event: message\ndata: " + message + b"\n\n" for message in said))

    async def end(self) -> None:
        """End the response."""
        await self._request.send({"type": "http.response.body", "body": b""})

    async def _send(self, data: bytes) -> None:
        async with asyncio.timeout(STALL_S):
            await self._request.send({"type": "http.response.body", "body": data, "more_body": True})
