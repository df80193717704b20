"""The body of an HTTP response, watched as it is read."""

from collections.abc import AsyncIterator, Callable
from enum import Enum, auto
from typing import Any, Final, cast

import httpx2
from mcp.shared.dispatcher import coerce_request_id

from hubbubd.errors import Fault
from hubbubd.payload import loads
from hubbubd.upstream import faults
from hubbubd.upstream.framing import EDGE, Lines, Oversized, answered

PARSED_BYTES: Final = 64 * 1024
"""The longest event that is parsed to find out whose response it is, where its ends do not tell."""


class End(Enum):
    """How the reading of a body ended."""

    COMPLETE = auto()
    BROKEN = auto()
    CLOSED = auto()
    """The reader closed it before its end."""


class Body(httpx2.AsyncByteStream):
    """A response's bytes, with their end told once to `ended`, and refused past `limit` bytes or by `check`."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream | httpx2.SyncByteStream,
        ended: Callable[[End, Fault | None], None],
        limit: int | None = None,
        check: Callable[[bytes], str | None] | None = None,
    ) -> None:
        assert isinstance(inner, httpx2.AsyncByteStream)
        self._inner: Final = inner
        self._ended: Callable[[End, Fault | None], None] | None = ended
        self._limit = limit
        self._check = check

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if self._limit is not None and size > self._limit:
                    problem = f"it is larger than {self._limit} bytes"
                    self._end(End.BROKEN, faults.fault("INVALID_RESPONSE", problem, limit=self._limit))
                    raise httpx2.StreamError(problem)
                if self._check is not None and (problem := self._check(chunk)) is not None:
                    self._end(End.BROKEN, faults.fault("INVALID_RESPONSE", problem))
                    raise httpx2.StreamError(problem)
                yield chunk
        except httpx2.TransportError as exc:
            self._end(End.BROKEN, faults.of_exception(exc))
            # The SDK takes this one for a broken response; another would end its whole transport.
            raise httpx2.StreamError(str(exc)) from exc
        self._end(End.COMPLETE, None)

    async def aclose(self) -> None:
        self._end(End.CLOSED, None)
        await self._inner.aclose()

    def _end(self, end: End, fault: Fault | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(end, fault)


def decoded(response: httpx2.Response) -> Callable[[bytes], str | None] | None:
    """A check for `Body` that refuses what would be decoded: a compressed body could grow past every bound."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    return None if coding == "identity" else lambda _: "it is compressed"


class Misdirected:
    """Looks, in the chunks of a request's event stream, for the response to another request.

    The SDK takes any response on that stream for this request's: one that lost its way, say in a proxy, would become
    the result of a call that it does not belong to.
    """

    def __init__(self, request_id: int, limit: int) -> None:
        self._request_id = request_id
        self._lines = Lines(limit)
        self._event = b""

    def check(self, chunk: bytes) -> str | None:
        """What is wrong, if this chunk completes such a response."""
        self._lines.feed(chunk)
        while (line := self._lines.take()) is not None:
            if isinstance(line, Oversized):
                continue  # the SDK refuses the event
            if line.startswith(b"data:"):
                self._event += line[5:]
            elif not line.strip():
                event, self._event = self._event, b""
                named = _whose(event)
                if named is not None and coerce_request_id(named) != self._request_id:
                    return f"a response to request {named!r} came for request {self._request_id}"
        return None


def _whose(event: bytes) -> int | str | None:
    """The id of the request that an event answers; None when it is no response, or names none."""
    if b'"result"' not in event and b'"error"' not in event:
        return None
    if (named := answered(event[:EDGE], event[-EDGE:])) is not None or len(event) > PARSED_BYTES:
        return named
    try:
        message = loads(event)
    except ValueError:
        return None
    if not isinstance(message, dict) or "method" in message:
        return None
    named = cast("dict[str, Any]", message).get("id")
    return named if isinstance(named, int | str) else None
