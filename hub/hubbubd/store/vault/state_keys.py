"""The keys that seal request states: a file in the data directory, kept over restarts.

There are two keys at most. The newer one seals, both open. A key is replaced after ROTATE_S and still opens for as
long again, so a state that lives for ROTATE_S at most does not outlive its key.
"""

import secrets
from pathlib import Path
from typing import Annotated, Final

import anyio
import structlog
from anyio import to_thread
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from hubbubd.bounds import Moment
from hubbubd.process import files
from hubbubd.store import StoreError
from hubbubd.timing.clock import Clock

NAME: Final = "state_keys.json"

KEY_BYTES: Final = 32
"""AES-256."""

ROTATE_S: Final = 30 * 86_400.0
"""Seconds until a key is replaced. A thousand states a second stay below the 2^32 for which a key with random nonces is
good (NIST SP 800-38D, section 8.3)."""

LOOK_S: Final = 3600.0
"""Seconds between checks of the key's age: the clock may be set, and the computer suspended."""

_MAX_FILE_BYTES: Final = 4096  # bytes; two keys take 200

log = structlog.get_logger(__name__)


class StateKey(BaseModel):
    """A key, and when it was made in epoch seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    secret: Annotated[Base64Bytes, Field(min_length=KEY_BYTES, max_length=KEY_BYTES, repr=False)]
    made_at: Moment


class StateKeys(BaseModel):
    """What the file has: the keys, the newest first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: Annotated[tuple[StateKey, ...], Field(max_length=2)] = ()

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The keys themselves, the newest first."""
        return tuple(key.secret for key in self.keys)

    def is_due(self, now: float) -> bool:
        """Return whether a new key is due; also if the newest is from the far future, as the clock was set back."""
        return not self.keys or abs(now - self.keys[0].made_at) >= ROTATE_S

    def with_new_key(self, now: float) -> "StateKeys":
        """Return a new key and the newest of these keys, in this order."""
        # Keys are bytes here, and Base64Bytes would decode them.
        new = StateKey.model_construct(secret=secrets.token_bytes(KEY_BYTES), made_at=now)
        return StateKeys.model_construct(keys=(new, *self.keys[:1]))


class StateKeyRing:
    """The keys of a data directory, as they are now."""

    def __init__(self, path: Path, clock: Clock, keys: StateKeys) -> None:
        self._path = path
        self._clock = clock
        self._keys = keys
        self.run = secrets.token_hex(8)
        """Names this process in the states that are sealed with these keys."""

    @classmethod
    def open(cls, data_dir: Path, clock: Clock) -> "StateKeyRing":
        """Read the keys from the file, or make the first one. Blocks. Raises OSError, StoreError for damaged ones."""
        path = data_dir / NAME
        ring = cls(path, clock, _read_keys(path))
        if not ring.secrets:
            ring.rotate()
        return ring

    @classmethod
    def in_memory(cls, clock: Clock) -> "StateKeyRing":
        """Return a ring whose keys end with the process, for a hub that stores nothing."""
        return cls(Path(), clock, StateKeys().with_new_key(clock.now()))

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The keys that open states; the first one seals."""
        return self._keys.secrets

    def rotate(self) -> None:
        """Make a new key, durable before its first use. Blocks. Raises OSError; the keys are then unchanged."""
        keys = self._keys.with_new_key(self._clock.now())
        files.write_atomically(self._path, keys.model_dump_json().encode() + b"\n")
        self._keys = keys

    def rotate_if_due(self) -> None:
        """Replace the newest key if it is old. Blocks. If a key cannot be written, log that and change nothing."""
        if not self._keys.is_due(self._clock.now()):
            return
        try:
            self.rotate()
        except OSError as exc:
            log.warning("request state key not replaced; retried", error=str(exc))

    async def maintain_keys(self) -> None:
        """Replace keys as they get old, until cancelled."""
        while True:
            await to_thread.run_sync(self.rotate_if_due)
            await anyio.sleep(LOOK_S)


def _read_keys(path: Path) -> StateKeys:
    """Make a file of keys private to its owner, and return the keys; none if the file is missing.

    Raises OSError, and StoreError for a damaged file.
    """
    try:
        path.chmod(0o600)
        with path.open("rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
        if len(raw) > _MAX_FILE_BYTES:
            raise ValueError
        return StateKeys.model_validate_json(raw)
    except FileNotFoundError:
        return StateKeys()
    except ValueError:  # pydantic's is one
        # The error would quote the keys.
        raise StoreError(
            f"{path} is damaged. Delete it, and the hub makes a new one: hosts that wait for an answer then get an "
            "error when they ask again, and nothing else is lost"
        ) from None
