"""Things that must happen at an absolute time: one timer of the event loop each."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from hubbubd.clock import Clock
from hubbubd.errors import HubError
from hubbubd.runtime.background import Background

LONGEST_S = 86400.0
"""The loop's timers do not take any length; a later alarm is set again when this has passed."""

RETRY_S = 1.0

log = structlog.get_logger(__name__)


class Alarms:
    """Named alarms; setting one again moves it. An action that fails is tried again."""

    def __init__(self, clock: Clock, tasks: Background) -> None:
        self._clock = clock
        self._tasks = tasks
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    def set(self, name: str, at: float | None, action: Callable[[], Awaitable[None]]) -> None:
        """Runs `action` at `at` (seconds since the epoch); None takes the alarm back."""
        self.clear(name)
        if at is not None and not self._closed:
            wait_s = min(max(at - self._clock.now(), 0.0), LONGEST_S)
            self._timers[name] = asyncio.get_running_loop().call_later(wait_s, self._ring, name, at, action)

    def clear(self, name: str) -> None:
        """Takes an alarm back, if there is one."""
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        """Takes all alarms back, and sets none from now on: what still changes when a hub ends rings for nobody."""
        self._closed = True
        for name in list(self._timers):
            self.clear(name)

    def _ring(self, name: str, at: float, action: Callable[[], Awaitable[None]]) -> None:
        del self._timers[name]
        if self._clock.now() < at:
            self.set(name, at, action)
        else:
            self._tasks.start_soon(self._act, name, action)

    async def _act(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        try:
            await action()
            return
        except HubError as exc:
            log.warning("an alarm is set again", alarm=name, error=exc.message)
        except Exception:
            log.exception("an alarm failed and is set again", alarm=name)
        if name not in self._timers:
            self.set(name, self._clock.now() + RETRY_S, action)
