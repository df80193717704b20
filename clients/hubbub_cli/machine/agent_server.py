"""`hubbub servers add --agent`: the server that puts a coding agent behind the hub (`hubbub acp`)."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from hubbub_cli.host_entry.install import find_own_command, make_own_args
from hubbub_cli.output.printer import note
from hubbub_cli.run.session import Settings, Usage
from hubbub_client.errors import HubbubError
from hubbub_client.transport.discovery import discover_all
from hubbub_local.coding_agents import AGENTS, ANY, CodingAgent

DAY_S: Final = 86_400.0

OPTIONS: Final[Mapping[str, Any]] = {
    "call_timeout_s": 3600.0,
    "call_max_s": DAY_S,
    "answer_timeout_s": DAY_S,
    "max_in_flight": 16,
}
"""What such a server has unless `--set` says otherwise: a turn may take hours, and several sessions go on at once."""

NAMES: Final = ", ".join((*AGENTS, ANY))


@dataclass(frozen=True, slots=True)
class AgentWish:
    """The agent that a person wants as a server, by its name. `command`, unless empty, replaces its usual command."""

    name: str | None
    command: Sequence[str]
    url: str | None
    profile: str | None
    root: str | None


def make_command(settings: Settings, wish: AgentWish) -> tuple[list[str], Mapping[str, str]]:
    """Return the command line of the server, and its variables of the environment.

    For a hub on this machine, this program and the agent's are named by their files: a service has another PATH than a
    shell. Raises Usage for an agent that is not known, TyperException for one that is not installed.
    """
    if wish.name is None:
        raise Usage(f"--mcp and --fs are for a coding agent: name one with --agent ({NAMES})")
    if wish.url:
        raise Usage("--agent starts a program on the hub's machine; leave --url out")
    agent = AGENTS.get(wish.name)
    if agent is None and wish.name != ANY:
        raise Usage(
            f"--agent: {wish.name!r} is not one of {NAMES}; with `--agent {ANY} -- COMMAND ARGS...` it is any other "
            "agent that speaks ACP"
        )
    agent_command = [*(wish.command or (agent.command if agent else ()))]
    if not agent_command:
        raise Usage(f"--agent {ANY}: give the agent's command as well, -- COMMAND ARGS...")
    is_local = _is_local(settings)
    if is_local:
        agent_command[0] = _find_program(agent_command[0], agent)
    root = str(Path(wish.root).absolute()) if wish.root and is_local else wish.root
    options = (("--mcp", wish.profile), ("--fs", root), ("--mode", agent.mode if agent else ""))
    option_words = [word for option, value in options if value for word in (option, value)]
    # The bridge has to find the hub only if it gives the agent the hub's servers.
    bridge_args = make_own_args(settings, "acp") if wish.profile else ("acp",)
    command_line = [find_own_command() if is_local else "hubbub", *bridge_args, *option_words, "--", *agent_command]
    return command_line, agent.env if agent else {}


def print_next_steps(settings: Settings, server: str, agent: str) -> None:
    """Print how to log in at the agent, and how to start it."""
    if (coding_agent := AGENTS.get(agent)) is not None:
        note(f"if {coding_agent.title} is not logged in yet: {coding_agent.log_in}")
    note(f"to start it: {settings.command('call', server, 'start')} prompt='...' cwd=/FOLDER --detach")


def _is_local(settings: Settings) -> bool:
    """Return whether the hub is on this machine; True also if no hub can be found, since it is then started here."""
    try:
        return all(each.is_local for each in discover_all(settings.where))
    except HubbubError:
        return True


def _find_program(name: str, agent: CodingAgent | None) -> str:
    """Return the file of an agent's program. Raises TyperException if there is none."""
    program = shutil.which(name)
    if program is not None:
        return str(Path(program).absolute())
    advice = f"; install it: {agent.install}; then log in: {agent.log_in}" if agent else ""
    raise typer.TyperException(f"there is no program {name} on this machine{advice}")
