"""Small files that are written atomically."""

import os
from pathlib import Path

from hubbub_shared.platform.files import sync


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically (temporary file, fsync, rename), with mode 0600; durable on return.

    Raises OSError that names the file. Then no temporary file is left, and the old content stays, unless only the sync
    of the directory failed.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            sync(file.fileno())
        draft.replace(path)
        sync_directory(path.parent)
    except OSError as exc:
        draft.unlink(missing_ok=True)
        raise OSError(f"{path} cannot be written: {exc.strerror}") from exc


def describe_permission_fix(path: str | Path, status: os.stat_result) -> str:
    """Return what a person can do about a file that other accounts may read or change, as a part of a sentence.

    A file of another account, such as one that a container mounts, cannot be changed by the hub's account.
    """
    if status.st_uid == os.geteuid():
        return f"`chmod 600 {path}`"
    return (
        f"it belongs to another account (uid {status.st_uid}), so chmod 600 would lock the hub out: give it to the "
        f"hub's (uid {os.geteuid()}) with mode 600, or mount it so"
    )


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable: after a power failure a new or renamed file is there. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
