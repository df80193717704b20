"""The hub and the endpoint for a host, from the command line."""

import contextlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from hubbub_bridge.response_cache import ResponseCache
from hubbub_client.transport.discovery import HubLocation
from hubbub_shared.platform.directories import default_data_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """The hub and the endpoint for a host. `name` is the author that the hub records; `start`: start a missing hub."""

    where: HubLocation = field(repr=False)
    version: str
    name: str | None = None
    profile: str | None = None
    server: str | None = None
    start: bool = False
    session_key: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def endpoint_params(self) -> dict[str, str]:
        """The server or the profile that the host sees, by the parameter's name in the API."""
        return {"server": self.server} if self.server else {"profile": self.profile or "default"}

    def open_cache(self) -> ResponseCache:
        """Open the cache of responses of this endpoint; callers with another token have another cache."""
        address = self.where.address or os.environ.get("HUBBUB_ADDRESS")
        token = self.where.token or os.environ.get("HUBBUB_TOKEN")
        return ResponseCache(
            self._cache_dir, address, token, self.name, *self.endpoint_params, *self.endpoint_params.values()
        )

    @property
    def _cache_dir(self) -> Path | None:
        """The directory of the cache: the data directory; None if this user has none."""
        data_dir = self.where.data_dir or os.environ.get("HUBBUB_DATA_DIR")
        with contextlib.suppress(RuntimeError):
            return Path(data_dir) if data_dir else default_data_dir(os.environ)
        return None
