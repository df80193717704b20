"""The record of a server that is configured, before anything is known of its connection."""

from hubbubd.config import ServerConfig
from hubbubd.config.server import Roots
from hubbubd.core.server import ServerRecord, Source


def new_record(
    config: ServerConfig, source: Source, *, wanted: bool, revision: int = 0, trusted: bool = False
) -> ServerRecord:
    """Return the record of a server; `trusted` if the owner of the hub's machine configured it."""
    return ServerRecord(
        name=config.name,
        config=config,
        source=source,
        wanted=wanted,
        fingerprint=config.fingerprint,
        revision=revision,
        trusted=trusted,
    )


def lasting_roots(before: ServerRecord, config: ServerConfig) -> Roots | None:
    """Return the overriding roots, unless the configuration changed its own roots."""
    return before.roots if before.config.roots == config.roots else None
