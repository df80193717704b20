"""Whose calls a server may be at work for, so that what it asks is attributed to nobody else's."""

from collections.abc import Iterable
from typing import Final

from hubbubd.timing.clock import Clock

ANSWERED_S: Final = 5.0
"""Seconds for which a server may still ask something about a call that it has answered."""

UNANSWERED_S: Final = 60.0
"""The same for a call that it has not answered: it may not have heard yet that nobody waits for it."""


class Callers:
    """The principals whose calls have left the wire of one connection a moment ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def begin(self) -> None:
        """Begin a connection, over which nobody has called."""
        self._until.clear()

    def left(self, principal: str, *, answered: bool) -> None:
        """Note that a call of a principal has ended; `answered` says that its server has answered it."""
        now = self._clock.steady()
        self._until = {each: until for each, until in self._until.items() if until > now}
        until = now + (ANSWERED_S if answered else UNANSWERED_S)
        self._until[principal] = max(until, self._until.get(principal, until))

    def alone(self, principal: str, on_the_wire: Iterable[str]) -> bool:
        """Return whether the server can be at work for nobody but a principal."""
        now = self._clock.steady()
        late = (each for each, until in self._until.items() if until > now)
        return all(each == principal for each in (*on_the_wire, *late))
