"""Where the hub is: from arguments, the environment, or the `client.json` that a running hub leaves behind."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hubbub_client.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`address` is HOST:PORT or unix:PATH; `source` says in words where it was found."""

    address: str
    token: str | None
    source: str


def default_data_dir() -> Path:
    """`hubbub` below XDG_DATA_HOME (https://specifications.freedesktop.org/basedir-spec)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "hubbub"


def discover(address: str | None, token: str | None, data_dir: str | Path | None) -> Endpoint:
    """The hub to talk to; reads the disk each time, since a restarted hub may have moved.

    Raises Unavailable when no address is found anywhere.
    """
    source = "as given" if address else "from HUBBUB_ADDRESS"
    address = address or os.environ.get("HUBBUB_ADDRESS")
    token = token or os.environ.get("HUBBUB_TOKEN")
    if address and token:
        return Endpoint(address, token, source)
    file = Path(data_dir or os.environ.get("HUBBUB_DATA_DIR") or default_data_dir()) / "client.json"
    found = _client_file(file)
    if address:
        # The token of one hub is not shown to another.
        return Endpoint(address, found.get("token") if found.get("address") == address else None, source)
    if "address" not in found:
        raise Unavailable(
            f"no hub found: {file} is missing or not readable; start hubbubd, or name the hub's address and token",
            reason="HUB_UNREACHABLE",
            metadata={"client_file": str(file)},
        )
    return Endpoint(found["address"], token or found.get("token"), f"from {file}")


def _client_file(file: Path) -> dict[str, str]:
    try:
        content: object = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in cast("dict[str, Any]", content).items() if isinstance(value, str)}
