"""Does a call cost more, the more calls there have been? Processor time and memory of a hub that forgets nothing."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from measure import Figure, Series
from processes import hub
from stream import SERVER, streamed

IN_FLIGHT = 64
TEXT = "x"
"""Short, since all of them are kept in memory."""
SAMPLES = 20
"""The calls are made in so many rounds; the first is compared with the last."""
GROWTH = 1.1
"""The most that the last calls may cost, as a share of the first."""
LIMIT_S = 300.0
"""After this, no further round is begun; the figures say how many calls there were."""


async def history(directory: Path, *, calls: int, say: Callable[[str], None] = lambda _: None) -> list[Figure]:
    """Figures of so many calls over one stream, or of as many as there is time for. `say` is told how far it is."""
    kept = {"call_history_count": calls * 2}
    servers = {name: {**options, **kept} for name, options in SERVER.items()}
    each, began = max(calls // SAMPLES, 1), perf_counter()
    async with hub(servers, directory, settings=kept) as running, streamed(running, TEXT) as call:
        await Series().round(lambda: call(""), max(each // 4, IN_FLIGHT), IN_FLIGHT)
        before_mib, series = running.rss_mib(), Series(running.cpu_s)
        while len(series.rounds) < SAMPLES and perf_counter() - began < LIMIT_S:
            say(f"{len(series.rounds) * each:,} of {calls:,} calls")
            await series.round(lambda: call(""), each, IN_FLIGHT)
        after_mib = running.rss_mib()
    first, last, made = series.rounds[0], series.rounds[-1], len(series.rounds) * each
    return [
        Figure(f"processor per call, first {each:,} calls", first.cpu_ms, "ms"),
        Figure(f"processor per call, last {each:,} of {made:,}", last.cpu_ms, "ms"),
        Figure("last to first", last.cpu_ms / first.cpu_ms, "x", GROWTH),
        Figure("calls per second, first", first.rate, "/s"),
        Figure("calls per second, last", last.rate, "/s"),
        Figure("memory before", before_mib, "MiB"),
        Figure("memory per call in history", (after_mib - before_mib) / made * 1024, "KiB"),
    ]
