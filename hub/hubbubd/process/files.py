"""Small files that are written atomically."""

import os
from pathlib import Path

from hubbub_shared.platform.files import sync


def put(path: Path, content: bytes) -> None:
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


def how_to_close(path: str | Path, about: os.stat_result) -> str:
    """Return what to do about a file that others may use. What a container mounts may not be changed within it."""
    if about.st_uid == os.geteuid():
        return f"`chmod 600 {path}`"
    return (
        f"it belongs to another account (uid {about.st_uid}), so chmod 600 would lock the hub out: give it to the "
        f"hub's (uid {os.geteuid()}) with mode 600, or mount it so"
    )


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable: after a power failure a new or renamed file is there. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
