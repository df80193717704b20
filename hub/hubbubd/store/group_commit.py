"""Group commit, for every engine: commits made while one group is on its way share the next.

    commit ──> queue ──> one transaction for all that queued ──> listeners, by revision ──> callers

The loop starts the next transaction as soon as the last one is durable. A bounded queue of commits gives backpressure.
An engine has the transaction, and reads.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass

import anyio

from hubbubd.store import Commit, Precondition, StoreUnavailable, Write, WriteConflict
from hubbubd.store.feeds import CommitBuffer

QUEUED_COMMITS = 1024
"""Commits that may wait for the disk; callers with more wait for room."""

Outcome = Commit | WriteConflict
"""The outcome of one commit of a group; a commit that changed nothing has no writes, and the revision before it."""


@dataclass(frozen=True, slots=True)
class AppliedGroup:
    """The outcomes of a group's commits, and the commits of other members `before` and `after` it in a shared store."""

    outcomes: Sequence[Outcome]
    before: Sequence[Commit] = ()
    after: Sequence[Commit] = ()


@dataclass(slots=True, eq=False)
class QueuedCommit:
    """A queued commit; it finishes even if its caller is cancelled."""

    writes: tuple[Write, ...]
    guards: tuple[Precondition, ...]
    done: asyncio.Future[int]


class GroupedStore(ABC):
    """The queue, the listeners and the watches of a store. Belongs to the event loop that made it."""

    def __init__(self, revision: int) -> None:
        """`revision` is the newest one of the engine's store."""
        self.reconnects = 0
        """How often the connection for commits was made again; 0 for an engine without connections."""
        self._loop = asyncio.get_running_loop()
        # The context in which listeners run: their work must not belong to the RPC that happens to start a group.
        self._context = copy_context()
        self._revision = revision
        self._capacity = anyio.Semaphore(QUEUED_COMMITS, fast_acquire=True)
        self._queue: list[QueuedCommit] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._listeners: dict[object, Callable[[Commit], None]] = {}
        self._buffers: set[CommitBuffer] = set()
        self._close_task: asyncio.Task[None] | None = None

    @abstractmethod
    def _apply_group(self, group: Sequence[QueuedCommit]) -> "asyncio.Future[AppliedGroup]":
        """Begin to apply a group of commits in one transaction; each sees the writes of those before, and fails alone.

        Return a future of what became of them. If it has an exception, none of the group has happened.
        """

    @abstractmethod
    async def _read_changes(self, prefix: str, after: int) -> tuple[int, list[Commit]]:
        """Return the current revision, and the newest state of each key under a prefix that changed after `after`.

        Raises Compacted, also for a revision that was never reached, and StoreUnavailable.
        """

    @abstractmethod
    async def _close_engine(self) -> None:
        """Close the engine. Called when all commits that were begun have ended."""

    @property
    def revision(self) -> int:
        """The newest durable revision that listeners have seen."""
        return self._revision

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        """Apply all writes if all guards hold; return the revision once it is durable.

        Of several writes to one key the last counts. If nothing changes, the revision stays and no listener is called.
        Waits while QUEUED_COMMITS are queued; a caller that is cancelled in this time has begun nothing. Raises
        WriteConflict or StoreUnavailable, and ValueError when a key is not valid Unicode.
        """
        for each in (*writes, *guards):
            each.key.encode()  # an invalid key must not fail the commits that share its transaction
        await self._capacity.acquire()
        if self._close_task:
            self._capacity.release()
            raise self._closed_error()
        queued = QueuedCommit(tuple(writes), tuple(guards), self._loop.create_future())
        self._queue.append(queued)
        if self._idle.is_set():
            self._idle.clear()
            # Later, so that all commits of this turn of the loop share a sync.
            self._loop.call_soon(self._apply_queued, context=self._context)
        return await queued.done

    def _apply_queued(self) -> None:
        """Start the transaction of all commits that are queued; if there are none, note that the store is idle."""
        group, self._queue = self._queue, []
        if not group:
            self._idle.set()
            return
        future = self._apply_group(group)
        if future.done():
            self._finish_group(group, future)
        else:
            future.add_done_callback(lambda done: self._finish_group(group, done))

    def _finish_group(self, group: Sequence[QueuedCommit], future: "asyncio.Future[AppliedGroup]") -> None:
        """Start the next group, publish the commits of this one to listeners, and complete its callers' futures.

        `future` has the outcome; if the group failed, each caller gets the failure.
        """
        self._apply_queued()  # the next sync runs while listeners are called for this one; it completes in a later turn
        failure = future.exception()
        outcomes: Sequence[Outcome | StoreUnavailable]
        if failure is None:
            result = future.result()
            outcomes = result.outcomes
            own_commits = [each for each in outcomes if isinstance(each, Commit) and each.writes]
            for commit in (*result.before, *own_commits, *result.after):
                self._publish(commit)
        else:
            # One exception for each caller: raised twice, an exception would collect both tracebacks.
            kind = type(failure) if isinstance(failure, StoreUnavailable) else StoreUnavailable
            outcomes = [kind(str(failure)) for _ in group]
        for queued, outcome in zip(group, outcomes, strict=True):
            self._capacity.release()
            if queued.done.done():
                continue  # the caller was cancelled
            if isinstance(outcome, Commit):
                queued.done.set_result(outcome.revision)
            else:
                outcome.__cause__ = failure
                queued.done.set_exception(outcome)

    def _publish(self, commit: Commit) -> None:
        """Note a durable commit's revision, and call all listeners with the commit, also if one of them raises."""
        self._revision = commit.revision
        for listener in tuple(self._listeners.values()):
            try:
                listener(commit)
            except Exception as exc:  # noqa: BLE001  # one listener's bug must not keep a commit from the others
                self._loop.call_exception_handler({"message": "A store listener raised", "exception": exc})

    def _closed_error(self) -> StoreUnavailable:
        """Return the error of a store that is closed."""
        return StoreUnavailable("the store is closed")

    def listen(self, listener: Callable[[Commit], None]) -> Callable[[], None]:
        """Call `listener` on the event loop with each durable commit, in revision order, without gaps.

        The listener must not block or raise. Returns a function that unsubscribes.
        """
        token = object()
        self._listeners[token] = listener

        def unsubscribe() -> None:
            """Unsubscribe the listener; may be repeated."""
            self._listeners.pop(token, None)

        return unsubscribe

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Commit]:
        """Yield the commits to a prefix since revision `after`, then live ones; atomic, ordered, without gaps.

        Catching up yields the newest state of each key once, at its own revision; a watcher whose buffer overflows
        catches up again. Live writes carry their `ref`. Raises Compacted for a revision that is too old or that this
        store never reached, and StoreUnavailable when the store closes. Close the generator to end the watch.
        """
        buffer = CommitBuffer(prefix, after)
        unsubscribe = self.listen(buffer.add)
        self._buffers.add(buffer)
        try:
            while True:
                buffer.has_overflowed = False
                current, changes = await self._read_changes(prefix, buffer.position)
                for commit in changes:
                    yield commit
                buffer.position = max(buffer.position, current)
                while not buffer.has_overflowed:
                    if commit := buffer.take_next():
                        yield commit
                    elif self._close_task and self._close_task.done():
                        raise self._closed_error()
                    else:
                        await buffer.wait_for_change()
        finally:
            unsubscribe()
            self._buffers.discard(buffer)

    async def close(self) -> None:
        """Finish the commits that have begun and close the store. Idempotent.

        Later commits and reads raise StoreUnavailable, and so do open watches.
        """
        if not self._close_task:
            self._close_task = self._loop.create_task(self._close_when_idle())
        await asyncio.shield(self._close_task)

    async def _close_when_idle(self) -> None:
        """Close the engine once no group is under way; wake open watches, so that they raise StoreUnavailable."""
        await self._idle.wait()
        try:
            await self._close_engine()
        finally:
            for buffer in self._buffers:
                buffer.wake()
