"""Server-side deadlines, paused while a person is asked."""

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio


class PausableDeadlines:
    """The pausable deadlines of one connection."""

    def __init__(self) -> None:
        self._left: dict[anyio.CancelScope, float] = {}
        self._asked = 0

    @contextmanager
    def limit(self, seconds: float | None) -> Generator[anyio.CancelScope]:
        """Like `anyio.move_on_after`, but the time in which a person is asked does not count."""
        scope = anyio.CancelScope()
        self._left[scope] = math.inf if seconds is None else seconds
        try:
            with scope:
                if not self._asked:
                    self._run(scope)
                yield scope
        finally:
            del self._left[scope]

    def left(self, limit: anyio.CancelScope) -> float:
        """Return how many seconds a limit has left, within its block."""
        return self._left[limit] if self._asked else max(limit.deadline - anyio.current_time(), 0.0)

    @contextmanager
    def asking(self) -> Generator[None]:
        """Pause all deadlines for the block: a person is asked."""
        self._asked += 1
        if self._asked == 1:
            for scope in self._left:
                self._left[scope] = scope.deadline - anyio.current_time()
                scope.deadline = math.inf
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked:
                for scope in self._left:
                    self._run(scope)

    def _run(self, scope: anyio.CancelScope) -> None:
        scope.deadline = anyio.current_time() + self._left[scope]
