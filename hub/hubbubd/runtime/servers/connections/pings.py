"""The pings of a connection: a timer between them, a task only while one is under way."""

import asyncio
import random
from collections.abc import Callable
from enum import Enum, auto

import anyio

from hubbubd.config import ServerConfig
from hubbubd.errors import Category, Fault, HubError, PeerError
from hubbubd.runtime.background import Background
from hubbubd.upstream.deviations import Deviation, describe_deviation
from hubbubd.upstream.ports import McpLink

MISSED_PINGS = 2
"""Consecutive unanswered pings after which a connection counts as lost."""


class _PingOutcome(Enum):
    """The outcome of a ping: an answer, none in time, or a connection that cannot send."""

    ANSWER = auto()
    SILENCE = auto()
    BROKEN = auto()


class Pings:
    """Pings a link at each interval, until `stop`.

    `on_silence` gets the fault once MISSED_PINGS in a row went unanswered. A miss does not count while `is_busy` says
    that the server works on a call: a synchronous server cannot answer then. Where no ping was ever answered on this
    connection, a request for a list decides (`McpLink.probe`, by_list), and from then on lists are requested instead.
    """

    def __init__(
        self,
        link: McpLink,
        config: ServerConfig,
        background: Background,
        *,
        is_busy: Callable[[], bool],
        on_silence: Callable[[Fault], None],
        note: Callable[[str, str | None], None],
    ) -> None:
        self._link = link
        self._config = config
        self._background = background
        self._is_busy = is_busy
        self._on_silence = on_silence
        self._note = note
        self._missed = 0
        self._was_answered = self._by_list = False  # whether any probe was answered; whether lists are requested
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: anyio.CancelScope | None = None
        # The first comes at any time within the interval, so that connections made together are not pinged together.
        share = 1 - random.random()  # noqa: S311 - spreads pings, guards nothing
        self._set_timer(config.ping_interval_s * share)

    def adopt(self, config: ServerConfig) -> None:
        """Apply changed options; a new interval begins now, or after the ping that is under way."""
        self._config = config
        if self._under_way is None:
            self._set_timer(config.ping_interval_s)

    def stop(self) -> None:
        """End the pings, also one that is under way."""
        self._set_timer(0)
        if self._under_way is not None:
            self._under_way.cancel()

    def _set_timer(self, wait_s: float) -> None:
        """Have the next ping sent after `wait_s` seconds; none for 0."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._start_ping) if wait_s else None

    def _start_ping(self) -> None:
        """Ping in the background, as the timer has gone off."""
        self._under_way = anyio.CancelScope()
        self._background.start_soon(self._ping, self._under_way)

    async def _ping(self, scope: anyio.CancelScope) -> None:
        """Ping once, then set the timer for the next ping, unless `stop` was called or too many pings were missed."""
        try:
            with scope:
                await self._ping_and_count()
        finally:
            self._under_way = None
            if not scope.cancel_called and self._missed < MISSED_PINGS:
                self._set_timer(self._config.ping_interval_s)

    async def _ping_and_count(self) -> None:
        """Ping the server, and count a ping without an answer; after MISSED_PINGS in a row call `on_silence`.

        If the server never answered a ping but now answers a request for a list, request lists from now on.
        """
        outcome = await self._probe(by_list=self._by_list)
        if outcome is _PingOutcome.SILENCE and not self._was_answered and not self._by_list and not self._is_busy():
            outcome = await self._probe(by_list=True)
            if outcome is _PingOutcome.ANSWER:
                self._by_list = True
                self._note(Deviation.PING_IGNORED, describe_deviation(Deviation.PING_IGNORED))
        is_alive = outcome is _PingOutcome.ANSWER
        self._was_answered = self._was_answered or is_alive
        self._missed = 0 if is_alive or self._is_busy() else self._missed + 1
        if self._missed >= MISSED_PINGS:
            self._on_silence(
                Fault(
                    code="PING_TIMEOUT",
                    category=Category.CONNECTION,
                    message=f"{self._config.name} missed {MISSED_PINGS} pings in a row"
                    " (ping_interval_s = 0 sends it none, ping_timeout_s gives it longer)",
                    retryable=True,
                    details={"ping_timeout_s": self._config.ping_timeout_s},
                )
            )

    async def _probe(self, *, by_list: bool) -> "_PingOutcome":
        """Send a request that any server answers, a ping or one for a list, and return its outcome."""
        try:
            with anyio.fail_after(self._config.ping_timeout_s):
                await self._link.probe(by_list=by_list)
        except PeerError:
            return _PingOutcome.ANSWER  # an error is an answer
        except TimeoutError:
            return _PingOutcome.SILENCE
        except HubError:
            return _PingOutcome.BROKEN  # this does not show whether the server answers pings
        return _PingOutcome.ANSWER
