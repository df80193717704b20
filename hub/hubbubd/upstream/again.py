"""What goes out again over HTTP: which requests may, and how often streams are opened."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import anyio
import httpx2
from mcp.client import streamable_http

from hubbubd import bounds

IDLE_S: Final = 2.5
"""How long an idle connection is kept. Servers close theirs after 5 s, mostly: a request must not meet that."""

STALE_CONNECTIONS: Final = 3
"""Times that a request goes again because its connection was closed; others of the pool may be closed as well."""

FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 8.0

LONGEST_RETRY_MS: Final = 3_600_000
"""The longest pause that a server may name as `retry`, before a stream of its own is opened again: as a `Retry-After`
may, it slows the hub down and does not send it away."""

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


class Events(httpx2.EventSource):
    """The events of a stream, each `retry` in them read within bounds."""

    async def __aiter__(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        async for event in super().__aiter__():
            yield event if event.retry is None else replace(event, retry=_retry_ms(event.retry))


def _retry_ms(named: int) -> int | None:
    return bounds.whole(named, high=LONGEST_RETRY_MS)


_opened = streamable_http.sse_within_origin  # pyright: ignore[reportPrivateImportUsage]


@asynccontextmanager
async def events_within_origin(*args: Any, max_event_size: int | None, **options: Any) -> AsyncGenerator[Events]:
    """Stands in for the SDK's own way to open a stream, so that what it sleeps for is within bounds."""
    async with _opened(*args, max_event_size=max_event_size, **options) as source:
        yield Events(source.response, max_event_size)


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
