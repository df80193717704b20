"""Rate limit of what a server sends unasked: backpressure on a flooding server, so that others are not delayed."""

from collections.abc import Callable
from typing import Final

import anyio

from hubbubd.timing.bucket import Bucket

BURST_S: Final = 10.0
"""The burst, in seconds' worth of the rate."""

MIN_PAUSE_S: Final = 0.05
"""The shortest pause in reading, in seconds: a smaller debt is added to that of later messages."""


class ServerRateLimit:
    """One server's rate limits, in messages and bytes. `on_throttled` is called with the exceeded rate and its unit.

    It is called once per flood, which ends when a whole burst is available again.
    """

    def __init__(self, messages_per_s: float, bytes_per_s: float, on_throttled: Callable[[float, str], None]) -> None:
        now = anyio.current_time()
        self._messages = Bucket(messages_per_s, max(messages_per_s * BURST_S, 1.0), now)
        self._bytes = Bucket(bytes_per_s, bytes_per_s * BURST_S, now)
        self._on_throttled = on_throttled
        self._is_flooding = False  # `on_throttled` was called for the flood that goes on

    async def charge(self, size: int = 0) -> None:
        """Charge a message of `size` bytes, and pause until its debt is paid."""
        now = anyio.current_time()
        if self._is_flooding and self._messages.is_full(now) and self._bytes.is_full(now):
            self._is_flooding = False
        message_debt_s = self._messages.take_into_debt(now)
        byte_debt_s = self._bytes.take_into_debt(now, size)
        debt_s = max(message_debt_s, byte_debt_s)
        if not debt_s:
            return
        if not self._is_flooding:
            self._is_flooding = True
            if byte_debt_s > message_debt_s:
                self._on_throttled(self._bytes.rate, "bytes")
            else:
                self._on_throttled(self._messages.rate, "messages")
        if debt_s >= MIN_PAUSE_S:
            await anyio.sleep(debt_s)
