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
    """The hub's endpoint, if the program is to use it over HTTP."""
    token: str = ""
    """The token for it."""
    bridge: Sequence[str] = ()
    """The bridge's command, if the program is to start it."""
    is_required: bool = True
    """Whether the program is to wait for the hub, and to end without it."""

    @property
    def log(self) -> Path:
        """What the program says."""
        return self.home.with_name("program.log")
