"""Calls, timed: some in flight at once, and several ways compared in turns; and single figures with their goals."""

import math
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

import anyio

import hubbub_client

TEXT = "x" * 1024
"""What calls carry there and back."""

Work = Callable[[], Awaitable[object]]
"""One call. If it returns a float, its time counts from there, by `perf_counter`, and not from its start."""
Clocks = Sequence[Callable[[], float]]
"""The processor time of what is in the way, in seconds; one for each way."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. Its goal is the most that it should be, or the least."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


@dataclass(frozen=True, slots=True)
class Round:
    """What one round has shown. `cpu_s` is the processor time of the process in the way, if there is one."""

    latencies_s: Sequence[float]
    rate: float
    cpu_s: float

    @property
    def median_ms(self) -> float:
        """Half of the calls were faster."""
        return statistics.median(self.latencies_s) * 1000

    @property
    def p99_ms(self) -> float:
        """One call in a hundred was slower."""
        return percentile(self.latencies_s, 0.99) * 1000

    @property
    def cpu_ms(self) -> float:
        """Processor time per call."""
        return self.cpu_s / len(self.latencies_s) * 1000


@dataclass(slots=True)
class Series:
    """The rounds of one way. `clock` is the processor time of the process in the way, in seconds."""

    clock: Callable[[], float] = lambda: 0.0
    rounds: list[Round] = field(default_factory=list[Round])

    @property
    def latencies_s(self) -> list[float]:
        return [latency for one in self.rounds for latency in one.latencies_s]

    @property
    def rates(self) -> list[float]:
        """The calls per second of each round."""
        return [one.rate for one in self.rounds]

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

    @property
    def cpu_ms(self) -> float:
        """Processor time per call in the middle round."""
        return statistics.median(one.cpu_ms for one in self.rounds)

    def rate_ratio(self, base: "Series") -> float:
        """The calls per second to those of another way: the middle one of the rounds' own."""
        return statistics.median(rate / plain for rate, plain in zip(self.rates, base.rates, strict=True))

    async def round(self, work: Work, calls: int, in_flight: int, most_s: float = math.inf) -> None:
        """Does the work so many times, so many at once: the first in any case, no other one after `most_s` seconds."""
        remaining, latencies_s = calls, list[float]()

        async def worker() -> None:
            nonlocal remaining
            while remaining > 0 and (remaining == calls or perf_counter() < end):
                remaining -= 1
                began = perf_counter()
                done = await work()
                latencies_s.append(perf_counter() - (done if isinstance(done, float) else began))

        cpu_s, began = self.clock(), perf_counter()
        end = began + most_s
        async with anyio.create_task_group() as workers:
            for _ in range(in_flight):
                workers.start_soon(worker)
        rate = len(latencies_s) / (perf_counter() - began)
        self.rounds.append(Round(latencies_s, rate, self.clock() - cpu_s))


def call_echo(client: hubbub_client.Hub) -> Work:
    """A call of the server `light` through a hub."""
    return lambda: client.call_tool("light", "echo", {"text": TEXT})


async def run_paced(work: Work, *, rate: float, calls: int) -> list[float]:
    """Do the work so many times, at this rate, whether or not that before has ended; return how long each took."""
    took_s: list[float] = []

    async def one() -> None:
        began = perf_counter()
        await work()
        took_s.append(perf_counter() - began)

    began = perf_counter()
    async with anyio.create_task_group() as under_way:
        for number in range(calls):
            await anyio.sleep(max(began + number / rate - perf_counter(), 0))
            under_way.start_soon(one)
    return took_s


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    return sorted(values)[math.ceil(len(values) * share) - 1]


async def run_in_turns(
    works: Sequence[Work],
    *,
    rounds: int,
    calls: int,
    in_flight: int,
    clocks: Clocks | None = None,
    most_s: float = math.inf,
) -> list[Series]:
    """A series for each way of work, with its clock. They take turns, in every second round in the opposite order.

    So a busy machine hits all of them. A round begins no call after `most_s` seconds. A shorter round before, to warm
    up, is not counted.
    """
    series = [Series(clock) for clock in clocks] if clocks else [Series() for _ in works]
    for work in works:
        await Series().round(work, max(calls // 4, in_flight), in_flight, most_s / 4)
    pairs = list(zip(series, works, strict=True))
    for number in range(rounds):
        for one, work in pairs if number % 2 else reversed(pairs):
            await one.round(work, calls, in_flight, most_s)
    return series
