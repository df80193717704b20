"""The content of the store when the hub starts, and the commits until the ledger follows the store."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from operator import attrgetter

from hubbubd.runtime.records.broadcast import WatcherLimit
from hubbubd.runtime.records.condition import StoreProgress
from hubbubd.store import Commit, KeyValue, Snapshot, Store


@dataclass(frozen=True)
class StoreContent:
    """The content of the store at the start, and the limit that all its watchers share.

    `oldest` is the revision up to which the store has forgotten tombstones. `commits` collects the commits of others
    from the snapshot until `hand_over`.
    """

    store_id: str
    snapshot: Snapshot
    oldest: int
    watcher_limit: WatcherLimit
    _: KW_ONLY
    commits: list[Commit] = field(default_factory=list[Commit])
    stop_listening: Callable[[], None] = lambda: None

    @classmethod
    async def read(cls, store: Store, watcher_limit: WatcherLimit) -> "StoreContent":
        """Read the whole store, and collect the commits of others until a ledger follows it. Raises StoreError."""
        commits: list[Commit] = []
        stop_listening = store.listen(commits.append)  # before the snapshot, so that no commit falls in between
        try:
            snapshot = await store.snapshot("")
            oldest = (await store.stats()).compacted_revision
        except BaseException:
            stop_listening()
            raise
        return cls(store.id, snapshot, oldest, watcher_limit, commits=commits, stop_listening=stop_listening)

    @cached_property
    def progress(self) -> StoreProgress:
        """The revision that the tables loaded from this content have; the ledger advances it."""
        return StoreProgress(self.snapshot.revision)

    @cached_property
    def entries(self) -> dict[str, list[KeyValue]]:
        """The records by noun, each in the order of their last change."""
        entries: dict[str, list[KeyValue]] = {}
        for entry in sorted(self.snapshot.entries, key=attrgetter("revision")):
            entries.setdefault(entry.key.partition("/")[0], []).append(entry)
        return entries

    def hand_over(self, listener: Callable[[Commit], None]) -> None:
        """Stop collecting commits; call the listener with each of those collected since the snapshot was read.

        The listener must follow the store already, so that it misses no commit.
        """
        self.stop_listening()
        for commit in self.commits:
            listener(commit)
