"""The interface of targets of notifications."""

from typing import Literal, Protocol

from hubbub_notify.text import Notice

SendOutcome = Literal["sent", "failed", "gave_up", "unknown"]
"""failed: it did not arrive, and may be sent again; gave_up: it did not arrive, and never will; unknown: it may have
arrived, or still may."""


class Target(Protocol):
    """A receiver of notifications. `key` identifies it on disk, `name` is for people; neither reveals a secret."""

    @property
    def key(self) -> str:
        """Return the identifier of the target, the same after each restart."""
        ...

    @property
    def name(self) -> str:
        """Return the name of the target for people."""
        ...

    async def send(self, notice: Notice) -> tuple[SendOutcome, str]:
        """Send a notice once, for a bounded time; return the outcome and its reason."""
        ...
