"""Server-side deadlines, paused while a person is asked."""

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio


class PausableDeadlines:
    """The deadlines of one connection, which all pause together."""

    def __init__(self) -> None:
        self._remaining_s: dict[anyio.CancelScope, float] = {}
        """By scope of a limit: the seconds that remained when its clock was last started or stopped."""
        self._open_pauses = 0

    @contextmanager
    def limit(self, seconds: float | None) -> Generator[anyio.CancelScope]:
        """Cancel the block after `seconds` (None: never), continue behind it, and yield its cancel scope.

        Time within `pause` does not count.
        """
        scope = anyio.CancelScope()
        self._remaining_s[scope] = math.inf if seconds is None else seconds
        try:
            with scope:
                if not self._open_pauses:
                    self._start_clock(scope)
                yield scope
        finally:
            del self._remaining_s[scope]

    def remaining_s(self, limit: anyio.CancelScope) -> float:
        """Return the seconds that remain of a limit, within its block."""
        return self._remaining_s[limit] if self._open_pauses else max(limit.deadline - anyio.current_time(), 0.0)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Pause all deadlines for the block: a person is asked."""
        self._open_pauses += 1
        if self._open_pauses == 1:
            for scope in self._remaining_s:
                self._remaining_s[scope] = scope.deadline - anyio.current_time()
                scope.deadline = math.inf
        try:
            yield
        finally:
            self._open_pauses -= 1
            if not self._open_pauses:
                for scope in self._remaining_s:
                    self._start_clock(scope)

    def _start_clock(self, scope: anyio.CancelScope) -> None:
        """Set a limit's deadline from the seconds that remain of it."""
        scope.deadline = anyio.current_time() + self._remaining_s[scope]
