"""Secrets of servers added over the API, kept out of the store: values of variables and headers, queries of urls."""

from collections.abc import Sequence

import structlog

from hubbubd.config import ServerConfig
from hubbubd.core.servers.server_record import ServerRecord
from hubbubd.errors import Aborted, HubError, Overtaken, Unavailable, UnknownOutcome
from hubbubd.upstream.ports import Connector

log = structlog.get_logger(__name__)


class SpecSecrets:
    """Moves secrets of servers between their configuration and the vault, which the connector has."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    async def store(self, config: ServerConfig) -> None:
        """Store the secrets of a configuration, in place of those of the server before.

        Raises Unavailable, and Aborted if another member of the fleet has just stored secrets for a server of this
        name.
        """
        secrets = config.collect_secrets()
        entry = {"fingerprint": config.fingerprint, "secrets": secrets} if secrets else None
        try:
            await self._connector.store_spec_secrets(config.name, entry)
        except Overtaken as exc:
            raise Aborted(f"{exc}; try again", reason="CONTENDED") from None
        except OSError as exc:
            raise Unavailable(str(exc), reason="STORE_UNAVAILABLE") from None

    async def drop(self, name: str) -> None:
        """Delete the secrets of a server; a failure is only logged."""
        try:
            await self._connector.store_spec_secrets(name, None)
        except OSError as exc:
            log.warning("server secrets not deleted", server=name, error=str(exc))

    async def restore(self, name: str, before: ServerConfig | None, failure: HubError) -> None:
        """Store the secrets from before a change that failed; if its outcome is unknown, leave the new ones."""
        if isinstance(failure, UnknownOutcome):
            return
        if before is None:
            await self.drop(name)
        else:
            await self.store(before)

    async def refresh(self, names: Sequence[str]) -> None:
        """Read the secrets again that other members of a fleet may have stored. Raises Unavailable."""
        try:
            await self._connector.refresh_secrets(*names)
        except OSError as exc:
            raise Unavailable(str(exc), reason="STORE_UNAVAILABLE") from None

    async def add_secrets(self, record: ServerRecord) -> ServerConfig:
        """Return the configuration of a stored server with its secrets; move secrets in the record into the vault."""
        entry = self._connector.spec_secrets(record.name)
        # After a crash in the middle of a change the vault may have another server's secrets under this name.
        if entry and entry["fingerprint"] == record.fingerprint:
            return record.config.with_secrets(entry["secrets"])
        # The record itself has all its secrets: they go into the vault, in place of those of another server.
        if not record.config.lacks_secrets and (entry or record.config.collect_secrets()):
            await self.store(record.config)
        return record.config
