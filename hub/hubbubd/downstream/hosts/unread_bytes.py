"""Bytes of responses that hosts have not read yet, counted by principal."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from hubbubd.errors import ResourceExhausted

UNREAD_BYTES: Final = 64 * 1024 * 1024
"""Bytes of responses that may wait for the hosts of one principal; one response may always."""

SMALL_BYTES: Final = 16 * 1024
"""Responses of at most these bytes are not counted: each connection bounds them itself."""


class UnreadBytes:
    """Counts the bytes of responses that wait until hosts read them, by principal."""

    def __init__(self) -> None:
        self._bytes = Counter[str]()

    @contextmanager
    def count_response(self, principal: str, size: int) -> Generator[None]:
        """Count the bytes of a response while the block sends it. Raises ResourceExhausted (TOO_MUCH_UNREAD)."""
        if size <= SMALL_BYTES:
            yield
            return
        unread = self._bytes[principal]
        if unread and unread + size > UNREAD_BYTES:
            raise ResourceExhausted(
                f"{UNREAD_BYTES} bytes of responses wait to be read by hosts of {principal}: read these first",
                reason="TOO_MUCH_UNREAD",
                metadata={"limit": str(UNREAD_BYTES), "principal": principal},
                retry_after_s=1,
            )
        self._bytes[principal] += size
        try:
            yield
        finally:
            self._bytes[principal] -= size
            if not self._bytes[principal]:
                del self._bytes[principal]
