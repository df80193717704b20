"""Does a call cost more, the more there have been? A hub that forgets nothing, beside one that was just started."""

import statistics
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from measure import Figure, Series, Work, run_in_turns
from processes import HubProcess, start_hub
from stream import SERVER, streamed

IN_FLIGHT = 64
TEXT = "x"
"""Short, since all of them are kept in memory."""
STEPS = 20
"""In so many steps the history is filled."""
ROUNDS, ROUND = 4, 5_000
"""The rounds that both hubs take in turns, and the most calls in each."""
GROWTH = 1.1
"""The most that a call may cost, to one of the new hub."""
LIMIT_S = 300.0
"""After this, no further step is begun; the figures say how many calls there were."""


async def measure_history(directory: Path, *, calls: int, say: Callable[[str], None] = lambda _: None) -> list[Figure]:
    """Figures after so many calls over one stream, or as many as there is time for. `say` gets how far it is."""
    (directory / "old").mkdir()
    (directory / "new").mkdir()
    made, began = 0, perf_counter()
    async with _start_hub(directory / "old", calls) as (old, of_old):
        await Series().round(of_old, IN_FLIGHT, IN_FLIGHT)
        before_mib, filled = old.rss_mib(), Series()
        while made < calls and perf_counter() - began < LIMIT_S:
            say(f"{made:,} of {calls:,} calls")
            await filled.round(of_old, max(calls // STEPS, IN_FLIGHT), IN_FLIGHT)
            made += max(calls // STEPS, IN_FLIGHT)
        after_mib = old.rss_mib()
        async with _start_hub(directory / "new", calls) as (new, of_new):
            works, clocks, each = [of_old, of_new], [old.cpu_s, new.cpu_s], min(ROUND, calls // STEPS)
            full, empty = await run_in_turns(works, rounds=ROUNDS, calls=each, in_flight=IN_FLIGHT, clocks=clocks)
    ratio = statistics.median(a.cpu_ms / b.cpu_ms for a, b in zip(full.rounds, empty.rounds, strict=True))
    return [
        Figure(f"processor per call, with {made:,} calls in history", full.cpu_ms, "ms"),
        Figure("processor per call, of a new hub", empty.cpu_ms, "ms"),
        Figure("the one to the other", ratio, "x", GROWTH),
        Figure(f"calls per second, with {made:,} calls in history", full.rate, "/s"),
        Figure("calls per second, of a new hub", empty.rate, "/s"),
        Figure("slowest call while it was filled", max(filled.latencies_s) * 1000, "ms"),
        Figure("memory without history", before_mib, "MiB"),
        Figure("memory per call in history", (after_mib - before_mib) / made * 1024, "KiB"),
    ]


@asynccontextmanager
async def _start_hub(directory: Path, calls: int) -> AsyncGenerator[tuple[HubProcess, Work]]:
    settings = {"call_history_count": calls * 2}
    servers = {name: {**options, **settings} for name, options in SERVER.items()}
    async with start_hub(servers, directory, settings=settings) as running, streamed(running, TEXT) as call:
        yield running, lambda: call("")
