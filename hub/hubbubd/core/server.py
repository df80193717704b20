"""A server as the hub knows it: how it is configured, what is wanted of it, and how it is."""

from dataclasses import dataclass, field
from typing import Literal

from hubbubd.bounds import Count, Whole
from hubbubd.config import ServerConfig
from hubbubd.config.server import Roots
from hubbubd.core.connection import Connection

Source = Literal["file", "api"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """How many calls of a server are in each state."""

    queued: Count = 0
    in_progress: Count = 0
    waiting_input: Count = 0
    completed: Count = 0
    failed: Count = 0
    cancelled: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """A server as the API shows it. `server_info` and `capabilities` are MCP JSON.

    `roots` were set while the hub runs; None leaves them as configured. `revision` grows with each change of the
    configuration or of these. `defect` says what of the
    record the store could not give back.
    """

    name: str
    config: ServerConfig
    source: Source
    wanted: bool
    fingerprint: str = ""
    roots: Roots | None = None
    revision: Whole = 0
    connection: Connection = field(default_factory=Connection)
    protocol_version: str | None = None
    server_info: bytes | None = None
    capabilities: bytes | None = None
    pid: Count | None = None
    counts: QueueCounts = field(default_factory=QueueCounts)
    defect: str = ""

    @property
    def effective(self) -> ServerConfig:
        """The configuration with what was set since."""
        return self.config if self.roots is None else self.config.model_copy(update={"roots": self.roots})
