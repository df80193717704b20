"""The store's protocol: revisioned keys, atomic commits, optimistic concurrency. Modelled on etcd.

`sqlite/` has it in a file, `postgres/` in a database.

The store does not interpret values. Every commit that changes something gets the next revision, which all its writes
share. `runtime/records` keeps the decoded records in memory and is the only caller of `commit`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol


class StoreError(Exception):
    """Base of the store's errors."""


class WriteConflict(StoreError):
    """A guard did not hold (compare-and-swap failed); nothing was written. `key` is the first that failed."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} has changed")
        self.key = key


class Compacted(StoreError):
    """The requested revision has been compacted. `revision` is the oldest one that still works."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"compacted up to revision {revision}")
        self.revision = revision


class StoreUnavailable(StoreError):
    """The engine failed (disk full, I/O error, closed); nothing was written, but for OutcomeUnknown."""


class OutcomeUnknown(StoreUnavailable):
    """The engine has not answered in time. The commit may still happen; if so, listeners are called with it."""


class StoreDamaged(StoreUnavailable):
    """The file's content is corrupt; the store takes no more writes."""


class NoRoom(StoreError):
    """The disk has no room for a copy; the store itself is healthy."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class StoreTooNew(StoreError):
    """A newer version wrote the store; it was left untouched."""


@dataclass(frozen=True, slots=True)
class Write:
    """Set a key, or delete it when `value` is None.

    `ref` is not stored: it is passed on to this process's listeners, so that they need not decode the record again.
    """

    key: str
    value: bytes | None
    ref: Any = None


@dataclass(frozen=True, slots=True)
class Precondition:
    """Precondition of a commit: the key was last modified at exactly `revision`; 0 means that it does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class KeyValue:
    """The current value of a key, and the revision that wrote it."""

    key: str
    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The changes of one revision."""

    revision: int
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent read of a prefix: entries sorted by key, stored tombstones as (key, revision) by revision."""

    revision: int
    entries: tuple[KeyValue, ...]
    deleted: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Numbers of keys and tombstones (`deletions`), sizes in bytes; `free_bytes` is the unused part of `size_bytes`."""

    id: str
    revision: int
    compacted_revision: int
    size_bytes: int
    keys: int
    deletions: int
    free_bytes: int


class Store(Protocol):
    """What the hub needs of a storage engine. One contract suite (`tests/store`) runs against every implementation."""

    @property
    def name(self) -> str:
        """The location of the store, for messages to people."""
        ...

    @property
    def id(self) -> str:
        """A random id from the store's creation. Resume tokens contain it, so those of another store are rejected."""
        ...

    @property
    def revision(self) -> int:
        """The newest durable revision that listeners have seen."""
        ...

    @property
    def reconnects(self) -> int:
        """How often the connection for commits was made again; 0 for an engine that has none."""
        ...

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        """Apply all writes if all guards hold; return the revision once it is durable.

        Deleting a missing key changes nothing. Once begun, a commit finishes even if its caller is cancelled. Listeners
        have been called with this commit before it returns, and before WriteConflict is raised with the commit that
        won. Raises WriteConflict or StoreUnavailable; then nothing changed, except perhaps after OutcomeUnknown.
        """
        ...

    def listen(self, listener: Callable[[Commit], None]) -> Callable[[], None]:
        """Call `listener` on the event loop with each durable commit, in revision order, without gaps.

        Commits of other processes that share the store come in the same order; their writes have no `ref`. Several
        commits of others may be merged: a key that changed more than once comes once, in its newest state, at the
        revision of this state. The revisions in between are skipped, and a key that was made and deleted in between
        comes as deleted. The commits of this process come one by one.

        The listener must not block or raise. Returns a function that unsubscribes.
        """
        ...

    async def snapshot(self, prefix: str = "") -> Snapshot:
        """Read everything under a prefix at one revision. Raises StoreUnavailable."""
        ...

    def watch(self, prefix: str, after: int) -> AsyncIterator[Commit]:
        """Yield the newest state of each key that changed after revision `after`, at the revision of that state.

        Then yield each later commit to the prefix, whole and in order. Raises Compacted if the changes since `after`
        are not all stored any more, or if the store has never reached that revision (its file was restored from a
        copy). Raises StoreUnavailable when the store closes.
        """
        ...

    async def compact(self, revision: int) -> None:
        """Remove tombstones up to `revision`, before which watches can no longer resume. Raises StoreUnavailable."""
        ...

    async def reclaim(self) -> None:
        """Return the unused space of a file to the file system, with deleted and overwritten data erased.

        A database erases nothing, and uses the space again. Raises StoreUnavailable.
        """
        ...

    async def copy(self) -> BinaryIO:
        """Return a consistent copy as an open file without a name, whose space is freed when it is closed.

        A hub that opens the copy gives it an id of its own, so that no resume token of this store fits it: the two
        histories differ from then on. Commits go on meanwhile; copies are made one at a time. Raises NoRoom and
        StoreUnavailable.
        """
        ...

    async def stats(self) -> StoreStats:
        """Return sizes and counts. Raises StoreUnavailable."""
        ...

    async def probe(self) -> None:
        """Do all that a commit does, but change nothing. Raises StoreUnavailable if a commit could not succeed."""
        ...

    async def close(self) -> None:
        """Finish the commits that have begun and release file or connections. Later commits raise StoreUnavailable."""
        ...
