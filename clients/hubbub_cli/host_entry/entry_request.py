"""What `hubbub mcp install` is to put into which file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub_local.hosts.files import Changes
from hubbub_local.hosts.kinds import NAME, HostProgram
from hubbub_local.hosts.switches import SwitchOff


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRequest:
    """What is to be installed at a host."""

    host: HostProgram
    profile: str | None
    server: str | None
    url: str | None
    """Where hosts reach the hub over HTTP; None for the bridge."""

    given_url: str | None = None
    """What `--url` says of that."""

    log_in: bool = False
    """Whether the host logs in there, instead of having a token."""

    file: Path
    """The host's file of settings."""

    permit_file: Path | None = None
    """The file of the host's hooks, if it is to ask people for permission to use its own tools."""

    direct: tuple[str, ...] = ()
    """The host's own entries of servers that the hub has."""

    switch_off: SwitchOff = field(default_factory=SwitchOff)
    """The changes that switch these entries off; none if they are to stay."""

    @property
    def endpoint_options(self) -> tuple[str, ...]:
        """The options that name the endpoint: a profile, or a server."""
        option_pairs = (("--profile", self.profile), ("--server", self.server))
        return tuple(word for option, value in option_pairs if value for word in (option, value))

    @property
    def connection_options(self) -> tuple[str, ...]:
        """The options that say how the host reaches the hub, and whether it asks people for permission there."""
        permits = ("--permits",) if self.permit_file is not None else ()
        if self.url is None:
            return permits
        return (
            "--login" if self.log_in else "--http",
            *(("--url", self.given_url) if self.given_url else ()),
            *permits,
        )

    def make_changes(self, entry: dict[str, Any]) -> Mapping[Path, Changes]:
        """Return, by file, the changes that add an entry of the hub and switch off the entries that `switch_off` names.

        The host's file of settings comes first.
        """
        section = (self.host.section,)
        changes = self.switch_off.find_changes(self.file)
        changes = {**changes, section: {**changes.get(section, {}), NAME: entry}}
        return {
            self.file: changes,
            **{file: each for file, each in self.switch_off.changes.items() if file != self.file},
        }
