"""What telemetry costs: calls through hubs that trace, that measure, that do both, and neither, in turns.

    python benchmarks/tracing.py [--rounds 6] [--calls 400] [--base DIRECTORY] [--only HUB ...]

`--base` is another checkout of the repository, whose hub is measured beside this one's, without and with traces.
"""

import argparse
import os
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from measure import Series, in_turns
from processes import HubProcess, http_server, hub, stdio_server

TEXT = "x" * 100


async def main(options: argparse.Namespace) -> None:
    """Prints a row for each hub; ratios are the middle one of the rounds' own, against the hub without."""
    with tempfile.TemporaryDirectory(prefix="hubbub-bench-") as folder:
        async with AsyncExitStack() as stack:
            collector = (await stack.enter_async_context(http_server("otlp.py"))).removesuffix("/mcp")
            on = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector}
            traces = on | {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
            environments = {
                "off": {},
                "traces": traces,
                "1 trace in 100": traces
                | {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"},
                "metrics": on | {"OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"},
                "for Prometheus": {"HUBBUBD_METRICS_LISTEN": "127.0.0.1:0"},
                "all": on,
            }
            if options.base:
                roots = [str(options.base / root) for root in ("hub", "clients", "protos")]
                environments["base"] = {"PYTHONPATH": os.pathsep.join(roots)}
                environments["base, traces"] = environments["base"] | traces
            environments = {
                name: value for name, value in environments.items() if name in (options.only or environments)
            }
            hubs: dict[str, HubProcess] = {}
            for name, environ in environments.items():
                directory = Path(folder) / name
                directory.mkdir()
                servers = {"light": {**stdio_server("light_stdio.py"), "max_in_flight": 64}}
                hubs[name] = await stack.enter_async_context(hub(servers, directory, environ=environ))
            for in_flight in (1, 32):
                await _compare(hubs, in_flight, options)


async def _compare(hubs: dict[str, HubProcess], in_flight: int, options: argparse.Namespace) -> None:
    async def call(running: HubProcess) -> None:
        await running.client.call_tool("light", "echo", {"text": TEXT})

    works = [lambda running=running: call(running) for running in hubs.values()]
    before = {name: running.cpu_s() for name, running in hubs.items()}
    series = dict(
        zip(hubs, await in_turns(works, rounds=options.rounds, calls=options.calls, in_flight=in_flight), strict=True)
    )
    done = options.rounds * options.calls + max(options.calls // 4, in_flight)
    for name, one in series.items():
        cpu_ms = (hubs[name].cpu_s() - before[name]) / done * 1000
        ratio = _ratio(series["off"], one)
        print(
            f"{in_flight:3} in flight  {name:14} median {one.median_ms:6.2f} ms  rate x{ratio:.2f}  CPU {cpu_ms:.2f} ms"
        )


def _ratio(off: Series, other: Series) -> float:
    return statistics.median(b / a for a, b in zip(off.rates, other.rates, strict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--only", nargs="+", metavar="HUB", help="as the rows name them; `off` is needed")
    anyio.run(main, parser.parse_args())
