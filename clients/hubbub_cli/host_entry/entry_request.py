"""What `hubbub mcp install` is to put into which file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubbub_local.hosts import files
from hubbub_local.hosts.kinds import NAME, HostProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRequest:
    """What is to be installed at a host."""

    host: HostProgram
    profile: str | None
    server: str | None
    url: str | None
    """Where hosts reach the hub over HTTP; None for the bridge."""

    file: Path
    """The host's file of settings."""

    permit_file: Path | None = None
    """The file of the host's hooks, if it is to ask people for permission to use its own tools."""

    direct: tuple[str, ...] = ()
    """The host's own entries of servers that the hub has."""

    taken_out: tuple[str, ...] = ()
    """Those of them that are taken out."""

    @property
    def options(self) -> tuple[str, ...]:
        """The options that say what the host sees."""
        named = (("--profile", self.profile), ("--server", self.server))
        return tuple(word for option, value in named if value for word in (option, value))

    def entries(self, entry: dict[str, Any]) -> files.Entries:
        """Return what is changed in the file."""
        return {**dict.fromkeys(self.taken_out), NAME: entry}
