"""Things that must happen at an absolute time, or a while from now: one timer of the event loop each."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

import structlog

from hubbubd.clock import Clock
from hubbubd.errors import HubError
from hubbubd.runtime.background import Background

LONGEST_S = 86400.0
"""The loop's timers do not take any length; a later alarm is set again when this has passed."""

RETRY_S = 1.0
"""Seconds until an alarm whose work failed goes off once more."""

Action = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)


class Due(StrEnum):
    """What is due. Alarms of one kind never meet those of another, whatever ids servers choose."""

    REQUEST = "request"
    """A request is out of time, or its claim lapses."""
    ABANDON = "abandon"
    """A request that nobody needs any more is closed."""
    WORK = "work"
    """A worker's claim is renewed, or given back."""
    TASK = "task"
    """A receiver task is forgotten."""
    CAUSE = "cause"
    """A call that a request names has ended."""
    COUNTS = "counts"
    """A server's counts are shown anew."""


@dataclass(slots=True)
class _Alarm:
    """An alarm that is set; without `at` it was set for a while from then, whatever becomes of the clock."""

    timer: asyncio.TimerHandle
    at: float | None
    action: Action


class Alarms:
    """Alarms by kind and name; setting one again moves it. An action that fails is tried again."""

    def __init__(self, clock: Clock, tasks: Background) -> None:
        self._clock = clock
        self._tasks = tasks
        self._timers: dict[tuple[Due, str], _Alarm] = {}
        self._closed = False
        clock.follow(lambda _: self._set_anew())

    def set(self, kind: Due, name: str, at: float | None, action: Action) -> None:
        """Runs `action` at `at` (seconds since the epoch); None takes the alarm back."""
        self.clear(kind, name)
        if at is not None:
            self._start(kind, name, at, at - self._clock.now(), action)

    def after(self, kind: Due, name: str, wait_s: float, action: Action) -> None:
        """Runs `action` after so many seconds."""
        self.clear(kind, name)
        self._start(kind, name, None, wait_s, action)

    def clear(self, kind: Due, name: str) -> None:
        """Takes an alarm back, if there is one."""
        if (alarm := self._timers.pop((kind, name), None)) is not None:
            alarm.timer.cancel()

    def close(self) -> None:
        """Takes all alarms back, and sets none from now on: what still changes when a hub ends rings for nobody."""
        self._closed = True
        for kind, name in list(self._timers):
            self.clear(kind, name)

    def _start(self, kind: Due, name: str, at: float | None, wait_s: float, action: Action) -> None:
        if not self._closed:
            wait_s = min(max(wait_s, 0.0), LONGEST_S)
            timer = asyncio.get_running_loop().call_later(wait_s, self._ring, kind, name, at, action)
            self._timers[kind, name] = _Alarm(timer, at, action)

    def _set_anew(self) -> None:
        """The time has jumped: what was to happen at an absolute time is as far away as it is now."""
        for (kind, name), alarm in list(self._timers.items()):
            if alarm.at is not None:
                self.set(kind, name, alarm.at, alarm.action)

    def _ring(self, kind: Due, name: str, at: float | None, action: Action) -> None:
        del self._timers[kind, name]
        if at is not None and self._clock.now() < at:
            self.set(kind, name, at, action)
        else:
            self._tasks.start_soon(self._act, kind, name, action)

    async def _act(self, kind: Due, name: str, action: Action) -> None:
        try:
            await action()
            return
        except HubError as exc:
            log.warning("an alarm is set again", alarm=f"{kind}/{name}", error=exc.message)
        except Exception:
            log.exception("an alarm failed and is set again", alarm=f"{kind}/{name}")
        if (kind, name) not in self._timers:
            self.after(kind, name, RETRY_S, action)
