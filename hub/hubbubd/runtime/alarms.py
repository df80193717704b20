"""Timers for absolute times and delays, by kind and name, on the event loop.

When the clock is set, the absolute times move by as much: a wait of an hour takes an hour. Time that the computer
sleeps counts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

import structlog

from hubbubd.errors import HubError
from hubbubd.runtime.background import Background
from hubbubd.timing.clock import Clock

LONGEST_S = 86400.0
"""Longest timer given to the event loop, in seconds; a later alarm is set again after that."""

RETRY_S = 1.0
"""Seconds until an alarm whose work failed goes off once more."""

Action = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)


class Due(StrEnum):
    """Kind of an alarm: names of different kinds never collide, whatever ids servers choose."""

    REQUEST = "request"
    """A pending request reaches its deadline, or its claim expires."""
    ABANDON = "abandon"
    """A pending request is withdrawn; a failure is retried."""
    WORK = "work"
    """A worker's lease is renewed or released."""
    TASK = "task"
    """A receiver task's ttl ends."""
    CAUSE = "cause"
    """A call that pending requests name has ended: they are updated."""
    COUNTS = "counts"
    """A server's call counts are published (debounced)."""


@dataclass(slots=True)
class _Alarm:
    """A set alarm. `at` is seconds since the epoch; None for a delay."""

    timer: asyncio.TimerHandle
    at: float | None
    action: Action


class Alarms:
    """Alarms by kind and name; setting one again replaces it. A failed action is retried after RETRY_S."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock = clock
        self._background = background
        self._timers: dict[tuple[Due, str], _Alarm] = {}
        self._closed = False
        clock.on_jump(self._shift_timed_alarms)

    def set(self, kind: Due, name: str, at: float | None, action: Action) -> None:
        """Run `action` at the time `at` (seconds since the epoch), in place of an alarm of this kind and name.

        None only clears that alarm.
        """
        self.clear(kind, name)
        if at is not None:
            self._set_timer(kind, name, at, at - self._clock.now(), action)

    def set_after(self, kind: Due, name: str, wait_s: float, action: Action) -> None:
        """Run `action` after `wait_s` seconds, in place of an alarm of this kind and name."""
        self.clear(kind, name)
        self._set_timer(kind, name, None, wait_s, action)

    def clear(self, kind: Due, name: str) -> None:
        """Cancel an alarm, if it is set."""
        if (alarm := self._timers.pop((kind, name), None)) is not None:
            alarm.timer.cancel()

    def close(self) -> None:
        """Cancel every timer and refuse new ones; nothing may fire during shutdown."""
        self._closed = True
        for kind, name in list(self._timers):
            self.clear(kind, name)

    def _set_timer(self, kind: Due, name: str, at: float | None, wait_s: float, action: Action) -> None:
        """Set the timer of an alarm, to `wait_s` from now but LONGEST_S at most; do nothing once closed.

        `at` is the alarm's time in seconds since the epoch, None for a delay.
        """
        if not self._closed:
            wait_s = min(max(wait_s, 0.0), LONGEST_S)
            timer = asyncio.get_running_loop().call_later(wait_s, self._go_off, kind, name, at, action)
            self._timers[kind, name] = _Alarm(timer, at, action)

    def _shift_timed_alarms(self, jump_s: float) -> None:
        """Move the alarms that have a time by `jump_s`, as the clock was set by that: each waits as long as before."""
        for (kind, name), alarm in list(self._timers.items()):
            if alarm.at is not None:
                self.set(kind, name, alarm.at + jump_s, alarm.action)

    def _go_off(self, kind: Due, name: str, at: float | None, action: Action) -> None:
        """Run the action of an alarm in the background, or set the alarm again if its time has not come yet."""
        del self._timers[kind, name]
        if at is not None and self._clock.now() < at:
            self.set(kind, name, at, action)
        else:
            self._background.start_soon(self._run_action, kind, name, action)

    async def _run_action(self, kind: Due, name: str, action: Action) -> None:
        """Run the action of an alarm; if it fails, log that and set the alarm again, unless it was set meanwhile."""
        try:
            await action()
            return
        except HubError as exc:
            log.warning("alarm failed; retried", alarm=f"{kind}/{name}", error=exc.message)
        except Exception:
            log.exception("alarm failed; retried", alarm=f"{kind}/{name}")
        if (kind, name) not in self._timers:
            self.set_after(kind, name, RETRY_S, action)
