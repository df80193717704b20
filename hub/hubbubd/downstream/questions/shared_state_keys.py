"""The keys that seal request states in a fleet, in its vault: what one member has sealed is good at every member."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import structlog
from pydantic import ValidationError

from hubbubd import payload
from hubbubd.downstream.questions.state_keys import StateKeyRing, StateKeys
from hubbubd.errors import Overtaken
from hubbubd.store import StoreError
from hubbubd.timing.clock import Clock

SHARED_LOOK_S: Final = 60.0
"""Seconds between looks at keys that a fleet shares."""

SETTLED_S: Final = 3 * SHARED_LOOK_S
"""Seconds after which all members of a fleet know a new key. Until then the older one seals, so that all can open."""

SHARED: Final = "@hosts/keys"
"""The name of a fleet's keys in its vault; no server can have it."""

log = structlog.get_logger(__name__)


class SharedSecrets(Protocol):
    """What the members of a fleet share (`upstream.ports.SecretsVault`)."""

    def get(self, server: str) -> dict[str, Any] | None:
        """Return what was stored last, as far as this member knows, or None."""
        ...

    async def put(self, server: str, secrets: dict[str, Any] | None) -> None:
        """Replace what is stored; durable on return. Raises OSError, Overtaken in a race."""
        ...

    async def refresh(self, *servers: str) -> None:
        """Read again what is stored. Raises OSError."""
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
        for _ in range(2):  # the second turn finds the key that this member has added, or another one meanwhile
            await ring._read_vault()
            if ring.secrets:
                return ring
            await ring._add_key()
        return ring

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The keys that open states; the first one seals: the newest, once all members know it (SETTLED_S)."""
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
        """Add a new key in the vault, unless another member has done that, and read them all."""
        keys = self._keys.with_new_key(self._clock.now())
        with suppress(Overtaken):
            await self._vault.put(SHARED, payload.loads(keys.model_dump_json()))
        await self._read_vault()

    async def maintain_keys(self) -> None:
        """Look for new keys, and replace them as they get old, until cancelled."""
        while True:
            await anyio.sleep(SHARED_LOOK_S)
            try:
                await self._read_vault()
                if self._keys.is_due(self._clock.now()):
                    await self._add_key()
            except (OSError, StoreError) as exc:
                log.warning("the fleet's request state keys were not read; retried", error=str(exc))
