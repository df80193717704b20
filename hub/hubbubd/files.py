"""Small files that are written whole or not at all."""

import os
from pathlib import Path


def put(path: Path, content: bytes) -> None:
    """Puts a file in place in one step, durable and for its owner only.

    Raises OSError that names the file; what was there before then stays, and nothing else is left.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as exc:
        draft.unlink(missing_ok=True)
        raise OSError(f"{path} cannot be written: {exc.strerror}") from exc
