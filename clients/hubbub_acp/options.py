"""The options of `hubbub acp`."""

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpOptions:
    """The agent's command, and what it gets.

    `tools_command` starts an MCP server that the agent is to use: the hub. `root` is the folder below which the agent
    may read and write files through this program. `login` is one of the agent's own methods. `mode` and `model` are
    what each session is set to, unless a call names another. `records` is the folder of the stored sessions; None:
    no session is stored.
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
    def command_line(self) -> str:
        """The agent's command, quoted as a shell reads it."""
        return shlex.join(self.command)
