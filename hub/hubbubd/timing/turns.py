"""Cooperative scheduling of long CPU work on the event loop, so that short work never waits long for it.

Whatever would block the loop for more than about a millisecond is done in pieces: validating a long document, parsing a
long line, reading an event stream of very many lines. All servers together get one piece at a time. While the loop is
busy with other work, the pause before each piece is PAUSE_FACTOR times as long as the piece before it. The loop counts
as busy for a time after each round that had other work, in proportion to that. On an idle hub there are no pauses. Work
is measured by the processor's time, so that a busy machine does not look like a busy hub.
"""

import asyncio
from collections.abc import Generator
from time import perf_counter, thread_time
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar

T = TypeVar("T")

IDLE_S: Final = 0.0003
"""A round of the event loop that took no more of the processor's time had nothing else to do."""

PAUSE_FACTOR: Final = 20
"""How many times as long as a piece of long work the pause before the next one is."""

BUSY_FACTOR: Final = 50
"""How many times as long as a busy round the loop counts as busy after it: a short call has idle rounds in between."""

MAX_BUSY_S: Final = 0.5
"""The most seconds for which the loop counts as busy after one round."""

SHORTEST_PAUSE_S: Final = 0.01
"""Seconds; shorter ones would not let anybody else get much done."""
LONGEST_PAUSE_S: Final = 1.0
"""Seconds; a long document is read in the end, whatever else happens."""


class _Turns:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._piece_started = self._piece_s = self._busy_until = 0.0
        """Start and length of the last piece, in processor time; and until when (`perf_counter`) the loop is busy."""

    async def wait(self) -> None:
        """Let other work of the loop run first, and pause while the loop counts as busy."""
        async with self._lock:
            cpu_before_s = thread_time()  # the next line takes as long as one round of the loop's other work
            await anyio.lowlevel.checkpoint()
            round_s, now = thread_time() - cpu_before_s, perf_counter()
            if round_s > IDLE_S:
                self._busy_until = max(self._busy_until, now + min(BUSY_FACTOR * round_s, MAX_BUSY_S))
            if now < self._busy_until:
                await anyio.sleep(min(max(PAUSE_FACTOR * self._piece_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))
        self._piece_started = thread_time()
        asyncio.get_running_loop().call_soon(self._measure_piece)

    def _measure_piece(self) -> None:
        """Note how long the piece took that began at the last turn."""
        # Other work of this round is measured too, which errs towards longer pauses.
        self._piece_s = thread_time() - self._piece_started


FIRST_PIECES_S: Final = 0.02
PIECE_S: Final = 0.005
"""Seconds of steps that are done in a row, at first and after each turn. A step that takes longer is done whole."""


async def run_in_turns(steps: Generator[object, None, T]) -> T:
    """Do long work in short steps, in turns with other work of the event loop; return what `steps` returns."""
    limit_s, started_s, checked_at = FIRST_PIECES_S, thread_time(), perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        if perf_counter() - checked_at > PIECE_S:  # which costs less to ask than the processor's time
            checked_at = perf_counter()
            if thread_time() - started_s > limit_s:
                await wait_for_turn()
                limit_s, started_s, checked_at = PIECE_S, thread_time(), perf_counter()


def run_at_once(steps: Generator[object, None, T]) -> T:
    """Do all steps now, and return what `steps` returns: for work that is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


_turns: Final = RunVar[_Turns]("turns")


async def wait_for_turn() -> None:
    """Wait for the turn of one piece of long work, which the caller must do at once, without another await."""
    turns = _turns.get(None)
    if turns is None:
        turns = _Turns()
        _turns.set(turns)
    await turns.wait()
