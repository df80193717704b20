"""The record of a server that is configured, before anything is known of its connection."""

from dataclasses import dataclass, replace

from hubbubd.config import ServerConfig
from hubbubd.config.servers.server import Roots
from hubbubd.core.servers.server_record import ServerRecord, Source


def new_record(
    config: ServerConfig, source: Source, *, wanted: bool, revision: int = 0, trusted: bool = False, home: str = ""
) -> ServerRecord:
    """Return the record of a server without a connection; `trusted` if the owner of the hub's machine configured it.

    `home` is the member of a fleet that added the server.
    """
    return ServerRecord(
        name=config.name,
        config=config,
        source=source,
        wanted=wanted,
        fingerprint=config.fingerprint,
        revision=revision,
        trusted=trusted,
        home=home,
    )


def lasting_roots(before: ServerRecord, config: ServerConfig) -> Roots | None:
    """Return the roots that a client has set; None if it has set none, or the configuration has other roots by now."""
    return before.roots if before.config.roots == config.roots else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDiff:
    """Names of the servers that a reload added, changed and removed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def without_connection(record: ServerRecord) -> ServerRecord:
    """Return a server's record without the fields that its connection has set."""
    fresh = new_record(record.config, record.source, wanted=record.wanted, revision=record.revision)
    return replace(fresh, roots=record.roots, trusted=record.trusted, home=record.home, bound=record.bound)
