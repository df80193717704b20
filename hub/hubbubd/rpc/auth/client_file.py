"""`client.json` in the data directory: tells local clients the address and the token."""

import secrets
from pathlib import Path
from typing import Any, cast

from hubbubd import payload
from hubbubd.process import files

NAME = "client.json"


def load_or_make_token(data_dir: Path) -> str:
    """Return the token in the client.json of the last start; a new one if there is none, or others could read it."""
    path = data_dir / NAME
    try:
        others_may_read = path.stat().st_mode & 0o077
        token = cast("dict[str, Any]", payload.loads(path.read_bytes())).get("token")
    except (FileNotFoundError, ValueError, AttributeError):  # AttributeError: JSON that is no object
        return secrets.token_urlsafe(32)
    return token if isinstance(token, str) and token and not others_may_read else secrets.token_urlsafe(32)


def write(data_dir: Path, *, address: str, token: str, connect: str | None = None, mcp: str | None = None) -> Path:
    """Write the file atomically, with mode 0600, and return its path. Raises OSError.

    A file with the same content is left alone, so that a hub can start on a full disk.
    """
    path = data_dir / NAME
    urls = {name: url for name, url in (("connect", connect), ("mcp", mcp)) if url}
    members = {"address": address, "token": token, **urls}
    content = payload.dumps(members) + b"\n"
    if not (path.is_file() and path.read_bytes() == content and not path.stat().st_mode & 0o077):
        files.write_atomically(path, content)
    return path
