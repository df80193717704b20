"""Bodies of HTTP responses, watched and bounded as they are read."""

from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum, auto
from typing import Any, Final, cast

import httpx2
from mcp.shared.dispatcher import coerce_request_id

from hubbubd.errors import Fault
from hubbubd.payload import loads
from hubbubd.turns import turn
from hubbubd.upstream import faults
from hubbubd.upstream.envelope import EDGE, answered

PARSED_BYTES: Final = 64 * 1024
"""The longest event that is parsed to find whose response it is, where its ends do not tell."""

TURN_COST: Final = 128 * 1024
"""What of a body is passed on per turn of the event loop: its bytes, plus LINE_COST per line."""

LINE_COST: Final = 1024
"""What a line counts besides its bytes, so that very many short lines are long work, too."""

_DATA: Final = b"data:"
"""The field name of an event's data line."""


class End(Enum):
    """How the reading of a body ended."""

    COMPLETE = auto()
    BROKEN = auto()
    CLOSED = auto()
    """The reader closed it before its end."""


class Body(httpx2.AsyncByteStream):
    """A response's bytes. Calls `ended` once at the end; fails beyond `limit` bytes, or if `check` finds a problem."""

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
        size = cost = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if self._limit is not None and size > self._limit:
                    problem = f"it is larger than {self._limit} bytes"
                    self._end(End.BROKEN, faults.fault("INVALID_RESPONSE", problem, limit=self._limit))
                    raise httpx2.StreamError(problem)
                for piece, its_cost in _pieces(chunk):
                    cost += its_cost
                    if cost > TURN_COST:
                        await turn()
                        cost = its_cost
                    if self._check is not None and (problem := self._check(piece)) is not None:
                        self._end(End.BROKEN, faults.fault("INVALID_RESPONSE", problem))
                        raise httpx2.StreamError(problem)
                    yield piece
        except httpx2.TransportError as exc:
            self._end(End.BROKEN, faults.of_exception(exc))
            # The SDK treats a StreamError as a broken response; another exception would end its whole transport.
            raise httpx2.StreamError(str(exc)) from exc
        self._end(End.COMPLETE, None)

    async def aclose(self) -> None:
        self._end(End.CLOSED, None)
        await self._inner.aclose()

    def _end(self, end: End, fault: Fault | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(end, fault)


def _pieces(chunk: bytes) -> Iterator[tuple[bytes, int]]:
    """Split a chunk into the parts that are passed on per turn, with the cost of each."""
    cost = len(chunk) + LINE_COST * (chunk.count(b"\n") + chunk.count(b"\r"))
    count = cost // TURN_COST + 1
    step = len(chunk) // count + 1
    for begin in range(0, len(chunk), step):
        yield chunk[begin : begin + step], cost // count


def decoded(response: httpx2.Response) -> Callable[[bytes], str | None] | None:
    """Return a check for `Body` that refuses a compressed body, as it could grow beyond every bound; or None."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    return None if coding == "identity" else lambda _: "it is compressed"


class Misdirected:
    """Checks a request's event stream for responses to another request, and bounds each event.

    The SDK takes any response on that stream for this request's: one misdirected, by a proxy for example, would become
    the result of another call.
    """

    def __init__(self, request_id: int, limit: int) -> None:
        self._request_id = request_id
        self._limit = limit
        self._event = _Event()
        self._begun = False
        self._after_return = False

    def check(self, chunk: bytes) -> str | None:
        """Return a problem if this chunk completes such a response, or makes an event too long.

        Lines end as in the HTML standard, server-sent events, 9.2.5: with LF, CR, or both.
        """
        rest = chunk[1:] if self._after_return and chunk.startswith(b"\n") else chunk
        if chunk:
            self._after_return = chunk.endswith(b"\r")
        for piece in rest.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            ended = len(line) < len(piece)
            if line:
                self._event.add(line)
            elif not self._begun and (problem := self._over()) is not None:
                return problem
            if self._event.size > self._limit:
                return f"an event is larger than {self._limit} bytes"
            self._begun = not ended
            if ended:
                self._event.end_line()
        return None

    def _over(self) -> str | None:
        event, self._event = self._event, _Event()
        named = event.answers()
        if named is None or coerce_request_id(named) == self._request_id:
            return None
        return f"a response to request {named!r} came for request {self._request_id}"


class _Event:
    """What is kept of an event to tell whose response it is: all of its data if short, else its beginning and end.

    `size` counts its lines except comments, which are not kept anywhere.
    """

    def __init__(self) -> None:
        self.size = 0
        self._field = b""
        self._data = bytearray()
        self._tail = b""
        self._data_size = 0

    def add(self, part: bytes) -> None:
        """Add a part of a line."""
        named = min(max(len(_DATA) - len(self._field), 0), len(part))
        self._field += part[:named]
        if self._field.startswith(b":"):
            return
        self.size += len(part)
        if self._field == _DATA:
            self._keep(part[named:])

    def end_line(self) -> None:
        """End the line."""
        if self._field == _DATA:
            self._keep(b"\n")
        self._field = b""

    def _keep(self, data: bytes) -> None:
        self._data_size += len(data)
        self._data += data[: PARSED_BYTES - len(self._data)]
        self._tail = (self._tail + data[-EDGE:])[-EDGE:]

    def answers(self) -> int | str | None:
        """Return the id of the request that the event answers; None when it is no response, or has no id."""
        if (named := answered(self._data[:EDGE], self._tail)) is not None or self._data_size > PARSED_BYTES:
            return named
        if b'"result"' not in self._data and b'"error"' not in self._data:
            return None
        try:
            message = loads(bytes(self._data))
        except ValueError:
            return None
        if not isinstance(message, dict) or "method" in message:
            return None
        named = cast("dict[str, Any]", message).get("id")
        return named if isinstance(named, int | str) else None
