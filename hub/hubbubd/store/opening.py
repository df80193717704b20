"""How the store's file is claimed, made and looked at, before anything in it is changed."""

import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from hubbubd.store import StoreLocked, StoreUnavailable
from hubbubd.store.errors import damaged, explained
from hubbubd.store.schema import MIGRATIONS, Migration, migrate, recognise


def claim(path: Path) -> int:
    """A descriptor that holds the store for this process; the system lets go of it however the process ends.

    Raises StoreLocked and OSError.
    """
    # A file of its own, because closing any descriptor of the database would drop SQLite's locks on it.
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode().strip() or "unknown"
        os.close(lock)
        problem = f"the store {path} is in use by another hub (process {holder}); stop it, or choose another directory"
        raise StoreLocked(problem) from None
    with suppress(OSError):  # the lock holds also on a full disk
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


@contextmanager
def connected(database: str, *, uri: bool = False) -> Generator[sqlite3.Connection]:
    """A connection without transactions of its own, which never waits for another."""
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None, check_same_thread=False, uri=uri)) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA synchronous = FULL")
        # What is deleted or overwritten leaves zeros: prompts are personal data.
        db.execute("PRAGMA secure_delete = ON")
        yield db


def find_or_make(path: Path, migrations: Sequence[Migration]) -> None:
    """Leaves a whole store at a path, for its owner only: one that was there and is sound, or a new one.

    Raises StoreUnavailable, StoreDamaged, StoreTooNew, OSError and sqlite3.Error; then a file that was there is
    as it was.
    """
    if path.exists():
        _inspect(path, migrations)
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(mode & 0o700)  # its journal gets the same
    else:
        _create(path, migrations)


def look_at(path: Path) -> None:
    """Looks whether the store at a path is sound, and leaves it as it is.

    Raises StoreLocked when a hub has it open, StoreTooNew, StoreDamaged and StoreUnavailable.
    """
    with explained(str(path)):
        lock = claim(path)
        try:
            _inspect(path, MIGRATIONS)
        finally:
            os.close(lock)


def _beside(path: Path, suffix: str) -> Path:
    return Path(f"{path.resolve()}{suffix}")


def _holds(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _create(path: Path, migrations: Sequence[Migration]) -> None:
    """Makes a store under another name first, so that one appears whole or not at all."""
    if _holds(_beside(path, "-wal")):
        raise StoreUnavailable(f"the store {path} is missing, but its journal is there; put it back, or move that away")
    draft = path.with_name(f"{path.name}.new")
    leftovers = [Path(f"{draft}{suffix}") for suffix in ("", "-journal", "-wal")]
    try:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with connected(str(draft)) as db:
            migrate(db, str(path), migrations)
            db.execute("PRAGMA journal_mode = WAL")
        draft.replace(path)
    except BaseException:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _inspect(path: Path, migrations: Sequence[Migration]) -> None:
    """Looks whether a file is a store that can be used, without changing a byte of it or of its journal."""
    # SQLite would go on with a file that it can only read. A superuser can write any file, but whoever took that
    # right away meant it.
    os.close(os.open(path, os.O_RDWR))
    if not path.stat().st_mode & stat.S_IWUSR:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if not path.stat().st_size:
        raise damaged(str(path), "it is empty")
    journal = _beside(path, "-wal")
    if _holds(_beside(path, "-journal")):
        return None  # a copy that was becoming a store: only changing the file makes it whole
    alone = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    if not _holds(journal):
        with connected(alone, uri=True) as db:
            return _check(db, path, migrations)
    # Only the file and its journal together are the store: a checkpoint that was interrupted leaves a file that makes
    # no sense alone. Locks are not needed as the store is claimed, and a file that is open for reading could not be
    # locked as SQLite wants it here. Closing folds the journal into a file only when that can be written.
    with connected(f"{path.absolute().as_uri()}?mode=ro&vfs=unix-none", uri=True) as db:
        if _is_of_another(alone, identity(db)):
            raise StoreUnavailable(f"the journal {journal} is not that of {path.name}; move it away")
        return _check(db, path, migrations)


def _is_of_another(alone: str, id_with_journal: str | None) -> bool:
    """Whether the file, looked at without the journal, is a whole store of another id.

    Errors say nothing here, nor does the id in a file that is not sound: pages of it may be written in part.
    """
    with suppress(sqlite3.Error), connected(alone, uri=True) as db:
        known_as = identity(db)
        return known_as is not None and known_as != id_with_journal and _integrity(db) == "ok"
    return False


def identity(db: sqlite3.Connection) -> str | None:
    """The store's id; empty for a copy that has not been opened yet, None when there is none to be read."""
    with suppress(sqlite3.Error):
        return (db.execute("SELECT id FROM meta").fetchone() or (None,))[0]
    return None


def _check(db: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    recognise(db, str(path), migrations)
    integrity = _integrity(db)
    if integrity != "ok":
        raise damaged(str(path), integrity.splitlines()[-1])


def _integrity(db: sqlite3.Connection) -> str:
    """What SQLite's own check says: "ok", or the first thing that is wrong."""
    return db.execute("PRAGMA quick_check(1)").fetchone()[0]
