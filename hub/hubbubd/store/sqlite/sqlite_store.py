"""The store on SQLite: one thread with one connection.

`:memory:` has no thread: the same steps run on the loop, so tests on a virtual clock are deterministic.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO, Literal, Self, TypeVar

import anyio

from hubbubd.store import Commit, Snapshot, StoreStats, StoreUnavailable
from hubbubd.store.group_commit import AppliedGroup, GroupedStore, QueuedCommit
from hubbubd.store.sqlite.backup import CopyAbandoned, copy_path
from hubbubd.store.sqlite.engine import Engine
from hubbubd.store.sqlite.schema import MIGRATIONS, Migration

T = TypeVar("T")


class SqliteStore(GroupedStore):
    """A `Store` in one SQLite file or in memory. Belongs to the event loop that opened it."""

    def __init__(self, engine: Engine, thread: ThreadPoolExecutor | None, copy_path: Path) -> None:
        """`thread` runs the engine, None for the loop itself; `copy_path` is the working file of copies."""
        super().__init__(engine.revision)
        self._engine = engine
        self._thread = thread
        self._copy_path = copy_path
        self._copy_lock = anyio.Lock()

    @classmethod
    async def open(cls, path: Path | Literal[":memory:"], migrations: Sequence[Migration] = MIGRATIONS) -> Self:
        """Open the store at a path, created if missing (mode 0600; a missing directory 0700), or one in memory.

        Raises StoreLocked when any process, this one included, has it open, StoreTooNew, StoreDamaged, and
        StoreUnavailable when the file cannot be used or is no store. An existing file is then unchanged, byte for byte.
        """
        if not isinstance(path, Path):
            return cls(Engine.open(None, migrations), None, Path(gettempdir(), f"hubbub-{secrets.token_hex(8)}.copy"))
        thread = ThreadPoolExecutor(1, "store")
        opening = asyncio.get_running_loop().run_in_executor(thread, Engine.open, path, migrations)
        try:
            with anyio.CancelScope(shield=True):  # an opened engine must reach its owner, or nobody closes it
                await opening
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(opening.result(), thread, copy_path(path))

    @property
    def name(self) -> str:
        """The path of the file."""
        return self._engine.name

    @property
    def id(self) -> str:
        """A random id from the store's creation; part of every resume token."""
        return self._engine.id

    def _apply_group(self, group: Sequence[QueuedCommit]) -> "asyncio.Future[AppliedGroup]":
        """Begin to apply a group of commits in one transaction; return a future of what became of them."""
        commits = [(queued.writes, queued.guards) for queued in group]
        return self._submit(lambda: AppliedGroup(self._engine.apply(commits)))

    async def _read_changes(self, prefix: str, after: int) -> tuple[int, list[Commit]]:
        """Return the current revision, and the newest state of each key under a prefix that changed after `after`.

        Raises Compacted and StoreUnavailable.
        """
        return await self._run_unless_closing(partial(self._engine.changes, prefix, after))

    def _submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work in the order of the calls: on the thread, or inline when in memory."""
        if self._thread:
            return self._loop.run_in_executor(self._thread, work)
        done: asyncio.Future[T] = self._loop.create_future()
        try:
            done.set_result(work())
        except Exception as exc:  # noqa: BLE001  # as on the thread: what awaits the future gets it
            done.set_exception(exc)
        return done

    async def _run_unless_closing(self, work: Callable[[], T]) -> T:
        """Run blocking work in the order of the calls, and return its result.

        Raises StoreUnavailable once the store closes, and what the work raises.
        """
        if self._close_task:
            raise self._closed_error()
        return await self._submit(work)

    async def snapshot(self, prefix: str = "") -> Snapshot:
        """Read everything under a prefix at one revision. Raises StoreUnavailable."""
        return await self._run_unless_closing(partial(self._engine.snapshot, prefix))

    async def compact(self, revision: int) -> None:
        """Remove tombstones up to `revision`, before which watches can no longer resume. Raises StoreUnavailable."""
        await self._run_unless_closing(partial(self._engine.compact, revision))

    async def reclaim(self) -> None:
        """Return unused space to the file system, with deleted and overwritten data erased. Raises StoreUnavailable."""
        while await self._run_unless_closing(self._engine.reclaim):
            pass  # in steps, so that waiting commits get the thread in between

    async def copy(self) -> BinaryIO:
        """Return a consistent copy as an open file without a name.

        The copy has no id: it gets one where it is opened, so that no resume token of this store fits it. Commits go on
        meanwhile; copies are made one at a time. Raises NoRoom and StoreUnavailable.
        """
        async with self._copy_lock:
            if self._close_task:
                raise self._closed_error()
            work = partial(self._engine.copy, self._copy_path, lambda: is_abandoned or self._close_task is not None)
            is_abandoned = False
            if self._thread is None:
                return work()
            # In another thread: commits go on in the store's own.
            copying = self._loop.run_in_executor(None, work)
            try:
                return await asyncio.shield(copying)
            except asyncio.CancelledError:
                is_abandoned = True
                # A copy that is finished all the same has to be closed, or it would keep its space.
                with anyio.CancelScope(shield=True), suppress(CopyAbandoned, StoreUnavailable):
                    (await copying).close()
                raise
            except CopyAbandoned:
                raise self._closed_error() from None

    async def stats(self) -> StoreStats:
        """Return sizes and counts. Raises StoreUnavailable."""
        return await self._run_unless_closing(self._engine.stats)

    async def probe(self) -> None:
        """Do all that a commit does, but change nothing. Raises StoreUnavailable if a commit could not succeed.

        On a disk this also requires 1 MiB of free space.
        """
        await self._run_unless_closing(self._engine.probe)

    async def _close_engine(self) -> None:
        """Close the database once no copy is under way, and end the thread."""
        try:
            async with self._copy_lock:  # a copy under way sees that the store closes, and gives up
                await self._submit(self._engine.close)
        finally:
            if self._thread:
                self._thread.shutdown(wait=False)
