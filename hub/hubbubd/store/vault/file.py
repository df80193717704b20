"""The vault, `tokens.json` in the data directory: OAuth tokens and secrets of added servers, in a file with mode 0600.

These secrets are nowhere else, so that the store and its copies have none. A fleet has them sealed in its database
instead (`postgres/vault.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread
from pydantic import TypeAdapter, ValidationError

from hubbubd import payload
from hubbubd.process import files
from hubbubd.store import StoreError

NAME = "tokens.json"

_SHAPE: Final = TypeAdapter(dict[str, dict[str, Any]])


class TokenFile:
    """The vault in a file; implements `upstream.ports.SecretsVault`."""

    def __init__(self, path: Path, secrets: dict[str, dict[str, Any]]) -> None:
        self._path = path
        self._secrets = secrets
        self._write_lock = anyio.Lock()

    @classmethod
    def open(cls, data_dir: Path) -> "TokenFile":
        """Load the file, after making it accessible to its owner only; start empty if there is no file.

        Raises OSError, and StoreError for a file that does not parse.
        """
        path = data_dir / NAME
        try:
            path.chmod(0o600)
            return cls(path, _SHAPE.validate_json(path.read_bytes()))
        except FileNotFoundError:
            return cls(path, {})
        except ValidationError:
            raise StoreError(f"{path} is damaged; without it, servers ask to let the hub in again") from None

    def get(self, server: str) -> dict[str, Any] | None:
        """Return the secrets stored for a server; None if there are none."""
        return self._secrets.get(server)

    async def put(self, server: str, secrets: dict[str, Any] | None) -> None:
        """Replace the secrets stored for a server (None deletes them); durable on return. Raises OSError."""
        async with self._write_lock:
            new_secrets = {name: value for name, value in self._secrets.items() if name != server}
            if secrets is not None:
                new_secrets[server] = secrets
            if new_secrets != self._secrets:
                await to_thread.run_sync(files.write_atomically, self._path, payload.dumps(new_secrets) + b"\n")
            self._secrets = new_secrets

    async def refresh(self, *servers: str) -> None:
        """Do nothing: no other process writes the file."""

    def all(self) -> dict[str, dict[str, Any]]:
        """Return all secrets by the names under which they are stored."""
        return dict(self._secrets)

    async def put_all(self, secrets: Mapping[str, dict[str, Any]]) -> None:
        """Store all these secrets, in a file that has none; durable on return. Raises OSError, and StoreError."""
        async with self._write_lock:
            if self._secrets:
                raise StoreError(f"{self._path} has secrets already; move it away")
            new_secrets = dict(secrets)
            await to_thread.run_sync(files.write_atomically, self._path, payload.dumps(new_secrets) + b"\n")
            self._secrets = new_secrets
