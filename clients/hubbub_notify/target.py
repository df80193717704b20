"""What somewhere to send to is."""

from typing import Literal, Protocol

from hubbub_notify.text import Notice

SendOutcome = Literal["sent", "failed", "gave_up", "unknown"]
"""failed: it did not arrive, and may be sent again; gave_up: it did not arrive, and never will; unknown: it may have
arrived, or still may."""


class Target(Protocol):
    """Somewhere to send to. `key` tells it apart on disk, `name` is for people; neither gives a secret away."""

    @property
    def key(self) -> str:
        """Return what identifies the target, the same after each restart."""
        ...

    @property
    def name(self) -> str:
        """Return what people call the target."""
        ...

    async def send(self, notice: Notice) -> tuple[SendOutcome, str]:
        """Send a notice once, for a bounded time; return the outcome, and why."""
        ...
