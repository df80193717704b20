"""Lock, create and inspect the store's file before anything in it is changed. Called by `Engine.open` and
`--check-config`.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from hubbub_shared.platform import files as platform_files
from hubbubd.process import files
from hubbubd.store import StoreLocked, StoreUnavailable
from hubbubd.store.errors import damaged_error, explain_errors
from hubbubd.store.sqlite.schema import MIGRATIONS, Migration, migrate, read_version

CACHED_STATEMENTS = 8
"""How many prepared statements a connection caches; each also holds its last values in memory."""


def lock_store(path: Path) -> int:
    """Lock the store for this process and return the lock's descriptor; the kernel releases it when the process ends.

    Raises StoreLocked and OSError.
    """
    # A separate file: closing any descriptor of the database would drop SQLite's POSIX locks on it.
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not platform_files.lock(lock):
        holder = os.pread(lock, 20, 0).decode().strip() or "unknown"
        os.close(lock)
        problem = f"the store {path} is in use by another hub (process {holder}); stop it, or choose another directory"
        raise StoreLocked(problem)
    with suppress(OSError):  # the lock also holds without the process id, as on a full disk
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


@contextmanager
def open_connection(database: str, *, uri: bool = False) -> Generator[sqlite3.Connection]:
    """Yield a connection without implicit transactions, which never waits for a lock and syncs each commit to disk.

    With `uri` the database is named by a URI of SQLite. Any thread may use the connection, one at a time.
    """
    db = sqlite3.connect(
        database,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
        uri=uri,
    )
    with closing(db):
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA synchronous = FULL")
        # On macOS alone a sync then reaches the disk itself, and not only the drive (sqlite.org/pragma.html).
        db.execute("PRAGMA fullfsync = ON")
        db.execute("PRAGMA checkpoint_fullfsync = ON")
        # Overwrite deleted data with zeros: what servers ask and people answer is personal data.
        db.execute("PRAGMA secure_delete = ON")
        yield db


def ensure_store(path: Path, migrations: Sequence[Migration]) -> None:
    """Ensure a sound store at a path: check an existing file and make it accessible to its owner only, or create one.

    Raises StoreUnavailable, StoreDamaged, StoreTooNew, OSError and sqlite3.Error; an existing file is then unchanged.
    """
    if path.exists():
        _check_unopened(path, migrations)
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(mode & 0o700)  # SQLite gives its journal the same mode
    else:
        _create_store(path, migrations)


def check_file(path: Path) -> None:
    """Check that the store at a path is sound, without changing it.

    Raises StoreLocked when a hub has it open, StoreTooNew, StoreDamaged and StoreUnavailable.
    """
    with explain_errors(str(path)):
        lock = lock_store(path)
        try:
            _check_unopened(path, MIGRATIONS)
        finally:
            os.close(lock)


def _journal_path(path: Path, suffix: str) -> Path:
    """Return the path of a journal that SQLite keeps beside a database, by its suffix: `-wal` or `-journal`."""
    return Path(f"{path.resolve()}{suffix}")


def _is_nonempty_file(path: Path) -> bool:
    """Return whether there is a file at a path, and it is not empty."""
    return path.exists() and path.stat().st_size > 0


def _create_store(path: Path, migrations: Sequence[Migration]) -> None:
    """Create a store under another name and rename it, so that it appears whole or not at all; durable on return.

    Raises StoreUnavailable, also if the journal of a missing store is there, OSError and sqlite3.Error.
    """
    require_no_journal(path)
    draft = path.with_name(f"{path.name}.new")
    leftovers = [Path(f"{draft}{suffix}") for suffix in ("", "-journal", "-wal")]
    try:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with open_connection(str(draft)) as db:
            migrate(db, str(path), migrations)
            db.execute("PRAGMA journal_mode = WAL")
        draft.replace(path)
    except BaseException:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        raise
    files.sync_directory(path.parent)


def _check_unopened(path: Path, migrations: Sequence[Migration]) -> None:
    """Check that a file is a usable store, without changing a byte of it or of its journal.

    Raises StoreUnavailable, StoreTooNew, StoreDamaged, OSError and sqlite3.Error.
    """
    # SQLite would open a read-only file without an error. The superuser can write any file, but a file whose owner may
    # not write it was made so on purpose.
    os.close(os.open(path, os.O_RDWR))
    if not path.stat().st_mode & stat.S_IWUSR:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if path.stat().st_size and _is_nonempty_file(_journal_path(path, "-journal")):
        return  # a restored copy with a hot rollback journal: only SQLite's recovery, a change, makes it whole
    with open_readonly(path) as db:
        check_sound(db, path, migrations)


@contextmanager
def open_readonly(path: Path) -> Generator[sqlite3.Connection]:
    """Yield a read-only connection to a locked store and its journal, without changing a byte of either.

    Raises StoreUnavailable, StoreDamaged, OSError and sqlite3.Error.
    """
    if not path.stat().st_size:
        raise damaged_error(str(path), "it is empty")
    if _is_nonempty_file(_journal_path(path, "-journal")):
        raise StoreUnavailable(f"the store {path} was left in the middle of a change; let a hub open it once")
    journal = _journal_path(path, "-wal")
    file_only_uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    if not _is_nonempty_file(journal):
        with open_connection(file_only_uri, uri=True) as db:
            yield db
        return
    # Only file and journal together are the store: an interrupted checkpoint leaves a file that is inconsistent alone.
    # No locks (unix-none) as the store is locked, and SQLite cannot take its exclusive lock on a file that is open
    # for reading. Closing a read-only connection does not checkpoint.
    with open_connection(f"{path.absolute().as_uri()}?mode=ro&vfs=unix-none", uri=True) as db:
        if _has_other_id(file_only_uri, read_id(db)):
            raise StoreUnavailable(f"the journal {journal} is not that of {path.name}; move it away")
        yield db


def require_no_journal(path: Path) -> None:
    """Raise StoreUnavailable if a store is missing, but its journal is there."""
    if not path.exists() and _is_nonempty_file(_journal_path(path, "-wal")):
        raise StoreUnavailable(f"the store {path} is missing, but its journal is there; put it back, or move that away")


def _has_other_id(file_only_uri: str, id_with_journal: str | None) -> bool:
    """Return whether the file, read without the journal, is a sound store with another id.

    Errors count as no, and so does the id in an unsound file: its pages may be partly written.
    """
    with suppress(sqlite3.Error), open_connection(file_only_uri, uri=True) as db:
        file_id = read_id(db)
        return file_id is not None and file_id != id_with_journal and _check_integrity(db) == "ok"
    return False


def read_id(db: sqlite3.Connection) -> str | None:
    """Return the id of the store in a database; "" for a copy that was never opened, None if no id can be read."""
    with suppress(sqlite3.Error):
        return (db.execute("SELECT id FROM meta").fetchone() or (None,))[0]
    return None


def check_sound(db: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    """Check that an open database is a sound store. Raises StoreUnavailable, StoreTooNew and StoreDamaged."""
    read_version(db, str(path), migrations)
    integrity = _check_integrity(db)
    if integrity != "ok":
        raise damaged_error(str(path), integrity.splitlines()[-1])


def _check_integrity(db: sqlite3.Connection) -> str:
    """Return the result of SQLite's quick_check: "ok", or the first problem."""
    return db.execute("PRAGMA quick_check(1)").fetchone()[0]
