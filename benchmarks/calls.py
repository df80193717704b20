"""Calls of servers that only answer, so that all time is spent on the way: through a hub, and by an SDK client."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
import mcp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from mcp.client.stdio import StdioServerParameters
from measure import TEXT, run_in_turns
from processes import HubProcess, start_http_server, start_hub, stdio_server

MAX_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Compared:
    """One row. `rate_ratio` is the middle one of the rounds' own, each of two measurements next to each other.

    `best_ratio` compares the best round of each side: on a busy machine, those that were disturbed least.
    `empty_median_ms` is a health check of the same hub by the same process: what gRPC takes for itself.
    """

    server: str
    in_flight: int
    direct_median_ms: float
    hub_median_ms: float
    empty_median_ms: float
    direct_p95_ms: float
    hub_p95_ms: float
    direct_rate: float
    hub_rate: float
    rate_ratio: float
    best_ratio: float
    hub_cpu_ms: float

    @property
    def added_ms(self) -> float:
        """What the hub adds at the median."""
        return self.hub_median_ms - self.direct_median_ms

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"added_ms": self.added_ms}


@asynccontextmanager
async def _start_servers() -> AsyncGenerator[dict[str, dict[str, Any]]]:
    async with start_http_server("light_http.py") as light:
        servers = {"stdio-light": stdio_server("light_stdio.py"), "http-light": {"url": light}}
        yield {name: {**options, "max_in_flight": MAX_IN_FLIGHT} for name, options in servers.items()}


async def compare_calls(directory: Path, *, only: str, rounds: int, calls: int) -> list[Compared]:
    """A row for each server whose name contains `only`, with 1 and with 32 calls in flight."""
    rows: list[Compared] = []
    async with _start_servers() as servers, start_hub(servers, directory) as running:
        for name, options in servers.items():
            if only in name:
                async with AsyncExitStack() as stack:
                    direct = await stack.enter_async_context(mcp.Client(_direct_target(options)))
                    rows += [
                        await _compare_server(running, direct, name, in_flight, rounds, calls) for in_flight in (1, 32)
                    ]
    return rows


def _direct_target(options: Mapping[str, Any]) -> StdioServerParameters | str:
    return options["url"] if "url" in options else StdioServerParameters(**_hub_options(options))


def _hub_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("command", "args")}


async def _compare_server(
    running: HubProcess, direct: mcp.Client, name: str, in_flight: int, rounds: int, calls: int
) -> Compared:
    """The row of one server: direct calls, calls through the hub, and health checks of the hub, in turns."""

    async def straight() -> None:
        result = await direct.call_tool("echo", {"text": TEXT})
        assert not result.is_error

    async def through() -> None:
        result = await running.client.call_tool(name, "echo", {"text": TEXT})
        assert result.text == TEXT

    async def empty() -> None:
        await health.Check(health_pb2.HealthCheckRequest())

    async with grpc.aio.insecure_channel(running.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        works, clock = [straight, through, empty], running.cpu_s
        one, other, bare = await run_in_turns(
            works, rounds=rounds, calls=calls, in_flight=in_flight, clocks=[clock] * len(works)
        )
    return Compared(
        server=name,
        in_flight=in_flight,
        direct_median_ms=one.median_ms,
        hub_median_ms=other.median_ms,
        empty_median_ms=bare.median_ms,
        direct_p95_ms=one.p95_ms,
        hub_p95_ms=other.p95_ms,
        direct_rate=one.rate,
        hub_rate=other.rate,
        rate_ratio=other.rate_ratio(one),
        best_ratio=max(other.rates) / max(one.rates),
        hub_cpu_ms=other.cpu_ms,
    )
