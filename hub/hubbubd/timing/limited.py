"""A time limit for work in large numbers that seldom waits: it costs next to nothing until it does."""

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def run_with_limit(work: Coroutine[Any, Any, T], limit_s: float) -> Generator[Any, Any, T]:
    """Do the work and return its result; it has `limit_s` seconds from its first wait on. Raises TimeoutError."""
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return done.value
    return (yield from _finish(work, awaited, limit_s).__await__())


async def _finish(work: Coroutine[Any, Any, T], awaited: object, limit_s: float) -> T:
    """Await the rest of work that waits for `awaited` already, for `limit_s` seconds at most. Raises TimeoutError."""
    async with asyncio.timeout(limit_s):
        return await _go_on(work, awaited)


@coroutine
def _go_on(work: Coroutine[Any, Any, T], awaited: object) -> Generator[Any, Any, T]:
    """Await the rest of work that waits for `awaited` already, and return its result.

    `yield from` can only start work from its beginning, so this function does the same by hand (PEP 380).
    """
    try:
        while True:
            try:
                result = yield awaited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as exc:  # noqa: BLE001 - it is the work's to handle
                awaited = work.throw(exc)
            else:
                awaited = work.send(result)
    except StopIteration as done:
        return done.value
