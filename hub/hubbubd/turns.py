"""Long work takes turns, so that whoever has little to do never waits for it.

What holds up the event loop for more than about a millisecond is done in pieces: the check of a long document, the
parsing of a long line, an event stream of very many lines. All servers together are allowed one piece at a time. While
anything else happens in the loop, there is a pause before each that is several times as long as the piece before it.
On an idle hub long work takes no longer than it must.
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
"""How many times as long as a piece of long work the others get for themselves, when they have something to do."""

BUSY_S: Final = 0.5
"""For how long the loop counts as busy after a round that was: between the rounds of a short call, many are idle."""

SHORTEST_PAUSE_S: Final = 0.01
"""Seconds; shorter ones would not let anybody else get much done."""
LONGEST_PAUSE_S: Final = 1.0
"""Seconds; a long document is read in the end, whatever else happens."""


class _Turns:
    """The order of long work in one event loop."""

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
        # What else happened in this round counts as well: then there is the more reason to pause.
        self._taken_s = perf_counter() - self._begun


_turns: Final = RunVar[_Turns]("turns")


async def turn() -> None:
    """Waits for the turn of one piece of long work. The caller does the piece at once, without another await."""
    turns = _turns.get(None)
    if turns is None:
        turns = _Turns()
        _turns.set(turns)
    await turns.wait()
