"""A time limit for work in large numbers that seldom waits: it costs next to nothing until it does."""

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def limited(work: Coroutine[Any, Any, T], limit_s: float) -> Generator[Any, Any, T]:
    """Do the work and return its result; it has `limit_s` seconds from its first wait on. Raises TimeoutError."""
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return done.value
    return (yield from _finish(work, waits_for, limit_s).__await__())


async def _finish(work: Coroutine[Any, Any, T], waits_for: object, limit_s: float) -> T:
    """Await work that has begun to wait for `waits_for`, for `limit_s` seconds at most. Raises TimeoutError."""
    async with asyncio.timeout(limit_s):
        return await _go_on(work, waits_for)


@coroutine
def _go_on(work: Coroutine[Any, Any, T], waits_for: object) -> Generator[Any, Any, T]:
    """Await work that has begun to wait for `waits_for`, and return its result.

    `yield from` would start from the beginning, so this does by hand what it does from there on (PEP 380).
    """
    try:
        while True:
            try:
                woken_with = yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as exc:  # noqa: BLE001 - it is the work's to handle
                waits_for = work.throw(exc)
            else:
                waits_for = work.send(woken_with)
    except StopIteration as done:
        return done.value
