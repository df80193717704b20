"""A hub as a member of a fleet: its membership, and its port for other members. Imported only with `[fleet]`."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import structlog
from anyio import to_thread

from hubbubd.config.sections.fleet import FleetSettings
from hubbubd.config.sections.store import StoreSettings
from hubbubd.errors import Unavailable, VaultError
from hubbubd.rpc.fleet import FleetPort, Forwarding
from hubbubd.runtime.fleet.member import FleetOwnership
from hubbubd.runtime.hub import Hub
from hubbubd.store import StoreUnavailable
from hubbubd.store.membership import Expelled, HistoryLost, Membership
from hubbubd.store.postgres.vault import PostgresVault
from hubbubd.store.vault.keys import VaultKeys
from hubbubd.store.vault.shared_state_keys import SharedStateKeyRing
from hubbubd.timing.clock import Clock
from hubbubd.upstream.ports import SecretsVault

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FleetTerm:
    """A term of this hub as a member of a fleet: from joining until it leaves or the others expel it."""

    settings: FleetSettings
    membership: Membership
    fleet: FleetOwnership
    port: FleetPort

    @classmethod
    def open(
        cls, settings: FleetSettings, membership: Membership, max_message_bytes: int, losses: list[HistoryLost]
    ) -> "FleetTerm":
        """Bind the port for other members; `losses` are those of earlier terms. Raises ConfigError and OSError."""
        fleet = FleetOwnership(
            membership, drain_timeout_s=settings.drain_timeout_s, rebalance=settings.rebalance, losses=losses
        )
        return cls(settings, membership, fleet, FleetPort(settings, max_message_bytes))

    @asynccontextmanager
    async def serve_members(self, hub: Hub) -> AsyncGenerator[Forwarding]:
        """Serve the other members during the block; yield the object that forwards calls to them."""
        async with self.port.serve(hub, term=self.membership.term) as forwarding:
            yield forwarding

    @asynccontextmanager
    async def send_heartbeats(self) -> AsyncGenerator[None]:
        """Send heartbeats to the fleet during the block; the block starts once the database's time is known.

        At the end of the block, close this member's port, so that the next term can bind it.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.fleet.send_beats)
            try:
                await self.fleet.wait_for_time()
                yield
            finally:
                tasks.cancel_scope.cancel()
                await self.port.close()  # usually closed by now, but not if the start failed before it was served

    def make_clock(self) -> Clock:
        """Return a clock with the database's time, which all members share."""
        time = self.fleet.time
        return Clock(asyncio.get_running_loop().time, read_wall_s=time.now, is_vouched=time.is_vouched_for)

    @asynccontextmanager
    async def open_vault(self, store: StoreSettings) -> AsyncGenerator[PostgresVault]:
        """Open the fleet's vault for the block, and let the hub's API rotate its key.

        Raises ConfigError, StoreError and StoreUnavailable.
        """
        keys = await to_thread.run_sync(VaultKeys.load, self.settings.vault_key_file, os.environ)
        vault = await PostgresVault.open(store, keys, self.membership.name, self.membership.term)

        async def rotate_key() -> tuple[int, int]:
            """Seal all rows with the first key; return the counts of sealed and of all rows. Raises Unavailable."""
            try:
                rotation = await vault.rotate()
            except VaultError as exc:
                raise Unavailable(str(exc), reason="VAULT_UNAVAILABLE") from None
            return rotation.done, rotation.all

        self.fleet.rotate_key = rotate_key
        try:
            yield vault
        finally:
            await vault.close()

    async def load_state_keys(self, vault: SecretsVault, clock: Clock) -> SharedStateKeyRing:
        """Return the keys of state that the hub seals and hosts store. Raises Unavailable and StoreError."""
        try:
            return await SharedStateKeyRing.open_shared(vault, clock)
        except OSError as exc:
            raise Unavailable(str(exc), reason="STORE_UNAVAILABLE") from None

    async def publish_addresses(self, address: str) -> None:
        """Publish this member's two addresses to the fleet: for clients (`address`, unless set), and for members.

        A failure is only logged: the next heartbeat publishes it.
        """
        try:
            await self.membership.publish(self.settings.address or address, self.port.address)
            await self.fleet.refresh_members()  # so that this member itself shows its addresses from now on
        except Expelled:  # this member starts another term
            return
        except StoreUnavailable as exc:
            log.warning("the fleet was not told where this member is reached; the next beat tells it", error=str(exc))
        log.info("joined the fleet", member=self.membership.name, life=self.membership.term, forward=self.port.address)
