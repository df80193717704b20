"""Buffers of commits that watchers of the store have not read yet. Called by `group_commit`."""

import asyncio
from collections import deque

from hubbubd.store import Commit

UNREAD_COMMITS = 256
"""Commits that one watcher may leave unread; it reads from a snapshot after that."""


class CommitBuffer:
    """A watcher's bounded buffer of live commits. On overflow it is emptied, and the watcher has to read a snapshot.

    The watcher has seen all of the prefix up to `position`, or is catching up to it.
    """

    def __init__(self, prefix: str, position: int) -> None:
        """Buffer commits to keys under `prefix`, after the revision `position`."""
        self.position = position
        self.has_overflowed = False
        self._prefix = prefix
        self._unread: deque[Commit] = deque()
        self._changed = asyncio.Event()

    def add(self, commit: Commit) -> None:
        """Add a commit's writes under the prefix, if it has any.

        If UNREAD_COMMITS wait already, empty the buffer and set `has_overflowed`; from then on nothing is added.
        """
        if self.has_overflowed:
            return
        writes = tuple(write for write in commit.writes if write.key.startswith(self._prefix))
        if not writes:
            if not self._unread:  # nothing unread, so the watcher is up to date with this commit
                self.position = max(self.position, commit.revision)
            return
        if len(self._unread) == UNREAD_COMMITS:
            self._unread.clear()
            self.has_overflowed = True
        else:
            self._unread.append(Commit(commit.revision, writes))
        self._changed.set()

    def take_next(self) -> Commit | None:
        """Return the next commit after `position` and advance it; None when there is none."""
        while self._unread:
            commit = self._unread.popleft()
            if commit.revision > self.position:
                self.position = commit.revision
                return commit
        return None

    def wake(self) -> None:
        """End `wait_for_change` without a commit: the store has closed."""
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until a commit is added or the buffer overflows, or `wake` is called."""
        await self._changed.wait()
        self._changed.clear()
