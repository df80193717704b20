"""What telemetry costs: calls through hubs that trace, that measure, that do both, and neither, in turns."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from goals import base_environment
from measure import call_echo, run_in_turns
from processes import HubProcess, start_http_server, start_hub, stdio_server


@dataclass(frozen=True, slots=True)
class Observed:
    """One row. `ratio` is of calls per second to the hub without telemetry: the middle one of the rounds' own."""

    hub: str
    in_flight: int
    median_ms: float
    ratio: float
    hub_cpu_ms: float


async def compare(directory: Path, *, rounds: int, calls: int, base: Path | None = None) -> list[Observed]:
    """A row for each hub and number of calls in flight; with `base`, also for the hub of that checkout."""
    rows: list[Observed] = []
    async with AsyncExitStack() as open_:
        collector = (await open_.enter_async_context(start_http_server("otlp.py"))).removesuffix("/mcp")
        hubs: dict[str, HubProcess] = {}
        for name, environ in _environments(collector, base).items():
            servers = {"light": {**stdio_server("light_stdio.py"), "max_in_flight": 64}}
            (directory / name).mkdir()
            hubs[name] = await open_.enter_async_context(start_hub(servers, directory / name, environ=environ))
        works, clocks = [call_echo(each.client) for each in hubs.values()], [each.cpu_s for each in hubs.values()]
        for in_flight in (1, 32):
            series = await run_in_turns(works, rounds=rounds, calls=calls, in_flight=in_flight, clocks=clocks)
            rows += [
                Observed(name, in_flight, one.median_ms, one.rate_ratio(series[0]), one.cpu_ms)
                for name, one in zip(hubs, series, strict=True)
            ]
    return rows


def _environments(collector: str, base: Path | None) -> dict[str, dict[str, str]]:
    """The environment of each hub, by the name of its row."""
    on = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector}
    traces = on | {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}
    rows = {
        "none": {},
        "traces": traces,
        "1 trace in 100": traces | sampler,
        "metrics": on | {"OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"},
        "for Prometheus": {"HUBBUBD_METRICS_LISTEN": "127.0.0.1:0"},
        "all": on,
    }
    return rows | ({"base": base_environment(base), "base, traces": base_environment(base) | traces} if base else {})
