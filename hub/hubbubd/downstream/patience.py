"""How long hosts wait for a response. Pure.

Measured by others with the releases of 2026, and a little less than what they found; a profile's `hold_s` has the
last word.
"""

import math
from typing import Final

UNKNOWN_S: Final = 45.0
"""For hosts that are not listed: most give up after 60 seconds."""

HTTP: Final = "http"
STDIO: Final = "stdio"

_PATIENCE: Final[tuple[tuple[str, tuple[str, ...], float], ...]] = (
    ("claude-ai", (HTTP, STDIO), 45.0),
    ("codex", (HTTP, STDIO), 50.0),
    ("claude-code", (HTTP,), 330.0),
)
"""The name by which hosts say who they are, over which transports, and how many seconds they wait."""

_ENDLESS: Final = (("claude-code", STDIO),)
"""Hosts that wait as long as they hear of progress."""


LONGEST_S: Final = max(seconds for _, _, seconds in _PATIENCE)
"""How long a host that may never come back is waited for, where it would wait for ever itself."""


def patience_s(name: object, via: str, *, told: bool) -> float:
    """Return for how many seconds a host waits for a response; infinity if it does not give up.

    `name` is its own, `via` its transport; `told` is whether it gets progress.
    """
    if told and any(via == transport and _is(name, known) for known, transport in _ENDLESS):
        return math.inf
    for known, transports, seconds in _PATIENCE:
        if via in transports and _is(name, known):
            return seconds
    return UNKNOWN_S


def _is(name: object, known: str) -> bool:
    """Return whether a host is a known one, or a part of it: codex-mcp-client."""
    return isinstance(name, str) and (name == known or name.startswith(f"{known}-"))
