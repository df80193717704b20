"""Does a call cost more, the more calls there have been? Processor time and memory of a hub that forgets nothing."""

from collections.abc import Callable
from pathlib import Path

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


async def history(directory: Path, *, calls: int, say: Callable[[str], None] = lambda _: None) -> list[Figure]:
    """Figures of so many calls over one stream. `say` is told how far it is."""
    kept = {"call_history_count": calls * 2}
    servers = {name: {**options, **kept} for name, options in SERVER.items()}
    each = calls // SAMPLES
    async with hub(servers, directory, settings=kept) as running, streamed(running, TEXT) as call:
        await Series().round(lambda: call(""), max(each // 4, 1000), IN_FLIGHT)
        before_mib, series = running.rss_mib(), Series(running.cpu_s)
        for number in range(SAMPLES):
            say(f"{number * each:,} of {calls:,} calls")
            await series.round(lambda: call(""), each, IN_FLIGHT)
        after_mib = running.rss_mib()
    first, last = series.rounds[0], series.rounds[-1]
    return [
        Figure(f"processor per call, first {each:,} calls", first.cpu_ms, "ms"),
        Figure(f"processor per call, last {each:,} of {calls:,}", last.cpu_ms, "ms"),
        Figure("last to first", last.cpu_ms / first.cpu_ms, "x", GROWTH),
        Figure("calls per second, first", first.rate, "/s"),
        Figure("calls per second, last", last.rate, "/s"),
        Figure("memory before", before_mib, "MiB"),
        Figure("memory per call in history", (after_mib - before_mib) / calls * 1024, "KiB"),
    ]
