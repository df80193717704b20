"""Waiting that the standard library has almost: for a bounded time, for a thread, and beside other work."""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

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


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Does the work beside the block, and cancels it at the end of the block.

    When the work fails, the block is cancelled, and what it raised is raised here. A task group of Python 3.11 would
    leave the caller with a cancellation that nobody made, if the work fails while the group waits for its end.
    """
    caller, inside = asyncio.current_task(), True
    assert caller is not None

    def done(task: asyncio.Task[None]) -> None:
        nonlocal failed
        if not task.cancelled() and task.exception() is not None and inside:
            failed = caller.cancel()

    failed = False
    task = asyncio.ensure_future(work)
    task.add_done_callback(done)
    try:
        yield
    except asyncio.CancelledError:
        ours, failed = failed, False
        if not ours or caller.uncancel():
            raise
    finally:
        inside = False
        task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as exc:
                cancelled = exc
        if failed:  # the block has ended before its cancellation came, or has made something else of it
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as exc:
                cancelled = exc
            if not caller.uncancel():
                cancelled = None
        if cancelled is not None:
            raise cancelled
    if not task.cancelled():
        task.result()
