"""The keys that seal request states in a fleet, in its vault: every member opens what one member has sealed."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import structlog
from pydantic import ValidationError

from hubbubd import payload
from hubbubd.errors import Overtaken
from hubbubd.store import StoreError
from hubbubd.store.vault.state_keys import StateKeyRing, StateKeys
from hubbubd.timing.clock import Clock

SHARED_LOOK_S: Final = 60.0
"""Seconds between two reads of the keys that a fleet shares."""

SETTLED_S: Final = 3 * SHARED_LOOK_S
"""Seconds after which all members know a new key. Until then the older one seals, so that all members can open."""

SHARED: Final = "@hosts/keys"
"""The name of a fleet's keys in its vault; no server can have it."""

log = structlog.get_logger(__name__)


class SharedSecrets(Protocol):
    """The vault that the members of a fleet share (as `upstream.ports.SecretsVault`)."""

    def get(self, server: str) -> dict[str, Any] | None:
        """Return the stored secrets as far as this member knows; None if there are none."""
        ...

    async def put(self, server: str, secrets: dict[str, Any] | None) -> None:
        """Replace the stored secrets; durable on return. Raises OSError, and Overtaken if another member was first."""
        ...

    async def refresh(self, *servers: str) -> None:
        """Read the stored secrets again. Raises OSError."""
        ...


class SharedStateKeyRing(StateKeyRing):
    """The keys of a fleet, as this member knows them."""

    def __init__(self, vault: SharedSecrets, clock: Clock) -> None:
        super().__init__(Path(), clock, StateKeys())
        self._vault = vault

    @classmethod
    async def open_shared(cls, vault: SharedSecrets, clock: Clock) -> "SharedStateKeyRing":
        """Read the keys from the vault, or make the first one. Raises OSError, and StoreError for damaged ones."""
        ring = cls(vault, clock)
        for _ in range(2):  # the second time there is a key: this member's, or that of another
            await ring._read_vault()
            if ring.secrets:
                return ring
            await ring._add_key()
        return ring

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The keys that open states. The first one seals: the newest, but only once all members know it (SETTLED_S)."""
        newest, *older = self._keys.keys or (None,)
        if newest is not None and older and abs(self._clock.now() - newest.made_at) < SETTLED_S:
            return (*(key.secret for key in older), newest.secret)
        return self._keys.secrets

    async def _read_vault(self) -> None:
        """Read the keys from the vault. Raises OSError, and StoreError for damaged ones."""
        await self._vault.refresh(SHARED)
        stored = self._vault.get(SHARED)
        try:
            self._keys = StateKeys.model_validate(stored or {})
        except ValidationError:
            raise StoreError("the fleet's vault has damaged keys of request states") from None

    async def _add_key(self) -> None:
        """Add a new key to the vault, unless another member does so at the same time; then read all keys."""
        keys = self._keys.with_new_key(self._clock.now())
        with suppress(Overtaken):
            await self._vault.put(SHARED, payload.loads(keys.model_dump_json()))
        await self._read_vault()

    async def maintain_keys(self) -> None:
        """Read the keys every SHARED_LOOK_S seconds, and add a key when the newest is old, until cancelled."""
        while True:
            await anyio.sleep(SHARED_LOOK_S)
            try:
                await self._read_vault()
                if self._keys.is_due(self._clock.now()):
                    await self._add_key()
            except (OSError, StoreError) as exc:
                log.warning("the fleet's request state keys were not read; retried", error=str(exc))
