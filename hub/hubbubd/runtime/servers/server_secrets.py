"""What servers were added with that is not for the store: values of variables and headers, and queries of urls."""

import structlog

from hubbubd.config import ServerConfig
from hubbubd.core.server import ServerRecord
from hubbubd.errors import Unavailable
from hubbubd.upstream.ports import Connector

log = structlog.get_logger(__name__)


class SpecSecrets:
    """The secrets of the servers of the API, in the connector's vault."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    async def keep(self, config: ServerConfig) -> None:
        """Keeps those of a configuration, and no others of that server. Raises Unavailable."""
        secrets = config.secrets()
        kept = {"fingerprint": config.fingerprint, "secrets": secrets} if secrets else None
        try:
            await self._connector.keep_spec_secrets(config.name, kept)
        except OSError as exc:
            raise Unavailable(str(exc), reason="STORE_UNAVAILABLE") from None

    async def drop(self, name: str) -> None:
        """Forgets those of a server."""
        try:
            await self._connector.keep_spec_secrets(name, None)
        except OSError as exc:
            log.warning("the secrets of a server cannot be deleted", server=name, error=str(exc))

    async def complete(self, record: ServerRecord) -> ServerConfig:
        """The configuration of a server that was added over the API, with what the store does not have of it."""
        kept = self._connector.spec_secrets(record.name)
        # A hub that was killed in the middle of a change may have left those of another server.
        if kept and kept["fingerprint"] == record.fingerprint:
            return record.config.with_secrets(kept["secrets"])
        if not record.config.lacks_secrets:
            await self.keep(record.config)
        return record.config
