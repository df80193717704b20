"""Bodies of HTTP responses, bounded as they are read, and handed on in pieces."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

from hubbubd.timing.turns import turn

TURN_COST: Final = 128 * 1024
"""What of a body is passed on per turn of the event loop: its bytes, plus LINE_COST per line."""

LINE_COST: Final = 1024
"""What a line counts besides its bytes, so that very many short lines are long work, too."""


class BodyTooLarge(Exception):
    """A body is longer than allowed; the message says so."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it is larger than {limit} bytes")
        self.limit = limit


async def whole(more: Callable[[], Awaitable[bytes]], limit: int) -> bytes:
    """Return a body of at most `limit` bytes. `more` returns the next of them, b"" at the end. Raises BodyTooLarge."""
    body = b""
    rest = bytearray()
    while chunk := await more():
        if len(body) + len(rest) + len(chunk) > limit:
            raise BodyTooLarge(limit)
        if body:
            rest += chunk
        else:
            body = chunk
    return body + rest if rest else body


async def in_turns(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a body in pieces whose reading holds nobody up."""
    cost = 0
    async for chunk in chunks:
        for piece, its_cost in _pieces(chunk):
            cost += its_cost
            if cost > TURN_COST:
                await turn()
                cost = its_cost
            yield piece


def _pieces(chunk: bytes) -> Iterator[tuple[bytes, int]]:
    """Split a chunk into the parts that are passed on per turn, with the cost of each."""
    cost = len(chunk) + LINE_COST * (chunk.count(b"\n") + chunk.count(b"\r"))
    count = cost // TURN_COST + 1
    if count == 1:
        yield chunk, cost
        return
    step = len(chunk) // count + 1
    for begin in range(0, len(chunk), step):
        yield chunk[begin : begin + step], cost // count
