"""Work that nobody waits for: it runs as long as the hub, and its failures stay its own."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import structlog
from anyio.abc import TaskGroup
from typing_extensions import TypeVarTuple, Unpack

Args = TypeVarTuple("Args")

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
        self._tasks.start_soon(self._contained, work, args)

    async def _contained(self, work: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        try:
            await work(*args)
        except Exception:
            log.exception("background work failed", work=getattr(work, "__qualname__", repr(work)))
