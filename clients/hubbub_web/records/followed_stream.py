"""What all streams for one browser have in common."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

import anyio


class FollowedStream(ABC):
    """A stream for one browser: `follow` fills it, `lines` drains it."""

    def __init__(self) -> None:
        self._closed = False
        self._changed = anyio.Event()

    @abstractmethod
    async def follow(self) -> None:
        """Learn what there is to send, until cancelled."""

    @abstractmethod
    def lines(self) -> AsyncGenerator[bytes, None]:
        """Yield lines of JSON, until the stream is closed."""

    def close(self) -> None:
        """End `lines`."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        """Let `lines` go on."""
        self._changed.set()
        self._changed = anyio.Event()
