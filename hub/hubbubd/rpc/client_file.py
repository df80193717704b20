"""`client.json` in the data directory: where local clients find the address and the token."""

import os
import secrets
from pathlib import Path
from typing import Any, cast

from hubbubd import payload

NAME = "client.json"


def token(data_dir: Path) -> str:
    """The token of the last start, or a new one when there is none that only the owner could read."""
    path = data_dir / NAME
    try:
        others_may_read = path.stat().st_mode & 0o077
        known = cast("dict[str, Any]", payload.loads(path.read_bytes())).get("token")
    except (FileNotFoundError, ValueError, AttributeError):
        return secrets.token_urlsafe(32)
    return known if isinstance(known, str) and known and not others_may_read else secrets.token_urlsafe(32)


def write(data_dir: Path, *, address: str, token: str) -> Path:
    """Puts the file in place in one step, readable by its owner only; returns its path. Raises OSError."""
    path = data_dir / NAME
    draft = data_dir / f".{NAME}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(payload.dumps({"address": address, "token": token}) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return draft.replace(path)
