"""What a host sees of which hub, as the command line says."""

import contextlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from hubbub_bridge.response_cache import ResponseCache


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """How to reach the hub, as `hubbub_client.connect`; None leaves it to the environment or `client.json`."""

    address: str | None = None
    token: str | None = field(default=None, repr=False)
    data_dir: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    name: str | None = None

    @property
    def memory_dir(self) -> Path | None:
        """Where what the hub said is kept: the data directory; None if this user has none."""
        given = self.data_dir or os.environ.get("HUBBUB_DATA_DIR")
        if given:
            return Path(given)
        if base := os.environ.get("XDG_DATA_HOME"):
            return Path(base) / "hubbub"
        with contextlib.suppress(RuntimeError):
            return Path.home() / ".local" / "share" / "hubbub"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """What a host sees of the hub, over which bridge. `start`: start a hub if there is none."""

    reach: HubOptions
    version: str
    profile: str | None = None
    server: str | None = None
    start: bool = False
    session_key: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def named(self) -> dict[str, str]:
        """The server or the profile, by its name in the API."""
        return {"server": self.server} if self.server else {"profile": self.profile or "default"}

    def memory(self) -> ResponseCache:
        """Return what the hub said last at this endpoint, to whoever has the same token."""
        reach, environ = self.reach, os.environ
        way = (reach.address or environ.get("HUBBUB_ADDRESS"), reach.token or environ.get("HUBBUB_TOKEN"), reach.name)
        return ResponseCache(reach.memory_dir, *way, *self.named, *self.named.values())
