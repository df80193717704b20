"""Where a program is run, and what it needs to know there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program is run: its home, its folder of work, the URL of its model, and how it reaches the hub."""

    home: Path
    folder: Path
    model: str
    url: str = ""
    """The hub's endpoint, for a program that is told it in its words."""
    token: str = ""
    bridge: Sequence[str] = ()
    """The bridge's command, if the program is to start it."""
    is_required: bool = True
    """Whether the program is to wait for the hub, and to end without it."""
