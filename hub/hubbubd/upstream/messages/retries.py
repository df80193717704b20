"""Retries over HTTP: which requests may be sent again, and the backoff between openings of a stream."""

from typing import Final

import anyio

IDLE_S: Final = 1.5
"""Seconds an idle connection is kept. Servers close theirs after 2 or 5 s, and no request should meet that."""

STALE_CONNECTIONS: Final = 3
"""How often a request is retried because its connection had been closed; others of the pool may be closed, too."""

FIRST_PAUSE_S: Final = 0.5
"""Seconds before a stream that ended is opened once more; doubled up to the last."""
LAST_PAUSE_S: Final = 8.0
"""Seconds; a server that ends its stream at once is asked no more often than this."""

REPEATABLE: Final = frozenset(
    {
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "tasks/get",
        "tasks/list",
        "tools/list",
    }
)
"""Idempotent methods: they read, or set what is then set."""


class ReopenBackoff:
    """Exponential backoff between openings of a stream, whatever `retry` the server names.

    It doubles each time the stream is wanted again too early, and resets when it is not.
    """

    def __init__(self) -> None:
        self._opened_at: float | None = None
        self._pause_s = FIRST_PAUSE_S

    async def wait(self) -> None:
        """Wait until the stream may be opened."""
        if self._opened_at is not None:
            early_s = self._opened_at + self._pause_s - anyio.current_time()
            if early_s > 0:
                self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
                await anyio.sleep(early_s)
            else:
                self._pause_s = FIRST_PAUSE_S
        self._opened_at = anyio.current_time()


class SendProgress:
    """Progress of a request: what decides whether a retry is safe.

    `connected` says that a new connection was made for it, `begun` that sending it was begun, `left` that all of it was
    handed to the system, and `untaken` that the system at the other end acknowledged none of it.
    """

    def __init__(self) -> None:
        self.connected = self.begun = self.left = self.untaken = False

    def may_go_again(self, method: str) -> bool:
        """Return whether the failed request may be retried.

        A request that did not leave whole, or was not taken, cannot have been executed: it met the end of an idle
        connection. One that was taken, over a reused connection that was closed without a response, may have been, so
        only idempotent methods are retried. All others are sent at most once.
        """
        unsent = self.begun and not self.left
        return unsent or self.untaken or (not self.connected and method in REPEATABLE)
