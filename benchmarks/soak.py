"""Does anything grow? A real hub at a steady load, looked at every ten seconds.

    python benchmarks/soak.py --minutes 10        (or `make soak MINUTES=10`)

Twelve servers; calls, questions that two frontends race for, tasks of both roles, rounds, and watchers that come and
go. Hosts of both kinds of revisions use two of the servers, over HTTP (`soak_hosts.py`) and by `hubbub mcp`
(`soak_bridges.py`). Little is kept of what has ended, so that deleting is part of the load. The load waits between what
it does: it takes about a third of a core in all, or `--pace 2` half as much.

Exits with 1 when something grows: the medians of the last quarter are compared with those of the quarter before. What
is counted (open files, threads, tasks of the loop, sessions, the objects that the hub holds for hosts, processes of
bridges) is compared once all is quiet again with what there was before the load.
"""

import argparse
import json
import os
import random
import resource
import secrets
import signal
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
from processes import HERE, HubProcess, cpu_s, find_descendants, rss_mib, start_http_server, start_hub, stdio_server
from rich.console import Console
from soak_bridges import OverBridges
from soak_hosts import ASKS, PROFILES, SETTINGS, Account, OverHttp, person

import hubbub_client
from hubbub_client import FailedPrecondition, Upsert

PEERS = HERE.parent / "tests" / "peers"
SAMPLE_S, ROWS = 10.0, 15
WARM_UP_S, SETTLE_S, LOOK_S = 40.0, 120.0, 5.0
HASTE = 4
"""How many times as fast everybody works at first, so that no later moment is busier."""
CALL_PAUSE_S, ASK_PAUSE_S, WATCH_S = 0.5, 2.0, 2.0
RACERS = 2
GROWTH, STORE_MIB = 0.05, 5.0
"""What may be noise: this share; of the store, so many MiB if that is more."""
SLACK = {"files": 5, "threads": 5, "loop_tasks": 5, "bridge_files": 5, "sessions": 0, "bridges": 0}
"""How many more there may be after the load: connections to servers are kept for a while, more or fewer of them."""
STAYING = 1
"""Sessions that stay: that of the bridge of 2025-11-25."""

KEPT = {"call_history_count": 500, "request_history_count": 300, "task_history_count": 100}
LEAN = {"deletion_history_age_s": 30, "audit_history_count": 500, **KEPT, **SETTINGS}

console = Console(width=140)


@dataclass(frozen=True, slots=True)
class Sample:
    """The hub at one moment. `store_mib` is its files on the disk, the journal included."""

    at_s: float
    cpu_s: float
    """Processor time of all processes together, the load's too."""
    rss_mib: float
    files: int
    threads: int
    loop_tasks: int
    sessions: int
    store_mib: float
    bridge_mib: float
    """Of the larger of the bridges that stay."""
    bridge_files: int
    bridges: int
    done: int


@dataclass
class Load:
    """What everybody does, and how often it was done."""

    hub: HubProcess
    account: Account
    pace: float

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
            await anyio.sleep(random.uniform(0, 2 * pause_s * self.pace))

    def _echo(self, server: str) -> Callable[[], Awaitable[None]]:
        """Returns work: a call that returns its text."""

        async def work() -> None:
            result = await self.hub.client.call_tool(server, "echo", {"text": "x" * 100})
            self.account.check("calls", result.text == "x" * 100)

        return work

    def _ask(self, server: str, tool: str) -> Callable[[], Awaitable[None]]:
        """Returns work: a call of a tool that asks, until it is completed."""

        async def work() -> None:
            call_id = f"{server}-{secrets.token_hex(8)}"
            handle = await self.hub.client.start_tool(server, tool, call_id=call_id)
            self.account.check(f"calls of {server} that ask", (await handle.wait()).state == "completed")

        return work

    def _task(self) -> Callable[[], Awaitable[None]]:
        """Returns work: the hub keeps a task for a server, and its result is fetched."""

        async def work() -> None:
            arguments = {"kind": random.choice(["elicitation", "sampling"]), "ttl": 300_000}
            started = await self.hub.client.call_tool("tasks", "start", arguments)
            task_id = json.loads(started.text)["task"]["taskId"]
            async with aclosing(self.hub.client.tasks.watch(role="receiver", statuses=["completed"])) as news:
                async for event in news:
                    if isinstance(event, Upsert) and event.record.id == task_id:
                        break
            fetched = await self.hub.client.call_tool("tasks", "fetch", {"task_id": task_id})
            self.account.check("tasks", "result" in json.loads(fetched.text))

        return work

    async def _answer(self, name: str) -> None:
        """Answers every question as soon as it is seen, as somebody else does."""
        async with (
            hubbub_client.connect(data_dir=self.hub.data_dir, name=name) as client,
            aclosing(client.inbox.watch(states=["open"])) as news,
        ):
            async for event in news:
                if not isinstance(event, Upsert) or event.record.server in ASKS:
                    continue
                request = event.record
                try:
                    if request.kind == "sampling":
                        await request.reply_text(name)
                    else:
                        ((key, schema),) = request.request["requestedSchema"]["properties"].items()
                        await request.accept({key: 7 if schema["type"] == "integer" else name})
                    self.account.done["answers accepted"] += 1
                except FailedPrecondition:
                    self.account.done["answers refused"] += 1

    async def _watch(self) -> None:
        """Comes with a connection of its own, watches for a moment, and goes."""
        while True:
            async with hubbub_client.connect(data_dir=self.hub.data_dir) as client:
                for noun in (client.inbox, client.calls, client.tasks, client.servers):
                    with anyio.move_on_after(WATCH_S / 4):
                        async with aclosing(noun.watch()) as news:
                            async for _ in news:
                                self.account.done["events watched"] += 1
            self.account.done["watchers that came and went"] += 4
            await anyio.sleep(WATCH_S * self.pace)


@dataclass(frozen=True, slots=True)
class Observer:
    """Looks at the hub, and at the bridges that stay."""

    hub: HubProcess
    bridges: OverBridges
    account: Account
    counts: Path
    """The file for what `counted_hub.py` counts."""
    begun: float

    async def look(self) -> Sample:
        """What there is now."""
        process, below = Path(f"/proc/{self.hub.pid}"), find_descendants(os.getpid())
        status = await self.hub.client.admin.status()
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        staying = self.bridges.staying
        return Sample(
            at_s=monotonic() - self.begun,
            cpu_s=sum(each.ru_utime + each.ru_stime for each in own) + sum(map(_cpu_s, below)),
            rss_mib=self.hub.rss_mib(),
            files=_count_entries(process / "fd"),
            threads=_count_entries(process / "task"),
            loop_tasks=status.loop_tasks,
            sessions=await self._sessions(),
            store_mib=sum(file.stat().st_size for file in self.hub.data_dir.glob("hubbub.db*")) / 2**20,
            bridge_mib=max(map(rss_mib, staying)),
            bridge_files=max(_count_entries(Path(f"/proc/{pid}/fd")) for pid in staying),
            bridges=sum(map(_is_bridge, below)),
            done=sum(self.account.done.values()),
        )

    async def count_held(self) -> dict[str, int]:
        """How many objects the hub holds for hosts, by class."""
        self.counts.unlink(missing_ok=True)
        os.kill(self.hub.pid, signal.SIGUSR1)
        with anyio.fail_after(SETTLE_S):
            while not self.counts.exists():
                await anyio.sleep(0.1)
        return json.loads(self.counts.read_text())

    async def wait_until_quiet(self) -> None:
        """Waits until the hub has nothing to do any more but to keep its connections."""
        steady = -1
        with anyio.move_on_after(SETTLE_S):
            while True:
                await anyio.sleep(LOOK_S)
                loop_tasks = (await self.hub.client.admin.status()).loop_tasks
                if loop_tasks == steady and await self._sessions() == STAYING:
                    return
                steady = loop_tasks

    async def _sessions(self) -> int:
        return sum(host.has_session for host in await self.hub.client.hosts.list())


def _count_entries(directory: Path) -> int:
    return sum(1 for _ in directory.iterdir())


def _cpu_s(pid: int) -> float:
    try:
        return cpu_s(pid)
    except OSError:  # it has ended
        return 0.0


def _is_bridge(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\0mcp\0")
    except OSError:
        return False


async def run_soak(directory: Path, minutes: float, pace: float, python: str) -> int:
    """Runs it all, prints what was found, and returns the exit status. `python` runs the server `tasks`."""
    counts = directory / "counts.json"
    command, environ = [sys.executable, HERE / "counted_hub.py"], {"HUBBUB_COUNTS": str(counts)}
    async with AsyncExitStack() as open_:
        servers = await open_.enter_async_context(_start_servers(python))
        running = await open_.enter_async_context(
            start_hub(servers, directory, command, LEAN, environ, profiles=PROFILES)
        )
        people = await open_.enter_async_context(anyio.create_task_group())
        people.start_soon(person, running, Account())
        account = Account()
        bridges = OverBridges(running, account)
        await open_.enter_async_context(bridges.stay())
        observer = Observer(running, bridges, account, counts, monotonic())
        before, samples, after, remaining = await _soak_hub(observer, servers, minutes, pace)
        people.cancel_scope.cancel()
    console.print(", ".join(f"{count} {what}" for what, count in sorted(account.done.items())))
    return _judge(before, samples, after, [*account.wrong, *remaining])


async def _soak_hub(
    observer: Observer, servers: Mapping[str, Any], minutes: float, pace: float
) -> tuple[Sample, list[Sample], Sample, list[str]]:
    """What was seen before the load, under it and after it; and the objects that stayed behind."""
    await _run_load(observer, servers, WARM_UP_S, pace / HASTE)  # opens what is kept open from then on
    await observer.wait_until_quiet()
    before, held_before = await observer.look(), await observer.count_held()
    _print_row(*COLUMNS)
    _print_row(*("---:" for _ in COLUMNS))
    _print_sample("before", before)
    samples = await _run_load(observer, servers, minutes * 60, pace, rows=ROWS)
    await observer.wait_until_quiet()
    after, held_after = await observer.look(), await observer.count_held()
    _print_sample("after", after)
    left_behind = [
        f"{name}: {held_before.get(name, 0)} before, {count} after"
        for name, count in held_after.items()
        if count > held_before.get(name, 0)
    ]
    return before, samples, after, left_behind


async def _run_load(
    observer: Observer, servers: Mapping[str, Any], seconds: float, pace: float, rows: int = 0
) -> list[Sample]:
    """Has everybody at work for so long, and looks; shows so many of the samples."""
    asking = {"ask-1": "ask", "ask-2": "ask", "plain": "ask", "mrtr": "three_forms", "ext": "greet"}
    calling = [name for name in servers if name.startswith(("ask", "echo"))]
    samples, started_at = list[Sample](), monotonic()
    every = max(round(seconds / SAMPLE_S / rows), 1) if rows else sys.maxsize
    async with anyio.create_task_group() as tasks:
        Load(observer.hub, observer.account, pace).start(tasks, asking, calling)
        OverHttp(observer.hub, observer.account).start(tasks, pace)
        observer.bridges.start(tasks, pace)
        while monotonic() < started_at + seconds:
            await anyio.sleep(SAMPLE_S)
            samples.append(await observer.look())
            if len(samples) % every == 0:
                _print_sample(f"{monotonic() - started_at:.0f} s", samples[-1])
        tasks.cancel_scope.cancel()
    return samples


def _judge(before: Sample, samples: list[Sample], after: Sample, wrong: list[str]) -> int:
    """Prints what grows or went wrong (`wrong` so far), and returns the exit status."""
    quarter = max(len(samples) // 4, 1)
    last, earlier = samples[-quarter:], samples[-2 * quarter : -quarter] or samples[:1]
    problems = list(wrong)
    for name, noise in (("rss_mib", 0.0), ("bridge_mib", 0.0), ("store_mib", STORE_MIB)):
        was, now = (statistics.median(getattr(sample, name) for sample in part) for part in (earlier, last))
        console.print(f"{name}: {was:.1f} in the third quarter, {now:.1f} in the last")
        if now - was > max(was * GROWTH, noise):
            problems.append(f"{name} grows")
    for name, slack in SLACK.items():
        was, now = getattr(before, name), getattr(after, name)
        console.print(f"{name}: {was} before the load, {now} after it")
        if now > was + slack:
            problems.append(f"{name} stay behind")
    share = (samples[-1].cpu_s - before.cpu_s) / (samples[-1].at_s - before.at_s)
    console.print(f"processor: {share:.0%} of a core, for everything together")
    for what in problems:
        console.print(what, markup=False)
    console.print("something grows or went wrong" if problems else "nothing grows")
    return 1 if problems else 0


@asynccontextmanager
async def _start_servers(python: str) -> AsyncGenerator[dict[str, Any]]:
    """The servers of the soak, by name, as the hub is configured with them. `python` runs the one with tasks."""
    peers: dict[str, tuple[str | Path, ...]] = {
        "plain": (PEERS / "asking_server.py", "http"),
        "mrtr": (PEERS / "mrtr_server.py", "http"),
        "ext": (PEERS / "ext_tasks_server.py", "http"),
        "new": (PEERS / "mrtr_server.py", "http"),
        "echo-3": (HERE / "servers" / "light_http.py",),
        "echo-4": (HERE / "servers" / "light_http.py",),
    }
    async with AsyncExitStack() as stack:
        urls = {
            name: await stack.enter_async_context(start_http_server(str(script), *map(str, args)))
            for name, (script, *args) in peers.items()
        }
        urls["tasks"] = await stack.enter_async_context(
            start_http_server(str(PEERS / "tasks_server.py"), "http", python=python)
        )
        legacy = {"protocol": "2025-11-25"}
        found: dict[str, Any] = {
            name: {"url": url, **(legacy if name == "plain" else {})} for name, url in urls.items()
        }
        found |= {name: stdio_server("light_stdio.py") for name in ("ask-1", "ask-2", "echo-1", "echo-2", "old")}
        yield {name: {**options, "max_in_flight": 8, **KEPT} for name, options in found.items()}


COLUMNS = (
    *("when", "memory", "files", "threads", "loop tasks", "sessions", "store"),
    *("of a bridge", "its files", "bridges", "done"),
)


def _print_row(*cells: object) -> None:
    """Prints a row of the table as soon as it is known: a run may take hours."""
    print("| " + " | ".join(f"{cell:>10}" for cell in cells) + " |", flush=True)


def _print_sample(when: str, it: Sample) -> None:
    sizes = (f"{it.rss_mib:.1f} MiB", it.files, it.threads, it.loop_tasks, it.sessions, f"{it.store_mib:.1f} MiB")
    _print_row(when, *sizes, f"{it.bridge_mib:.1f} MiB", it.bridge_files, it.bridges, it.done)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs a hub at a steady load and looks whether anything grows.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pace", type=float, default=1, help="how many times as long the pauses are")
    options = parser.parse_args()
    peers = Path(os.environ.get("HUBBUB_PEERS") or HERE.parent / ".peers")
    with tempfile.TemporaryDirectory(prefix="hubbub-soak-") as folder:
        python = str(peers / "mcp1/bin/python")
        return anyio.run(run_soak, Path(folder), options.minutes, options.pace, python)


if __name__ == "__main__":
    sys.exit(main())
