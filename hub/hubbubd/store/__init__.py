"""Revisioned keys with atomic, guarded commits; shaped like etcd so that another engine can come later.

The store knows nothing about what it holds. Every commit that changes something gets the next revision; the
writes of one commit share it.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol


class StoreError(Exception):
    """Base of the store's own errors."""


class Conflict(StoreError):
    """A guard did not hold; nothing was written. `key` is the first one that failed."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} has changed")
        self.key = key


class Compacted(StoreError):
    """The revision asked for is older than what the store still knows. `revision` is the oldest that works."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"compacted up to revision {revision}")
        self.revision = revision


class StoreUnavailable(StoreError):
    """The engine failed (disk full, I/O error, closed); nothing was written."""


class StoreDamaged(StoreUnavailable):
    """What the store holds cannot be read; it takes no more writes."""


class NoRoom(StoreError):
    """The disk cannot hold what was asked for beside the store; the store itself is well."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class StoreTooNew(StoreError):
    """Written by a newer version of the hub; left untouched."""


@dataclass(frozen=True, slots=True)
class Write:
    """Sets a key, or deletes it when `value` is None.

    `ref` is never stored: it is handed unchanged to the listeners in this process, so that the writer's decoded
    record need not be parsed again.
    """

    key: str
    value: bytes | None
    ref: Any = None


@dataclass(frozen=True, slots=True)
class Guard:
    """Holds when the key's last modification is exactly `revision`; 0 means the key does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it is now."""

    key: str
    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Commit:
    """What one revision changed."""

    revision: int
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All entries under a prefix at one revision, by key; and the deletions still known, by revision."""

    revision: int
    entries: tuple[Entry, ...]
    deleted: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """The store in numbers: its keys, the deletions it still knows, and of its bytes those that are free."""

    id: str
    revision: int
    compacted_revision: int
    size_bytes: int
    keys: int
    deletions: int
    free_bytes: int


class Store(Protocol):
    """What the hub needs of an engine. One contract suite runs over every implementation."""

    @property
    def name(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def id(self) -> str:
        """Made when the store was created; part of every resume token."""
        ...

    @property
    def revision(self) -> int:
        """The newest durable revision that listeners have been told."""
        ...

    async def commit(self, writes: Sequence[Write], guards: Sequence[Guard] = ()) -> int:
        """Applies all writes when all guards hold; returns the revision once it is durable.

        Deleting a missing key is no change. Once begun, a commit finishes even when its caller is cancelled.
        Listeners have been told before it returns. Raises Conflict or StoreUnavailable; then nothing changed.
        """
        ...

    def listen(self, listener: Callable[[Commit], None]) -> Callable[[], None]:
        """Calls `listener` on the event loop with each durable commit, in revision order, without gaps.

        The listener must not block and must not raise. Returns a function that ends it.
        """
        ...

    async def snapshot(self, prefix: str = "") -> Snapshot:
        """Everything under a prefix. Raises StoreUnavailable."""
        ...

    def watch(self, prefix: str, after: int) -> AsyncIterator[Commit]:
        """The commits that touched the prefix since revision `after`, then those to come; atomic, ordered, gapless.

        Catching up shows the newest state of each key, once, at its own revision. Raises Compacted, also for a
        revision never reached (the file was put back from a copy), and StoreUnavailable when the store closes.
        """
        ...

    async def compact(self, revision: int) -> None:
        """Forgets deletions up to `revision`; older positions can no longer be resumed from."""
        ...

    async def reclaim(self) -> None:
        """Gives unused space back, and leaves nothing of what was deleted or overwritten. Raises StoreUnavailable."""
        ...

    async def copy(self) -> BinaryIO:
        """All there is at one moment, as a file from which a store can be opened; it is gone when it is closed.

        The copy has another history from there on, so no resume token of this store is good for it.
        Commits go on meanwhile; one copy is made at a time. Raises NoRoom and StoreUnavailable.
        """
        ...

    async def stats(self) -> StoreStats:
        """The store in numbers."""
        ...

    async def probe(self) -> None:
        """Does what a commit does, and changes nothing. Raises StoreUnavailable when a commit could not succeed."""
        ...

    async def close(self) -> None:
        """Finishes what was begun and lets go of the file. Commits that come later raise StoreUnavailable."""
        ...
