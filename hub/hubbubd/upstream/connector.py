"""The connector: the runtime's entry to this package, and the secrets it keeps for each server."""

import gc
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from hubbubd.config import Confinement, ServerConfig
from hubbubd.errors import Overtaken
from hubbubd.redaction import REDACTION
from hubbubd.telemetry import meter as metering
from hubbubd.telemetry.meter import Meter
from hubbubd.telemetry.tracer import OFF, Tracer
from hubbubd.upstream import sdk
from hubbubd.upstream.ports import Era, Inbound, McpLink, Permit, SecretsVault, oauth_owner

if TYPE_CHECKING:
    from hubbubd.upstream.links.opener import LinkOpener


class McpConnector:
    """Implements `ports.Connector` for stdio, streamable HTTP, and HTTP with SSE."""

    def __init__(
        self, vault: SecretsVault, tracer: Tracer = OFF, meter: Meter = metering.OFF, *, permit: Permit | None = None
    ) -> None:
        """`permit` is awaited before anything is sent; None permits everything."""
        self._vault = vault
        self._permit = permit
        self._tracer = tracer
        self._meter = meter
        self.origins: dict[str, PurePath] = {}
        """By server name: the configuration file that has the server, which faults name."""
        self.variables: Sequence[str] = ()
        """The variables of the hub's environment that every server process gets."""
        self._link_opener: LinkOpener | None = None
        self._import_lock = anyio.Lock()

    async def delete_oauth_secrets(self, server: str) -> None:
        """Delete the OAuth tokens and the registered client of a server. Raises OSError.

        This also ends the redaction of all the server's secrets; the next connection to it has those of its
        configuration redacted again.
        """
        for owner in (server, oauth_owner(server)):
            REDACTION.set_secrets(owner, ())
        await self._vault.put(server, None)

    def spec_secrets(self, server: str) -> dict[str, Any] | None:
        """Return the secrets of a server's spec that were stored last; None if there are none."""
        return self._vault.get(_spec_key(server))

    async def store_spec_secrets(self, server: str, secrets: dict[str, Any] | None) -> None:
        """Store the secrets of a server's spec, as JSON; None deletes them. Raises OSError, Overtaken in a race."""
        name = _spec_key(server)
        try:
            await self._vault.put(name, secrets or None)
        except Overtaken:
            await self._vault.refresh(server)
            if self._vault.get(name) is not None:
                raise
            # Another member has removed the server of this name, and none has been added since: nothing is overwritten.
            await self._vault.put(name, secrets or None)

    async def refresh_secrets(self, *servers: str) -> None:
        """Read again all secrets of servers, since other members of the fleet may have changed them. Raises OSError."""
        await self._vault.refresh(*servers)

    @asynccontextmanager
    async def open(
        self, config: ServerConfig, inbound: Inbound, era: Era | None, confinement: Confinement | None
    ) -> AsyncGenerator[McpLink]:
        """Open one connection to a server for the block. Raises UpstreamError with the codes of `ports.Connector`.

        `era` is the family of revisions that was found last time, None to find out. `confinement` limits what a server
        that was added over the API may start and reach; None for other servers.
        """
        async with self._import_lock:
            if self._link_opener is None:
                self._link_opener = (await to_thread.run_sync(_import_link_opener))(
                    vault=self._vault,
                    tracer=self._tracer,
                    meter=self._meter,
                    origins=self.origins,
                    variables=self.variables,
                    permit=self._permit,
                )
        async with self._link_opener.open_link(config, inbound, era, confinement) as link:
            yield link


def _spec_key(server: str) -> str:
    """Return the vault's key for the secrets of a server's spec; never a server's name, as that has no slash."""
    return f"{server}/spec"


def _import_link_opener() -> "type[LinkOpener]":
    """Import the LinkOpener; called in a thread, as it takes as long as the start of all the rest of the hub."""
    sdk.defer_packages()
    from hubbubd.upstream.links.opener import LinkOpener  # lazy: imports the SDK

    gc.freeze()  # as at the start of the hub: what imports create is permanent
    return LinkOpener
