"""How people log in to the agents that are known: not all of them say it themselves."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

HINTS: Final = (
    ("claude", "run `claude /login`, or set ANTHROPIC_API_KEY"),
    ("gemini", "run `gemini` and log in there, or set GEMINI_API_KEY"),
    ("qwen", "run `qwen` and log in there, or set OPENAI_API_KEY"),
    ("codex", "run `codex login`, or set OPENAI_API_KEY"),
    ("copilot", "run `copilot login`"),
    ("opencode", "run `opencode auth login`"),
    ("goose", "run `goose configure`"),
)
"""A word in the agent's command, and what to do."""


def find_login_hint(command: Sequence[str]) -> str:
    """Return what to type, by the words of the agent's command."""
    for word in command:
        name = PurePath(word).name.lower()
        for agent, hint in HINTS:
            if agent in name:
                return hint
    return f"run `{PurePath(command[0]).name}` in a terminal and log in there, or set its key"
