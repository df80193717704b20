"""Work that nobody waits for: it runs as long as the hub, and its failures stay its own."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup
from typing_extensions import TypeVarTuple, Unpack

from hubbubd.telemetry.trace import CURRENT_RPC, CURRENT_TRACE

Args = TypeVarTuple("Args")
R = TypeVar("R")

log = structlog.get_logger(__name__)


class Background:
    """A task group in which one task's exception is logged, and neither ends the others nor the hub."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncGenerator["Background"]:
        """The background of a block; what still runs at its end is cancelled."""
        async with anyio.create_task_group() as tasks:
            try:
                yield cls(tasks)
            finally:
                tasks.cancel_scope.cancel()

    def start_soon(self, work: Callable[[Unpack[Args]], Awaitable[object]], *args: *Args) -> None:
        """Starts `work(*args)`."""
        self._tasks.start_soon(self._apart, work, args)

    async def finish(self, work: Callable[[Unpack[Args]], Awaitable[R]], *args: *Args) -> R:
        """Does `work(*args)` and returns its result; it goes on when the caller is cancelled."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        async def settle() -> None:
            try:
                result = await work(*args)
            except Exception as exc:
                if done.cancelled():
                    raise
                done.set_exception(exc)
            except BaseException:
                done.cancel()
                raise
            else:
                if not done.cancelled():
                    done.set_result(result)

        self._tasks.start_soon(self._contained, settle, ())
        return await done

    async def _apart(self, work: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        CURRENT_TRACE.set(None)  # what goes on in the background is no part of the RPC in whose course it was started
        CURRENT_RPC.set(None)
        await self._contained(work, args)

    async def _contained(self, work: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        try:
            await work(*args)
        except Exception:
            log.exception("background work failed", work=getattr(work, "__qualname__", repr(work)))
