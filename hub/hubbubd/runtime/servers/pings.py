"""The pings of a connection: a timer between them, a task only while one is under way."""

import asyncio
import random
from collections.abc import Callable

import anyio

from hubbubd.config import ServerConfig
from hubbubd.errors import Category, Fault, HubError, PeerError
from hubbubd.runtime.background import Background
from hubbubd.upstream.ports import Link

MISSED_PINGS = 2
"""Consecutive unanswered pings after which a connection counts as lost."""


class Pings:
    """Pings a link at each interval, until `stop`. `silent` gets the fault once MISSED_PINGS in a row went unanswered.

    A miss does not count while the server is `busy` with a call: a synchronous server cannot answer then.
    """

    def __init__(
        self,
        link: Link,
        config: ServerConfig,
        background: Background,
        *,
        busy: Callable[[], bool],
        silent: Callable[[Fault], None],
    ) -> None:
        self._link = link
        self._config = config
        self._background = background
        self._busy = busy
        self._silent = silent
        self._missed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._under_way = anyio.CancelScope()
        # The first comes at any time within the interval, so that connections made together are not pinged together.
        share = 1 - random.random()  # noqa: S311 - spreads pings, guards nothing
        self._wait(config.ping_interval_s * share)

    def adopt(self, config: ServerConfig) -> None:
        """Apply changed options; a new interval begins now."""
        self._config = config
        if self._timer is not None:
            self._timer.cancel()
        self._wait(config.ping_interval_s)

    def stop(self) -> None:
        """End the pings, and one that is under way."""
        if self._timer is not None:
            self._timer.cancel()
        self._under_way.cancel()

    def _wait(self, wait_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring) if wait_s else None

    def _ring(self) -> None:
        self._timer = None
        self._under_way = anyio.CancelScope()
        self._background.start_soon(self._ping, self._under_way)

    async def _ping(self, under_way: anyio.CancelScope) -> None:
        with under_way:
            try:
                with anyio.fail_after(self._config.ping_timeout_s):
                    await self._link.probe()
                self._missed = 0
            except PeerError:
                self._missed = 0  # an error is an answer
            except (TimeoutError, HubError):
                self._missed = 0 if self._busy() else self._missed + 1
            if self._missed < MISSED_PINGS:
                if self._timer is None:  # `adopt` may have set one meanwhile
                    self._wait(self._config.ping_interval_s)
                return
            self._silent(
                Fault(
                    code="PING_TIMEOUT",
                    category=Category.CONNECTION,
                    message=f"{self._config.name} missed {MISSED_PINGS} pings in a row",
                    retryable=True,
                    details={"ping_timeout_s": self._config.ping_timeout_s},
                )
            )
