"""Waits that the standard library lacks: for a bounded time, for a thread, and beside other work."""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def within(seconds: float) -> asyncio.Timeout:
    """Raise TimeoutError if the block takes longer; infinity is no limit."""
    return asyncio.timeout(seconds if math.isfinite(seconds) else None)


async def run_in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a blocking function in a thread and return its result; wait for its end even if the caller is cancelled."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        task.exception()  # read, or asyncio would log that nobody did
        raise


@contextlib.asynccontextmanager
async def run_beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run work beside the block, and cancel it at the end of the block.

    If the work fails, cancel the block and raise the work's exception here. (If the work fails while a task group of
    Python 3.11 waits for its end, the caller is left with a cancellation that nobody requested.)
    """
    caller, is_in_block = asyncio.current_task(), True
    assert caller is not None

    def cancel_caller_on_failure(task: asyncio.Task[None]) -> None:
        """Cancel the caller if the work failed before the end of the block, and set `failed`."""
        nonlocal failed
        if not task.cancelled() and task.exception() is not None and is_in_block:
            failed = caller.cancel()

    failed = False  # whether the failure has cancelled the caller, and `uncancel` has not undone that yet
    task = asyncio.ensure_future(work)
    task.add_done_callback(cancel_caller_on_failure)
    try:
        yield
    except asyncio.CancelledError:
        is_own_cancellation, failed = failed, False
        if not is_own_cancellation or caller.uncancel():  # somebody else has cancelled the caller, too
            raise
    finally:
        is_in_block = False
        task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as exc:
                cancelled = exc
        if failed:  # the block ended before its cancellation arrived, or raised something else
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
