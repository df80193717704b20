"""Calls, timed: some in flight at once, and two ways compared in turns."""

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import anyio

Work = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Series:
    """The latencies of one way over all rounds, and the calls per second of each round."""

    latencies_s: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])

    @property
    def median_ms(self) -> float:
        """Half of the calls were faster."""
        return statistics.median(self.latencies_s) * 1000

    @property
    def p95_ms(self) -> float:
        """One call in twenty was slower."""
        return percentile(self.latencies_s, 0.95) * 1000

    @property
    def rate(self) -> float:
        """Calls per second in the middle round."""
        return statistics.median(self.rates)

    async def round(self, work: Work, calls: int, in_flight: int) -> None:
        """Does the work so many times, with so many under way at once."""
        left = calls

        async def worker() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                began = perf_counter()
                await work()
                self.latencies_s.append(perf_counter() - began)

        began = perf_counter()
        async with anyio.create_task_group() as workers:
            for _ in range(in_flight):
                workers.start_soon(worker)
        self.rates.append(calls / (perf_counter() - began))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


async def in_turns(works: Sequence[Work], *, rounds: int, calls: int, in_flight: int) -> list[Series]:
    """A series for each way of work. They take turns, and begin the rounds in turn, so that a busy machine hits all."""
    series = [Series() for _ in works]
    for work in works:
        await Series().round(work, max(calls // 4, in_flight), in_flight)
    pairs = list(zip(series, works, strict=True))
    for number in range(rounds):
        for one, work in pairs if number % 2 else reversed(pairs):
            await one.round(work, calls, in_flight)
    return series
