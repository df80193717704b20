"""Files for their owner alone."""

import os
from pathlib import Path

from hubbub_shared.platform.files import sync


def make_private_folder(folder: Path) -> None:
    """Make a folder, and the missing folders above it, for the owner alone. Raises OSError."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)


def write_private(file: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file whole or not at all, never with wider permissions than `mode`. Raises OSError."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)  # a file that is there already could have wider permissions
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as output:
            output.write(content)
            output.flush()
            sync(output.fileno())
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
