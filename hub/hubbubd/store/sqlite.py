"""The store on SQLite with group commit: one thread, one connection; commits made during a sync share the next one.

    commit ──> queue ──> one transaction for all that queued ──> listeners, by revision ──> callers

The loop starts the next transaction as soon as the last one is durable. A bounded queue of commits gives backpressure.
`:memory:` has no thread: the same steps run on the loop, so tests on a virtual clock are deterministic.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO, Literal, Self, TypeVar

import anyio

from hubbubd.store import Commit, Conflict, Guard, Snapshot, StoreStats, StoreUnavailable, Write
from hubbubd.store.copy import GivenUp, place
from hubbubd.store.engine import Engine
from hubbubd.store.schema import MIGRATIONS, Migration

QUEUED_COMMITS = 1024
"""Commits that may wait for the disk; who makes more waits for room."""
UNREAD_COMMITS = 256
"""Commits that one watcher may leave unread; it reads from a snapshot after that."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Begun:
    """A queued commit; it finishes even if its caller is cancelled."""

    writes: tuple[Write, ...]
    guards: tuple[Guard, ...]
    done: asyncio.Future[int]


class _Feed:
    """A watcher's bounded buffer of live commits. On overflow it is emptied and `missed` tells the watcher to catch up.

    The watcher has seen all of the prefix up to `position`, or is catching up to it.
    """

    def __init__(self, prefix: str, position: int) -> None:
        self.position = position
        self.missed = False
        self._prefix = prefix
        self._unread: deque[Commit] = deque()
        self._news = asyncio.Event()

    def put(self, commit: Commit) -> None:
        if self.missed:
            return
        writes = tuple(write for write in commit.writes if write.key.startswith(self._prefix))
        if not writes:
            if not self._unread:
                self.position = max(self.position, commit.revision)
            return
        if len(self._unread) == UNREAD_COMMITS:
            self._unread.clear()
            self.missed = True
        else:
            self._unread.append(Commit(commit.revision, writes))
        self._news.set()

    def take(self) -> Commit | None:
        """Return the next commit after `position` and advance it; None when there is none."""
        while self._unread:
            commit = self._unread.popleft()
            if commit.revision > self.position:
                self.position = commit.revision
                return commit
        return None

    def wake(self) -> None:
        self._news.set()

    async def news(self) -> None:
        await self._news.wait()
        self._news.clear()


class SqliteStore:
    """A `Store` in one SQLite file or in memory. Belongs to the event loop that opened it."""

    def __init__(self, engine: Engine, thread: ThreadPoolExecutor | None, copy_path: Path) -> None:
        self._engine = engine
        self._thread = thread
        self._copy_path = copy_path
        self._copying = anyio.Lock()
        self._loop = asyncio.get_running_loop()
        self._revision = engine.revision
        self._space = anyio.Semaphore(QUEUED_COMMITS, fast_acquire=True)
        self._queue: list[_Begun] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._listeners: dict[object, Callable[[Commit], None]] = {}
        self._feeds: set[_Feed] = set()
        self._closing: asyncio.Task[None] | None = None

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
        return cls(opening.result(), thread, place(path))

    @property
    def name(self) -> str:
        """The path of the file."""
        return self._engine.name

    @property
    def id(self) -> str:
        """A random id from the store's creation; part of every resume token."""
        return self._engine.id

    @property
    def revision(self) -> int:
        """The newest durable revision that listeners have seen."""
        return self._revision

    async def commit(self, writes: Sequence[Write], guards: Sequence[Guard] = ()) -> int:
        """Apply all writes if all guards hold; return the revision once it is durable.

        Of several writes to one key the last counts. Without an effective change the revision stays and no listener is
        called. Waits while QUEUED_COMMITS are queued; a caller cancelled by then has begun nothing. Raises Conflict or
        StoreUnavailable, and ValueError when a key is not valid Unicode.
        """
        for write in writes:
            write.key.encode()  # an invalid key must not fail the commits that share its transaction
        await self._space.acquire()
        if self._closing:
            self._space.release()
            raise self._closed()
        begun = _Begun(tuple(writes), tuple(guards), self._loop.create_future())
        self._queue.append(begun)
        if self._idle.is_set():
            self._idle.clear()
            self._loop.call_soon(self._flush)  # not at once: all commits of this turn of the loop share a sync
        return await begun.done

    def _flush(self) -> None:
        group, self._queue = self._queue, []
        if not group:
            self._idle.set()
            return
        applied = self._run(partial(self._engine.apply, [(begun.writes, begun.guards) for begun in group]))
        if applied.done():
            self._conclude(group, applied)
        else:
            applied.add_done_callback(partial(self._conclude, group))

    def _conclude(self, group: list[_Begun], applied: asyncio.Future[list[Commit | Conflict]]) -> None:
        self._flush()  # the next sync runs while listeners are called for this one; it completes in a later turn
        failure = applied.exception()
        outcomes = [StoreUnavailable(str(failure)) for _ in group] if failure else applied.result()
        for outcome in outcomes:
            if isinstance(outcome, Commit) and outcome.writes:
                self._tell(outcome)
        for begun, outcome in zip(group, outcomes, strict=True):
            self._space.release()
            if begun.done.done():
                continue  # the caller was cancelled
            if isinstance(outcome, Commit):
                begun.done.set_result(outcome.revision)
            else:
                outcome.__cause__ = failure
                begun.done.set_exception(outcome)

    def _tell(self, commit: Commit) -> None:
        self._revision = commit.revision
        for listener in tuple(self._listeners.values()):
            try:
                listener(commit)
            except Exception as exc:  # noqa: BLE001  # one listener's bug must not keep a commit from the others
                self._loop.call_exception_handler({"message": "A store listener raised", "exception": exc})

    def _run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work in the order of the calls: on the thread, or inline when in memory."""
        if self._thread:
            return self._loop.run_in_executor(self._thread, work)
        done: asyncio.Future[T] = self._loop.create_future()
        try:
            done.set_result(work())
        except Exception as exc:  # noqa: BLE001  # as on the thread: whoever awaits the future gets it
            done.set_exception(exc)
        return done

    async def _ask(self, work: Callable[[], T]) -> T:
        if self._closing:
            raise self._closed()
        return await self._run(work)

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable("the store is closed")

    def listen(self, listener: Callable[[Commit], None]) -> Callable[[], None]:
        """Call `listener` on the event loop with each durable commit, in revision order, without gaps.

        The listener must not block or raise. Returns a function that unsubscribes.
        """
        token = object()
        self._listeners[token] = listener

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop

    async def snapshot(self, prefix: str = "") -> Snapshot:
        """Read everything under a prefix at one revision. Raises StoreUnavailable."""
        return await self._ask(partial(self._engine.snapshot, prefix))

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Commit]:
        """Yield the commits to a prefix since revision `after`, then live ones; atomic, ordered, without gaps.

        Catching up yields the newest state of each key once, at its own revision; a watcher whose buffer overflows
        catches up again. Live writes carry their `ref`. Raises Compacted for a revision that is too old or that this
        store never reached, and StoreUnavailable when the store closes. Close the generator to end the watch.
        """
        feed = _Feed(prefix, after)
        stop = self.listen(feed.put)
        self._feeds.add(feed)
        try:
            while True:
                feed.missed = False
                current, changes = await self._ask(partial(self._engine.changes, prefix, feed.position))
                for commit in changes:
                    yield commit
                feed.position = max(feed.position, current)
                while not feed.missed:
                    if commit := feed.take():
                        yield commit
                    elif self._closing and self._closing.done():
                        raise self._closed()
                    else:
                        await feed.news()
        finally:
            stop()
            self._feeds.discard(feed)

    async def compact(self, revision: int) -> None:
        """Remove tombstones up to `revision`; watches can no longer resume from before it."""
        await self._ask(partial(self._engine.compact, revision))

    async def reclaim(self) -> None:
        """Return unused space to the file system, with deleted and overwritten data erased. Raises StoreUnavailable."""
        while await self._ask(self._engine.reclaim):
            pass  # in steps, so that waiting commits get the thread in between

    async def copy(self) -> BinaryIO:
        """Return a consistent copy as an open file without a name.

        It has no id: it gets one where it is opened, so no resume token of this store fits it. Commits go on meanwhile;
        copies are made one at a time. Raises NoRoom and StoreUnavailable.
        """
        async with self._copying:
            if self._closing:
                raise self._closed()
            work = partial(self._engine.copy, self._copy_path, lambda: given_up or self._closing is not None)
            given_up = False
            if self._thread is None:
                return work()
            copying = self._loop.run_in_executor(None, work)
            try:
                return await asyncio.shield(copying)
            except asyncio.CancelledError:
                given_up = True
                with anyio.CancelScope(shield=True), suppress(GivenUp, StoreUnavailable):
                    (await copying).close()
                raise
            except GivenUp:
                raise self._closed() from None

    async def stats(self) -> StoreStats:
        """Return sizes and counts. Raises StoreUnavailable."""
        return await self._ask(self._engine.stats)

    async def probe(self) -> None:
        """Do all that a commit does without a change. Raises StoreUnavailable if a commit could not succeed.

        On a disk this also requires 1 MiB of free space.
        """
        await self._ask(self._engine.probe)

    async def close(self) -> None:
        """Finish the commits that have begun and close the file. Idempotent.

        Later commits and reads raise StoreUnavailable, and so do open watches.
        """
        if not self._closing:
            self._closing = self._loop.create_task(self._finish())
        await asyncio.shield(self._closing)

    async def _finish(self) -> None:
        await self._idle.wait()
        try:
            async with self._copying:  # a copy under way sees that the store closes, and gives up
                await self._run(self._engine.close)
        finally:
            if self._thread:
                self._thread.shutdown(wait=False)
            for feed in self._feeds:
                feed.wake()
