"""Files for their owner alone."""

import os
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are not there, each for its owner alone. Raises OSError."""
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)


def write_private(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all. Raises OSError."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
