"""Cooperative scheduling of long CPU work on the event loop, so that short work never waits long for it.

Whatever would block the loop for more than about a millisecond is done in pieces: validating a long document, parsing a
long line, reading an event stream of very many lines. All servers together get one piece at a time. While the loop has
other work, the pause before each piece is SHARE times as long as the piece before it. On an idle hub there are no
pauses.
"""

import asyncio
from time import perf_counter
from typing import Final

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar

IDLE_S: Final = 0.0003
"""A round of the event loop that took no longer had nothing else to do."""

SHARE: Final = 20
"""How many times as long as a piece of long work the pause before the next one is."""

BUSY_S: Final = 0.5
"""Seconds for which the loop counts as busy after a busy round: a short call has idle rounds in between."""

SHORTEST_PAUSE_S: Final = 0.01
"""Seconds; shorter ones would not let anybody else get much done."""
LONGEST_PAUSE_S: Final = 1.0
"""Seconds; a long document is read in the end, whatever else happens."""


class _Turns:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._begun = self._taken_s = self._busy_until = 0.0

    async def wait(self) -> None:
        async with self._lock:
            before = perf_counter()
            await anyio.lowlevel.checkpoint()
            if (now := perf_counter()) - before > IDLE_S:
                self._busy_until = now + BUSY_S
            if now < self._busy_until:
                await anyio.sleep(min(max(SHARE * self._taken_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))
        self._begun = perf_counter()
        asyncio.get_running_loop().call_soon(self._ended)

    def _ended(self) -> None:
        # Other work of this round is measured too, which errs towards longer pauses.
        self._taken_s = perf_counter() - self._begun


_turns: Final = RunVar[_Turns]("turns")


async def turn() -> None:
    """Wait for the turn of one piece of long work, which the caller must do at once, without another await."""
    turns = _turns.get(None)
    if turns is None:
        turns = _Turns()
        _turns.set(turns)
    await turns.wait()
