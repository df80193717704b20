"""How many steps of its own the hub takes for what it does most: calls of functions, and in how many files.

`python benchmarks/steps.py [--list WAY]`; with --list each function that one way enters, in the order of a run.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import count, pairwise
from pathlib import Path
from statistics import median

import anyio
import mcp
from hosts import connect_to_endpoint, open_authorized_client
from measure import TEXT
from processes import HERE, HubProcess, start_hub, stdio_server
from rich.console import Console
from rich.table import Table

import hubbub_client
from hubbub_client import ServerSpec

POLL_S = 0.005
LIMIT_S = 30
SETTLE_S = 0.2
"""What a step writes behind, within 50 ms, belongs to it."""
Step = tuple[str, str, str]
"""File, class and function."""
WAYS = ("host over HTTP to stdio", "stream, form answered by another client", "servers add until connected")


@dataclass(frozen=True, slots=True)
class Steps:
    """The middle one of several runs of a way."""

    way: str
    calls: int
    functions: int
    files: int
    changes_of_file: int
    classes: int


async def trace_ways(directory: Path, runs: int) -> dict[str, list[list[Step]]]:
    """What each run of each way has entered."""
    path = directory / "steps.json"
    servers = {"light": stdio_server("light_stdio.py")}
    command, environ = [sys.executable, HERE / "traced_hub.py"], {"HUBBUB_STEPS": str(path)}
    settings = {"mcp_listen": "127.0.0.1:0"}
    async with (
        start_hub(servers, directory, command, settings, environ) as running,
        open_authorized_client(running) as http,
        mcp.Client(connect_to_endpoint(running, http, "light"), mode="legacy") as host,
        answering(running),
    ):
        names = count()

        async def called() -> None:
            assert not (await host.call_tool("echo", {"text": TEXT})).is_error

        async def asked() -> None:
            await running.client.call_tool("light", "ask")

        async def added() -> None:
            name = f"added{next(names)}"
            async with aclosing(running.client.servers.watch([name])) as changes:
                await running.client.servers.add(ServerSpec(name=name, **stdio_server("light_stdio.py")))
                async for change in changes:
                    if isinstance(change, hubbub_client.Upsert) and change.record.state == "connected":
                        return

        return {
            way: [await _trace(running.pid, path, work) for _ in range(runs)]
            for way, work in zip(WAYS, (called, asked, added), strict=True)
        }


@asynccontextmanager
async def answering(running: HubProcess) -> AsyncGenerator[None]:
    """Another client of the hub, which answers every form."""

    async def answer() -> None:
        async with hubbub_client.connect(data_dir=running.data_dir) as client:
            async for change in client.inbox.watch(states=["open"]):
                if isinstance(change, hubbub_client.Upsert):
                    await change.record.accept({"name": "Ada"})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        yield
        tasks.cancel_scope.cancel()


async def _trace(pid: int, path: Path, work: Callable[[], Awaitable[None]]) -> list[Step]:
    """Do the work twice, and trace the second time: what is only done once is no part of it."""
    await work()
    await anyio.sleep(SETTLE_S)
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    await _wait_for_file(path.with_suffix(".begun"))
    await work()
    await anyio.sleep(SETTLE_S)
    os.kill(pid, signal.SIGUSR1)
    await _wait_for_file(path)
    path.with_suffix(".begun").unlink()
    return [tuple(each) for each in json.loads(path.read_text())]


async def _wait_for_file(path: Path) -> None:
    with anyio.fail_after(LIMIT_S):
        while not path.exists():
            await anyio.sleep(POLL_S)


def middle(way: str, traces: Sequence[Sequence[Step]]) -> Steps:
    """The figures of a way, each the median of its runs."""

    def of_runs(figure: Callable[[Sequence[Step]], int]) -> int:
        return round(median(figure(trace) for trace in traces))

    return Steps(
        way,
        calls=of_runs(len),
        functions=of_runs(lambda trace: len(set(trace))),
        files=of_runs(lambda trace: len({file for file, _, _ in trace})),
        changes_of_file=of_runs(lambda trace: sum(before[0] != after[0] for before, after in pairwise(trace))),
        classes=of_runs(lambda trace: len({(file, owner) for file, owner, _ in trace if owner})),
    )


def main() -> None:
    """Print the table, or what one way enters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="of each way, whose middle counts (default: %(default)s)")
    parser.add_argument("--list", metavar="WAY", help="print each function that a way enters; part of its name will do")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        steps = anyio.run(trace_ways, Path(directory), options.runs)
    if options.list:
        for way, (first, *_) in steps.items():
            if options.list in way:
                print(*(f"{file}  {name}" for file, _, name in first), sep="\n")
        return
    table = Table("", *(name.replace("_", " ") for name in list(Steps.__dataclass_fields__)[1:]))
    for way, traces in steps.items():
        table.add_row(*map(str, asdict(middle(way, traces)).values()))
    Console().print(table)


if __name__ == "__main__":
    main()
