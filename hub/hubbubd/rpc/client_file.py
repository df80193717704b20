"""`client.json` in the data directory: where local clients find the address and the token."""

import secrets
from pathlib import Path
from typing import Any, cast

from hubbubd import files, payload

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
    """Puts the file in place, readable by its owner only; returns its path. Raises OSError.

    One that says the same already is left alone, so that a hub can start again on a full disk.
    """
    path = data_dir / NAME
    content = payload.dumps({"address": address, "token": token}) + b"\n"
    if not (path.is_file() and path.read_bytes() == content and not path.stat().st_mode & 0o077):
        files.put(path, content)
    return path
