"""Bodies of HTTP responses, bounded as they are read, and handed on in pieces."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

from hubbubd.timing.turns import wait_for_turn

TURN_COST: Final = 128 * 1024
"""How much of a body is passed on before other tasks run: its bytes, plus LINE_COST per line."""

LINE_COST: Final = 1024
"""The cost of a line besides its bytes: many short lines take long, too."""


class BodyTooLarge(Exception):
    """A body is longer than allowed; the message says so."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it is larger than {limit} bytes")
        self.limit = limit


async def read_whole(read_next: Callable[[], Awaitable[bytes]], limit: int) -> bytes:
    """Return a body of at most `limit` bytes. Raises BodyTooLarge.

    `read_next` returns its next bytes, b"" at the end.
    """
    first = b""  # most bodies are one chunk, which is not copied
    rest = bytearray()
    while chunk := await read_next():
        if len(first) + len(rest) + len(chunk) > limit:
            raise BodyTooLarge(limit)
        if first:
            rest += chunk
        else:
            first = chunk
    return first + rest if rest else first


async def read_in_turns(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a body in pieces, and let other tasks run after each TURN_COST."""
    cost = 0
    async for chunk in chunks:
        for piece, piece_cost in _split_by_cost(chunk):
            cost += piece_cost
            if cost > TURN_COST:
                await wait_for_turn()
                cost = piece_cost
            yield piece


def _split_by_cost(chunk: bytes) -> Iterator[tuple[bytes, int]]:
    """Split a chunk into parts that cost at most about TURN_COST; yield each part with its cost."""
    cost = len(chunk) + LINE_COST * (chunk.count(b"\n") + chunk.count(b"\r"))
    count = cost // TURN_COST + 1
    if count == 1:
        yield chunk, cost
        return
    step = len(chunk) // count + 1
    for begin in range(0, len(chunk), step):
        yield chunk[begin : begin + step], cost // count
