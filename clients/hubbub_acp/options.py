"""What `hubbub acp` is to start and to offer, as the command line says."""

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpOptions:
    """The agent's command, and what it gets.

    `tools_command` starts an MCP server that the agent is to use: the hub. `root` is the folder below which the agent
    may read and write files through this program. `login` is one of the agent's own methods. `mode` and `model` are
    what each session is set to, unless a call says another. `records` is the folder for what outlives the process;
    None: nothing does.
    """

    command: tuple[str, ...]
    name: str
    version: str
    root: Path | None = None
    tools_command: tuple[str, ...] = ()
    login: str | None = None
    mode: str | None = None
    model: str | None = None
    records: Path | None = None

    @property
    def typed(self) -> str:
        """The agent's command, as one types it."""
        return shlex.join(self.command)
