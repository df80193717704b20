"""The levels of log messages of servers (RFC 5424, section 6.2.1; MCP, logging)."""

from collections.abc import Iterable
from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""From the least to the most severe."""

DEFAULT_LEVEL: Final = "info"
"""The level of a host that has named none, once another host has named one."""

_RANKS: Final = {level: rank for rank, level in enumerate(LEVELS)}


def least_severe(levels: Iterable[str]) -> str | None:
    """Return the least severe of some levels; None without any. Texts that are no level do not count."""
    return min((level for level in levels if level in _RANKS), key=_RANKS.__getitem__, default=None)


def is_visible_at(level: object, min_level: str) -> bool:
    """Return whether a message of a level is visible to who wants `min_level` and above. Unknown levels always are."""
    return not isinstance(level, str) or _RANKS.get(level, len(LEVELS)) >= _RANKS.get(min_level, 0)
