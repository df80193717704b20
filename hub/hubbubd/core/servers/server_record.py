"""The record of a server: its configuration, whether it should be connected, and the state of its connection."""

from dataclasses import dataclass, field
from typing import Literal

from hubbubd.bounds import Count, Whole
from hubbubd.config import ServerConfig
from hubbubd.config.servers.server import Roots
from hubbubd.config.servers.unknown_options import StoredConfig
from hubbubd.core.servers.connection_states import ServerConnection

Source = Literal["file", "api"]

UPKEEP = "@upkeep"
"""The name of a lease that is no server's: the member that has it does the upkeep of the store for the fleet, such as
to delete old records. No server can have this name."""

NOBODY = ""
"""The holder of a lease that was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """Number of a server's calls by state."""

    queued: Count = 0
    in_progress: Count = 0
    waiting_input: Count = 0
    completed: Count = 0
    failed: Count = 0
    cancelled: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """A server as the API shows it. `server_info` and `capabilities` are MCP JSON.

    `instructions` are what it tells models about its use.

    `wanted` says whether it should be connected. `roots` override the configured ones when not None. `revision` grows
    with each change of `config` or `roots`. `defect` names what could not be loaded from the store. `trusted` says that
    the owner of the hub's machine configured it over the API (`Confinement.with_trust`). `home` is the member of a
    fleet to which it was added; empty where there is none. The trust holds at that member alone. `bound` says that only
    `home` may have it: another member had the server, and was not allowed to connect it. `notes` are what the hub noted
    about what it sends.
    """

    name: str
    config: StoredConfig
    source: Source
    wanted: bool
    fingerprint: str = ""
    roots: Roots | None = None
    revision: Whole = 0
    connection: ServerConnection = field(default_factory=ServerConnection)
    protocol_version: str | None = None
    server_info: bytes | None = None
    capabilities: bytes | None = None
    instructions: str | None = None
    pid: Count | None = None
    counts: QueueCounts = field(default_factory=QueueCounts)
    defect: str = ""
    trusted: bool = False
    home: str = ""
    bound: bool = False
    notes: tuple[str, ...] = ()

    @property
    def effective_config(self) -> ServerConfig:
        """The configuration with the overriding roots."""
        return self.config if self.roots is None else self.config.model_copy(update={"roots": self.roots})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Which member of a fleet has a server; `life` is the number of the member's term (`members.Member.term`).

    A lease counts only in the store whose id is `store`: in a copy of the store no member has any server. `wish` is the
    member for which a lease was given up.
    """

    server: str
    store: str = ""
    member: str = NOBODY
    life: Whole = 0
    wish: str = ""
