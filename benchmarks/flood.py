"""What a server that sends without being asked takes from the calls of another server."""

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from measure import Series
from processes import start_hub, stdio_server

IN_FLIGHT = 8
MINUTE_S = 60.0
FLOODS: Mapping[str, tuple[int, int]] = {"20,000 messages": (20_000, 100), "200 MB": (2000, 100_000)}
"""How many log messages in a minute, and how many bytes each has."""


@dataclass(frozen=True, slots=True)
class FloodRate:
    """One row: calls per second of one server while another is quiet, or floods. `ratio` is to the quiet round."""

    flood: str
    rate: float
    ratio: float


async def measure_floods(directory: Path, *, rounds: int, seconds: float) -> list[FloodRate]:
    """A row without and one with each flood, at its rate per minute. They take turns."""
    rates: dict[str, list[float]] = {name: [] for name in ("none", *FLOODS)}
    servers = {name: stdio_server("light_stdio.py") for name in ("calm", "loud")}
    async with start_hub(servers, directory) as running:

        async def call() -> None:
            await running.client.call_tool("calm", "echo", {"text": "x"})

        await Series().round(call, 200, IN_FLIGHT)
        for _ in range(rounds):
            for name, per_round in rates.items():
                count, size = FLOODS.get(name, (0, 0))
                part = {"count": int(count * seconds / MINUTE_S), "size": size, "seconds": seconds}
                await running.client.call_tool("loud", "flood", part)
                series = Series()
                await series.round(call, sys.maxsize, IN_FLIGHT, most_s=seconds)
                per_round += series.rates
                await anyio.sleep(seconds / 10)  # what is late
    return [
        FloodRate(
            name, statistics.median(per_round), statistics.median(map(float.__truediv__, per_round, rates["none"]))
        )
        for name, per_round in rates.items()
    ]
