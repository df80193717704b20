"""The body of an HTTP response, watched as it is read."""

from collections.abc import AsyncIterator, Callable
from enum import Enum, auto
from typing import Final

import httpx2

from hubbubd.errors import Fault
from hubbubd.upstream import faults


class End(Enum):
    """How the reading of a body ended."""

    COMPLETE = auto()
    BROKEN = auto()
    CLOSED = auto()
    """The reader closed it before its end."""


class Body(httpx2.AsyncByteStream):
    """A response's bytes, with their end told once to `ended`, and refused past `limit` bytes."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream | httpx2.SyncByteStream,
        ended: Callable[[End, Fault | None], None],
        limit: int | None = None,
    ) -> None:
        assert isinstance(inner, httpx2.AsyncByteStream)
        self._inner: Final = inner
        self._ended: Callable[[End, Fault | None], None] | None = ended
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if self._limit is not None and size > self._limit:
                    problem = f"it is larger than {self._limit} bytes"
                    self._end(End.BROKEN, faults.fault("INVALID_RESPONSE", problem, limit=self._limit))
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
