"""Fire-and-forget tasks that live as long as the hub. An exception in one is logged and ends nothing else."""

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
    """A task group whose tasks fail alone: an exception is logged, and ends neither other tasks nor the hub."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._brief_tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncGenerator["Background"]:
        """Yield the background for a block; tasks that still run at the end of the block are cancelled."""
        async with anyio.create_task_group() as tasks:
            background = cls(tasks)
            try:
                yield background
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await background._cancel_brief()

    def start_soon(self, work: Callable[[Unpack[Args]], Awaitable[object]], *args: *Args) -> None:
        """Start `work(*args)` in the background, outside the trace of the current RPC; its exception is logged."""
        self._tasks.start_soon(self._run_untraced, work, args)

    def start_brief(self, work: Callable[[Unpack[Args]], Awaitable[object]], *args: *Args) -> None:
        """Start `work(*args)`, which ends soon, outside the current trace, at a fifth of the cost of `start_soon`.

        Its exception is logged. At the end of the hub it is cancelled, even within a shielded scope.
        """
        task = asyncio.create_task(self._run_untraced(work, args))
        self._brief_tasks.add(task)
        task.add_done_callback(self._brief_tasks.discard)

    async def _cancel_brief(self) -> None:
        """Cancel all brief tasks, also those that are started meanwhile, and wait until they have ended."""
        while self._brief_tasks:
            for task in self._brief_tasks:
                task.cancel()
            await asyncio.wait(self._brief_tasks)

    async def run_shielded(self, work: Callable[[Unpack[Args]], Awaitable[R]], *args: *Args) -> R:
        """Run `work(*args)` to its end even if the caller is cancelled; return its result or raise its exception."""
        outcome: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        async def run_and_report() -> None:
            """Do the work, and complete `outcome` with its result or exception; raise an exception without a caller."""
            try:
                result = await work(*args)
            except Exception as exc:
                if outcome.cancelled():
                    raise
                outcome.set_exception(exc)
            except BaseException:
                outcome.cancel()
                raise
            else:
                if not outcome.cancelled():
                    outcome.set_result(result)

        self._tasks.start_soon(self._run_contained, run_and_report, ())
        return await outcome

    async def _run_untraced(self, work: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        """Run work outside the trace of the RPC that started it, and log its exception."""
        CURRENT_TRACE.set(None)  # background work is not part of the RPC that started it
        CURRENT_RPC.set(None)
        await self._run_contained(work, args)

    async def _run_contained(self, work: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        """Run work, and log its exception instead of raising it."""
        try:
            await work(*args)
        except Exception:
            log.exception("background work failed", work=getattr(work, "__qualname__", repr(work)))
