"""Does anything grow? A real hub at a steady load, looked at every ten seconds.

    python benchmarks/soak.py --minutes 10        (or `make soak MINUTES=10`)

Ten servers; calls, questions that two frontends race for, tasks of both roles, rounds, and watchers that come and go.
Little is kept of what has ended, so that deleting is part of the load. Exits with 1 when something grows: the figures
of the last quarter are compared with those of the quarter before, and open files, threads and tasks of the loop, once
all is quiet again, with those before the load.
"""

import argparse
import json
import os
import random
import secrets
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
from processes import HERE, HubProcess, http_server, hub, stdio_server
from rich import box
from rich.console import Console
from rich.table import Table

import hubbub_client
from hubbub_client import FailedPrecondition, Upsert

PEERS = HERE.parent / "tests" / "peers"
SAMPLE_S = 10.0
WARM_UP_S, SETTLE_S = 20.0, 60.0
CALL_PAUSE_S, ASK_PAUSE_S, WATCH_S = 0.1, 0.5, 2.0
RACERS = 2
GROWTH, GROWTH_MIB = 0.05, 5.0
"""What may be noise: the larger of this share and so many MiB."""

KEPT = {"call_history_count": 500, "request_history_count": 300, "task_history_count": 100}
LEAN = {"deletion_history_age_s": 30, **KEPT}

console = Console(width=140)


@dataclass(frozen=True, slots=True)
class Sample:
    """The hub at one moment. `store_mib` is its files on the disk, the journal included."""

    at_s: float
    rss_mib: float
    files: int
    threads: int
    loop_tasks: int
    store_mib: float
    done: int


@dataclass
class Load:
    """What everybody does, and how often it was done."""

    hub: HubProcess
    done: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])

    def start(self, tasks: anyio.abc.TaskGroup, asking: Mapping[str, str], calling: Sequence[str]) -> None:
        """Sets everybody to work: who answers first, then who calls, asks, and watches."""
        for name in range(RACERS):
            tasks.start_soon(self._answer, f"racer-{name}")
        for server in calling:
            tasks.start_soon(self._repeat, CALL_PAUSE_S, self._echo(server))
        for server, tool in asking.items():
            tasks.start_soon(self._repeat, ASK_PAUSE_S, self._ask(server, tool))
        tasks.start_soon(self._repeat, ASK_PAUSE_S, self._task())
        tasks.start_soon(self._watch)

    async def _repeat(self, pause_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await work()
            await anyio.sleep(random.uniform(0, 2 * pause_s))

    def _echo(self, server: str) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            result = await self.hub.client.call_tool(server, "echo", {"text": "x" * 100})
            self._check("calls", result.text == "x" * 100)

        return work

    def _ask(self, server: str, tool: str) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            call_id = f"{server}-{secrets.token_hex(8)}"
            handle = await self.hub.client.start_tool(server, tool, call_id=call_id)
            self._check(f"calls of {server} that ask", (await handle.wait()).state == "completed")

        return work

    def _task(self) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            arguments = {"kind": random.choice(["elicitation", "sampling"]), "ttl": 300_000}
            started = await self.hub.client.call_tool("tasks", "start", arguments)
            task_id = json.loads(started.text)["task"]["taskId"]
            async with aclosing(self.hub.client.tasks.watch(role="receiver", statuses=["completed"])) as news:
                async for event in news:
                    if isinstance(event, Upsert) and event.record.id == task_id:
                        break
            fetched = await self.hub.client.call_tool("tasks", "fetch", {"task_id": task_id})
            self._check("tasks", "result" in json.loads(fetched.text))

        return work

    async def _answer(self, name: str) -> None:
        """Answers every question as soon as it is seen, as somebody else does."""
        async with (
            hubbub_client.connect(data_dir=self.hub.data_dir, name=name) as client,
            aclosing(client.inbox.watch(states=["open"])) as news,
        ):
            async for event in news:
                if not isinstance(event, Upsert):
                    continue
                request = event.record
                try:
                    if request.kind == "sampling":
                        await request.reply_text(name)
                    else:
                        ((key, schema),) = request.request["requestedSchema"]["properties"].items()
                        await request.accept({key: 7 if schema["type"] == "integer" else name})
                    self.done["answers accepted"] += 1
                except FailedPrecondition:
                    self.done["answers refused"] += 1

    async def _watch(self) -> None:
        """Comes with a connection of its own, watches for a moment, and goes."""
        while True:
            async with hubbub_client.connect(data_dir=self.hub.data_dir) as client:
                for noun in (client.inbox, client.calls, client.tasks, client.servers):
                    with anyio.move_on_after(WATCH_S / 4):
                        async with aclosing(noun.watch()) as news:
                            async for _ in news:
                                self.done["events watched"] += 1
            self.done["watchers that came and went"] += 4

    def _check(self, what: str, well: bool) -> None:
        self.done[what] += 1
        if not well:
            self.wrong.append(what)


async def look(running: HubProcess, begun: float, done: int) -> Sample:
    """The hub now."""
    process = Path(f"/proc/{running.pid}")
    status = await running.client.admin.status()
    return Sample(
        at_s=monotonic() - begun,
        rss_mib=running.rss_mib(),
        files=sum(1 for _ in (process / "fd").iterdir()),
        threads=sum(1 for _ in (process / "task").iterdir()),
        loop_tasks=status.loop_tasks,
        store_mib=sum(file.stat().st_size for file in running.data_dir.glob("hubbub.db*")) / 2**20,
        done=done,
    )


async def soak(directory: Path, minutes: float, python: str) -> int:
    """Runs it all and says what was found; the exit status."""
    async with _servers(python) as servers, hub(servers, directory, settings=LEAN) as running:
        asking = {"ask-1": "ask", "ask-2": "ask", "plain": "ask", "mrtr": "three_forms", "ext": "greet"}
        calling = [name for name in servers if name.startswith(("ask", "echo"))]
        async with anyio.create_task_group() as tasks:  # opens what is kept open from then on
            Load(running).start(tasks, asking, calling)
            await anyio.sleep(WARM_UP_S)
            tasks.cancel_scope.cancel()
        await _quiet(running)
        begun = monotonic()
        load, samples, before = Load(running), list[Sample](), await look(running, begun, 0)
        table = _table()
        _show(table, "before", before)
        async with anyio.create_task_group() as tasks:
            load.start(tasks, asking, calling)
            while monotonic() - begun < minutes * 60:
                await anyio.sleep(SAMPLE_S)
                samples.append(await look(running, begun, sum(load.done.values())))
            tasks.cancel_scope.cancel()
        for sample in samples[:: max(len(samples) // 12, 1)]:
            _show(table, f"{sample.at_s:.0f} s", sample)
        await _quiet(running)
        after = await look(running, begun, sum(load.done.values()))
        _show(table, "after", after)
    console.print(table)
    console.print(", ".join(f"{count} {what}" for what, count in sorted(load.done.items())))
    return _verdict(before, samples, after, load.wrong)


def _verdict(before: Sample, samples: list[Sample], after: Sample, wrong: list[str]) -> int:
    quarter = max(len(samples) // 4, 1)
    last, earlier = samples[-quarter:], samples[-2 * quarter : -quarter] or samples[:1]
    found = [f"went wrong: {what}" for what in wrong]
    for name in ("rss_mib", "store_mib"):
        was, now = (statistics.median(getattr(sample, name) for sample in part) for part in (earlier, last))
        console.print(f"{name}: {was:.1f} in the third quarter, {now:.1f} in the last")
        if now - was > max(was * GROWTH, GROWTH_MIB):
            found.append(f"{name} grows")
    for name in ("files", "threads", "loop_tasks"):
        was, now = getattr(before, name), getattr(after, name)
        console.print(f"{name}: {was} before the load, {now} after it")
        if now > was:
            found.append(f"{name} stay behind")
    console.print("; ".join(found) or "nothing grows")
    return 1 if found else 0


async def _quiet(running: HubProcess) -> None:
    """Waits until the hub has nothing to do any more but to keep its connections."""
    steady = -1
    with anyio.move_on_after(SETTLE_S):
        while True:
            await anyio.sleep(5)
            status = await running.client.admin.status()
            if status.loop_tasks == steady:
                return
            steady = status.loop_tasks


@asynccontextmanager
async def _servers(python: str) -> AsyncGenerator[dict[str, Any]]:
    peers: dict[str, tuple[str | Path, ...]] = {
        "plain": (PEERS / "asking_server.py", "http"),
        "mrtr": (PEERS / "mrtr_server.py", "http"),
        "ext": (PEERS / "ext_tasks_server.py", "http"),
        "echo-3": (HERE / "servers" / "light_http.py",),
        "echo-4": (HERE / "servers" / "light_http.py",),
    }
    async with AsyncExitStack() as stack:
        urls = {
            name: await stack.enter_async_context(http_server(str(script), *map(str, args)))
            for name, (script, *args) in peers.items()
        }
        urls["tasks"] = await stack.enter_async_context(
            http_server(str(PEERS / "tasks_server.py"), "http", python=python)
        )
        legacy = {"protocol": "2025-11-25"}
        found: dict[str, Any] = {
            name: {"url": url, **(legacy if name == "plain" else {})} for name, url in urls.items()
        }
        found |= {name: stdio_server("light_stdio.py") for name in ("ask-1", "ask-2", "echo-1", "echo-2")}
        yield {name: {**options, "max_in_flight": 8, **KEPT} for name, options in found.items()}


def _table() -> Table:
    table = Table(title="The hub under a steady load", title_justify="left", box=box.MARKDOWN)
    for column in ("when", "memory", "open files", "threads", "tasks of the loop", "store", "things done"):
        table.add_column(column, justify="right")
    return table


def _show(table: Table, when: str, it: Sample) -> None:
    sizes = [f"{it.rss_mib:.1f} MiB", *map(str, (it.files, it.threads, it.loop_tasks)), f"{it.store_mib:.1f} MiB"]
    table.add_row(when, *sizes, str(it.done))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Runs a hub at a steady load and looks whether anything grows.")
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    peers = Path(os.environ.get("HUBBUB_PEERS") or HERE.parent / ".peers")
    with tempfile.TemporaryDirectory(prefix="hubbub-soak-") as folder:
        return anyio.run(soak, Path(folder), options.minutes, str(peers / "mcp1/bin/python"))


if __name__ == "__main__":
    sys.exit(main())
