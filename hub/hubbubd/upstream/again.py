"""What goes out again over HTTP: which requests may, and how often streams are opened."""

from typing import Any, Final

import anyio

IDLE_S: Final = 2.5
"""How long an idle connection is kept. Servers close theirs after 5 s, mostly: a request must not meet that."""

STALE_CONNECTIONS: Final = 3
"""Times that a request goes again because its connection was closed; others of the pool may be closed as well."""

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
"""Methods that do no more harm twice than once: they read, or set what is then set."""


class Pace:
    """The hub's own pause between two openings of a stream, whatever the server names as `retry`.

    It doubles each time that the stream is wanted again too early, and begins anew with one that is not.
    """

    def __init__(self) -> None:
        self._opened_at: float | None = None
        self._pause_s = FIRST_PAUSE_S

    async def wait(self) -> None:
        """Returns when the stream may be opened."""
        if self._opened_at is not None:
            early_s = self._opened_at + self._pause_s - anyio.current_time()
            if early_s > 0:
                self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
                await anyio.sleep(early_s)
            else:
                self._pause_s = FIRST_PAUSE_S
        self._opened_at = anyio.current_time()


class Way:
    """How far a request has got, as the `trace` extension of the HTTP client tells."""

    def __init__(self) -> None:
        self._begun = self._left = self._connected = False

    async def __call__(self, event: str, _info: dict[str, Any]) -> None:
        """Takes note of an event, by its name."""
        if event == "connection.connect_tcp.started":
            self._connected = True
        elif event.endswith(".send_request_headers.started"):
            self._begun = True
        elif event.endswith(".send_request_body.complete"):
            self._left = True

    def may_go_again(self, method: str) -> bool:
        """Whether the request that failed on this way without a response may be sent once more.

        The server cannot have begun one that did not leave whole. One that did leave, over a connection that had been
        used before and was closed then without a byte, has mostly met the end of an idle connection; but the server
        may have it, so only what is repeatable goes again.
        """
        unsent = self._begun and not self._left
        return unsent or (not self._connected and method in REPEATABLE)
