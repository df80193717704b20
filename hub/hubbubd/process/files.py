"""Small files that are written atomically."""

import os
from pathlib import Path

from hubbub_shared.platform.files import sync


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically (temporary file, fsync, rename), with mode 0600; durable on return.

    Raises OSError that names the file. Then the temporary file is deleted, and the file keeps its old content, unless
    only the last step failed: the sync of its directory.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            sync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as exc:
        temporary.unlink(missing_ok=True)
        raise OSError(f"{path} cannot be written: {exc.strerror}") from exc


def describe_permission_fix(path: str | Path, file_stat: os.stat_result) -> str:
    """Return what a person can do about a file that other accounts may read or change, as a part of a sentence.

    The hub's account cannot change the mode of a file of another account, such as one that a container mounts.
    """
    if file_stat.st_uid == os.geteuid():
        return f"`chmod 600 {path}`"
    return (
        f"it belongs to another account (uid {file_stat.st_uid}), so chmod 600 would lock the hub out: give it to the "
        f"hub's (uid {os.geteuid()}) with mode 600, or mount it so"
    )


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that new and renamed files in it outlast a power failure. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
