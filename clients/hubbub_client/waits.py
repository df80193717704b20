"""Waiting that the standard library has almost: for a bounded time, and for a thread."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def within(seconds: float) -> asyncio.Timeout:
    """Raises TimeoutError when the block takes longer; infinity is no limit."""
    return asyncio.timeout(seconds if math.isfinite(seconds) else None)


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What a function that blocks returns. It runs to its end, and is waited for, even if the caller is cancelled."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((running,))
        running.exception()
        raise
