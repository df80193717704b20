"""`hub.store`: size, compaction and backup of the hub's store, and the ages of what it has."""

import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hubbub.v1 import admin_pb2
from hubbub_client.data.conversion import read
from hubbub_client.data.records import RECORDS, Record, StoreStatus
from hubbub_client.errors import AlreadyExists, Unavailable
from hubbub_client.services.service import HubService
from hubbub_client.waits import run_in_thread
from hubbub_shared.platform.files import sync

OnCopied = Callable[[int, int], Awaitable[None] | None]
"""Gets the bytes received and the bytes in all; both are 0 while the hub makes the copy."""


@dataclass(frozen=True, kw_only=True)
class Backup(Record):
    """A file with a copy of the store."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Compaction(Record):
    """Result of compacting the store; `deleted` counts records."""

    deleted: int
    before: StoreStatus | None
    after: StoreStatus | None


RECORDS["Compaction"] = Compaction  # so that the converter finds it


class Store(HubService):
    """The store of AdminService. Every method raises HubbubError."""

    async def stats(self) -> StoreStatus:
        """Return size and revisions of the store."""
        response = await self._connection.call(lambda hub: hub.admin.GetStoreStats, admin_pb2.GetStoreStatsRequest())
        return read(StoreStatus, response.store)

    async def compact(self) -> Compaction:
        """Delete now what exceeds the history limits, free the space, and return the result."""
        response = await self._connection.call(lambda hub: hub.admin.CompactStore, admin_pb2.CompactStoreRequest())
        return read(Compaction, response.compaction)

    async def trust_clock(self) -> float:
        """Confirm that the hub's clock is right: the time by which the clock jumped ahead (`doubted_ms`) counts now.

        Return that time in seconds.
        """
        response = await self._connection.call(lambda hub: hub.admin.TrustClock, admin_pb2.TrustClockRequest())
        return response.trusted_time.ToMicroseconds() / 1e6

    async def backup(self, path: str | Path, *, replace: bool = False, on_copied: OnCopied | None = None) -> Backup:
        """Write a copy of the store to a file on this machine that only its owner can read.

        The copy is made in `path` with `.partial`, and renamed once it is complete. Raises AlreadyExists (FILE_EXISTS)
        unless `replace`, Unavailable (BACKUP_INCOMPLETE), and OSError.
        """
        target, partial = Path(path), Path(f"{path}.partial")
        if not replace:
            _check_is_new(target)
        file = _create_file(partial)
        try:
            with file:
                size, digest = await self._fetch_backup(file, on_copied)
                await run_in_thread(_sync_file, file)
            _move_into_place(partial, target, replace=replace)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return Backup(path=str(target), size_bytes=size, sha256=digest)

    async def _fetch_backup(self, file: BinaryIO, on_copied: OnCopied | None) -> tuple[int, str]:
        """Write the backup to a file; return its size and digest. Raises Unavailable (BACKUP_INCOMPLETE)."""
        size, digest = 0, hashlib.sha256()
        steps = self._connection.stream(lambda hub: hub.admin.BackupStore, admin_pb2.BackupStoreRequest())
        async with contextlib.aclosing(steps):
            async for step in steps:
                if step.WhichOneof("step") == "end":
                    if (size, digest.hexdigest()) == (step.size_bytes, step.end.sha256):
                        return size, digest.hexdigest()
                    break
                await run_in_thread(file.write, step.chunk)
                digest.update(step.chunk)
                size += len(step.chunk)
                if on_copied is not None:
                    awaitable = on_copied(size, step.size_bytes)
                    if awaitable is not None:
                        await awaitable
        raise Unavailable("the backup is incomplete; try again", reason="BACKUP_INCOMPLETE")


def _create_file(path: Path) -> BinaryIO:
    """Create a file for its owner only, in place of one that an interrupted backup left."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sync_file(file: BinaryIO) -> None:
    """Make the content of a file durable."""
    file.flush()
    sync(file.fileno())


def _move_into_place(partial: Path, target: Path, *, replace: bool) -> None:
    """Rename the complete copy. Raises AlreadyExists if the target is there by now, unless `replace`."""
    if not replace:
        _check_is_new(target)
    partial.replace(target)


def _check_is_new(path: Path) -> None:
    """Raise AlreadyExists if there is anything at a path."""
    if os.path.lexists(path):  # a dangling link is not replaced either
        raise AlreadyExists(f"{path} already exists", reason="FILE_EXISTS", metadata={"path": str(path)})
