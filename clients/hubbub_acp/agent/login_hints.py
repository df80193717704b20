"""How people log in to the agents that are known: not all of them say it themselves."""

from collections.abc import Sequence
from pathlib import PurePath

from hubbub_local.coding_agents import AGENTS


def find_login_hint(command: Sequence[str]) -> str:
    """Return how a person logs in to the agent of this command: its own way if it is known, else a general one."""
    for word in command:
        name = PurePath(word).name.lower()
        for agent, known in AGENTS.items():
            if agent in name:
                return known.log_in
    return f"run {PurePath(command[0]).name} in a terminal and log in there, or set its key"
