"""Turn errors of SQLite and the system into sentences that tell an operator what to do."""

import errno
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from hubbubd.store import StoreDamaged, StoreUnavailable

PRIMARY = 0xFF
"""Mask of the primary code in SQLite's extended result codes."""

_FULL = "the disk is full; make room"
_BROKEN = "the disk failed; look into the system's log, and check the disk"
_NOT_WRITABLE = "it cannot be written; make the file, its directory and their file system writable"

_BY_SQLITE_CODE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _BROKEN,
    sqlite3.SQLITE_READONLY: _NOT_WRITABLE,
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check its directory, and who may use it",
}
_BY_ERRNO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EIO: _BROKEN,
    errno.EROFS: _NOT_WRITABLE,
    errno.EACCES: _NOT_WRITABLE,
    errno.EPERM: _NOT_WRITABLE,
    errno.EISDIR: "there is a directory in its place; move it away",
}

RESTORE = "stop the hub and put back a copy that `hubbub store backup` made"


@contextmanager
def explain_errors(name: str) -> Generator[None]:
    """Raise the block's errors of SQLite and the system as StoreUnavailable, or StoreDamaged if only a backup helps."""
    try:
        yield
    except sqlite3.Error as exc:
        # Errors raised by Python's sqlite3 module itself have no code.
        code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & PRIMARY in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise damaged_error(name, str(exc)) from exc
        reason = f"{exc}, {exc.sqlite_errorname}" if code & PRIMARY == sqlite3.SQLITE_IOERR else str(exc)
        raise unavailable_error(name, _BY_SQLITE_CODE.get(code & PRIMARY), reason) from exc
    except OSError as exc:
        raise unavailable_error(name, _BY_ERRNO.get(exc.errno or 0), exc.strerror or str(exc)) from exc


def damaged_error(name: str, reason: str) -> StoreDamaged:
    """Return the error for a file with corrupt content; `reason` is SQLite's reason."""
    return StoreDamaged(f"the store {name} is damaged ({reason}); {RESTORE}")


def unavailable_error(name: str, advice: str | None, reason: str) -> StoreUnavailable:
    """Return the error of a store that failed, with a message for people; `advice`, if any, says what to do."""
    problem = f"{advice} ({reason})" if advice else reason
    return StoreUnavailable(f"the store {name} failed: {problem}")
