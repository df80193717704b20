"""How a person logs in to the agents of the list AGENTS, since not all agents say it themselves."""

from collections.abc import Sequence
from pathlib import PurePath

from hubbub_local.coding_agents import AGENTS


def find_login_hint(command: Sequence[str]) -> str:
    """Return how a person logs in to the agent of a command: the text of AGENTS, or a general one for other agents."""
    for argument in command:
        name = PurePath(argument).name.lower()
        for agent, details in AGENTS.items():
            if agent in name:
                return details.log_in
    return f"run {PurePath(command[0]).name} in a terminal and log in there, or set its key"
