"""Commands that are shown to be typed: whole, so that they reach the hub that this program uses.

A program that was told where its hub is (`--data-dir`, `--address`, ...) says so here when it starts.
"""

import re

COMMANDS = (
    *("agent", "audit", "call", "calls", "catalog", "certs", "complete", "config", "doctor", "down", "events"),
    *("explain", "fleet", "health", "help", "inbox", "init", "log-level", "logs", "mcp", "notify", "prompt", "queue"),
    *("read", "reload", "roots", "send", "servers", "service", "status", "store", "subscribe", "tasks", "tokens"),
    *("open", "tui", "up", "web", "whoami"),
)
"""All of `hubbub`; other words after its name are no command."""

_SHORT = re.compile(rf"(?<![\w./-])hubbub (?=(?:{'|'.join(COMMANDS)})(?![\w-]))")
_beginning = ["hubbub"]


def reach_with(words: str) -> None:
    """Begin commands with these words from now on: `hubbub` and the options that name the hub."""
    _beginning[0] = words


def whole(text: str) -> str:
    """Return a text in which each command of `hubbub` names the hub."""
    return _SHORT.sub(lambda _: f"{_beginning[0]} ", text)
