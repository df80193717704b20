"""Time limits that measure a server, and so stand while a person is asked."""

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio


class Patience:
    """The time limits of one connection."""

    def __init__(self) -> None:
        self._left: dict[anyio.CancelScope, float] = {}
        self._asked = 0

    @contextmanager
    def limit(self, seconds: float | None) -> Generator[anyio.CancelScope]:
        """As `anyio.move_on_after`, for time in which nobody is asked."""
        scope = anyio.CancelScope()
        self._left[scope] = math.inf if seconds is None else seconds
        try:
            with scope:
                if not self._asked:
                    self._run(scope)
                yield scope
        finally:
            del self._left[scope]

    @contextmanager
    def asking(self) -> Generator[None]:
        """While it is open, a person is asked."""
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
