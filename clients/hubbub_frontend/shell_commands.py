"""Commands that are shown to be typed: whole, so that they reach the hub that this program uses.

A program that was started with where its hub is (`--data-dir`, `--address`, ...) says so here when it starts.
"""

import re
from typing import Final

LOCAL: Final = ("config", "down", "init", "service", "up")
"""Commands about a hub of this machine, which is named by its data directory alone."""

ANY: Final = (
    *(
        "acp",
        "agent",
        "approvals",
        "audit",
        "call",
        "calls",
        "catalog",
        "complete",
        "doctor",
        "events",
        "fleet",
        "health",
        "inbox",
    ),
    *("log-level", "logs", "mcp", "notify", "open", "prompt", "queue", "read", "reload", "roots", "send", "servers"),
    *("status", "store", "subscribe", "tasks", "tokens", "tui", "web", "whoami"),
)
"""Commands about any hub."""

NONE: Final = ("certs", "explain", "help")
"""Commands that need no hub: they stay as short as they are."""

_COMMAND: Final = re.compile(rf"(?<![\w./-])hubbub (?=(?:({'|'.join(LOCAL)})|{'|'.join(ANY)})(?![\w-]))")
_prefixes: Final = {"local": "hubbub", "any": "hubbub"}


def set_hub_prefix(prefix: str, *, local: str | None = None) -> None:
    """Set how shown commands begin: `hubbub` and the options that name the hub.

    `local` is the beginning of the commands that work on this machine alone (LOCAL), by default the same.
    """
    _prefixes.update({"any": prefix, "local": prefix if local is None else local})


def with_hub_options(text: str) -> str:
    """Return a text in which each `hubbub` command has the options that name the hub."""
    return _COMMAND.sub(lambda match: f"{_prefixes['local' if match[1] else 'any']} ", text)
