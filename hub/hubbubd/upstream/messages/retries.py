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
"""The longest pause in seconds, which a server gets that ends its stream at once again and again."""

REPEATABLE: Final = frozenset(
    {
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/directory/read",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "skills/get",
        "skills/list",
        "tasks/get",
        "tasks/list",
        "tools/list",
    }
)
"""Idempotent methods: a repeated request has no further effect."""


class ReopenBackoff:
    """Exponential backoff between openings of a stream, whatever `retry` the server names.

    It doubles each time the stream ends before its pause is over, and resets when it lasts longer.
    """

    def __init__(self) -> None:
        self._opened_at: float | None = None
        self._pause_s = FIRST_PAUSE_S

    async def wait(self) -> None:
        """Wait until the stream may be opened."""
        if self._opened_at is not None:
            remaining_s = self._opened_at + self._pause_s - anyio.current_time()
            if remaining_s > 0:
                self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
                await anyio.sleep(remaining_s)
            else:
                self._pause_s = FIRST_PAUSE_S
        self._opened_at = anyio.current_time()


class SendProgress:
    """Progress of a request: what decides whether a retry is safe.

    `is_new_connection` says that a connection was made for it, `sending_started` that sending began, `handed_over` that
    all of it was handed to the system, and `unacknowledged` that the system at the other end acknowledged none of it.
    """

    def __init__(self) -> None:
        self.is_new_connection = self.sending_started = self.handed_over = self.unacknowledged = False

    def may_be_retried(self, method: str) -> bool:
        """Return whether the failed request may be retried.

        A request that was not handed over whole, or not acknowledged, cannot have been executed: its connection had
        been idle and was closed. One that was acknowledged, over a reused connection that was closed without a
        response, may have been, so only idempotent methods are retried. All others are sent at most once.
        """
        was_cut = self.sending_started and not self.handed_over
        return was_cut or self.unacknowledged or (not self.is_new_connection and method in REPEATABLE)
