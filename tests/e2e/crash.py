"""Kills a hub at random moments under calls, answers, claims and tasks, and checks that it keeps its word.

    python -m tests.e2e.crash --kills 200 [--seed N]         (or `make crash KILLS=200`)

The seed decides when the hub is killed. Exits with 1 when something acknowledged was lost, won twice, or made up.
"""

import argparse
import itertools
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from time import monotonic
from typing import Any

import anyio
from anyio.abc import Process, TaskGroup

import hubbub_client

from .. import forks
from ..ports import reserved
from .conftest import alive, child, descendants, environment, toml
from .crash_model import Memory, Seen, judge
from .crash_people import Person, follow

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "tests" / "peers"
PEOPLE = ("ann", "bob", "cyd", "dee")
LIMIT_S = 60
POLL_S = 0.02
SHOWN = 20
UNREADY = 0.15
"""How often the hub is killed before it is ready."""


@dataclass
class Storm:
    """A hub that is killed and started again over the same data."""

    directory: Path
    mcp1_python: str
    seed: int
    memory: Memory = field(default_factory=Memory)
    leftovers: list[int] = field(default_factory=list[int])

    @property
    def journal(self) -> Path:
        """What the servers have received."""
        return self.directory / "journal.jsonl"

    @property
    def data_dir(self) -> Path:
        """Where the hub keeps what it must not forget."""
        return self.directory / "data"

    async def run(self, kills: int, say: Callable[[str], None], enough: Callable[[], bool] = lambda: True) -> None:
        """Kills so often, and on until there was `enough` to judge; lets the last hub finish what was begun."""
        self.chance = random.Random(self.seed)
        async with AsyncExitStack() as stack:
            peers = await self._peers(stack)
            config = self._configure(peers)
            people: list[Person] = []
            watches = {"inbox": Seen(), "calls": Seen(), "tasks": Seen()}
            tasks = await stack.enter_async_context(anyio.create_task_group())
            begun = anyio.CancelScope()
            for number in itertools.count():
                if number >= kills and enough():
                    break
                async with self._hub(config) as process:
                    ready = await self._ready(process, self.chance.uniform(0.2, 1.5))
                    if number == 0:
                        people += [await self._person(stack, name) for name in PEOPLE]
                        await self._begin(people, watches, tasks, begun)
                    if ready:
                        await anyio.sleep(self.chance.uniform(0.1, 1.6))
                    await self._kill(process)
                self.memory.counts["kills"] += 1
                self.memory.counts["kills before it was ready"] += not ready
                if number % 10 == 9:
                    say(f"{number + 1} kills, {len(self.memory.attempts)} answers tried")
            async with self._hub(config) as process:
                await self._ready(process, None)
                await self._finish(people, begun, watches)
                tasks.cancel_scope.cancel()
                process.terminate()
                with anyio.fail_after(LIMIT_S):
                    await process.wait()
        if self.leftovers:
            self.memory.wrong(f"processes outlived their hub: {self.leftovers}")

    async def _begin(
        self, people: list[Person], watches: dict[str, Seen], tasks: TaskGroup, begun: anyio.CancelScope
    ) -> None:
        """Sets everybody to work: callers until they are asked to stop, the others to the end."""

        async def callers() -> None:
            with begun:
                async with anyio.create_task_group() as calling:
                    for person in people:
                        calling.start_soon(person.call_forever)

        watcher = people[0].client
        for name, seen in watches.items():
            tasks.start_soon(follow, getattr(watcher, name).watch(), seen)
        for person in people:
            tasks.start_soon(person.answer_forever)
            tasks.start_soon(person.look_again_forever)
        tasks.start_soon(people[1].fetch_forever)
        tasks.start_soon(callers)

    @asynccontextmanager
    async def _hub(self, config: Path) -> AsyncGenerator[Process]:
        command = [sys.executable, "-m", "hubbubd", "--config", str(config), "--data-dir", str(self.data_dir)]
        with (self.directory / "hub.log").open("ab") as log:
            async with child([*command, "--listen", "127.0.0.1:0"], stdout=PIPE, stderr=log) as process:
                yield process

    async def _ready(self, process: Process, patience_s: float | None) -> bool:
        """Waits for a hub, to the end or, now and then, only for a moment; whether it is ready."""
        assert process.stdout is not None
        first = not self.memory.counts["kills"]
        limit_s = patience_s if patience_s and not first and self.chance.random() < UNREADY else LIMIT_S
        with anyio.move_on_after(limit_s):
            try:
                line = json.loads(await process.stdout.receive())
            except anyio.EndOfStream:
                raise AssertionError(f"the hub ended: {(self.directory / 'hub.log').read_text()[-4000:]}") from None
            assert line["event"] == "ready"
            return True
        assert limit_s != LIMIT_S, "the hub does not start"
        return False

    async def _kill(self, process: Process) -> None:
        """Kills the hub, and waits for all that it had started to follow."""
        # It stands still first, so that none of its processes is missed.
        process.send_signal(signal.SIGSTOP)
        family = descendants(process.pid)
        process.kill()
        self.memory.counts["processes that had to follow"] += len(family)
        with anyio.fail_after(LIMIT_S):
            await process.wait()
        with anyio.move_on_after(LIMIT_S):
            while any(alive(pid) for pid in family):
                await anyio.sleep(POLL_S)
        self.leftovers += [pid for pid in family if alive(pid)]

    async def _finish(self, people: list[Person], begun: anyio.CancelScope, watches: dict[str, Seen]) -> None:
        """Lets everything end that was begun, fetches what was promised, and judges."""
        begun.cancel()
        for person in people:
            person.hasty = True
        # All people answer at once now, so that the hub may take longer to accept a connection than a person waits.
        async with hubbub_client.connect(data_dir=self.data_dir, connect_timeout_s=LIMIT_S) as client:
            await self._judge(client, people, watches)

    async def _judge(self, client: hubbub_client.Hub, people: list[Person], watches: dict[str, Seen]) -> None:
        with anyio.fail_after(LIMIT_S):
            await answer_all(people, client)
            fetched = await self._fetch_all(client)
        requests, calls, tasks = await client.inbox.list(), await client.calls.list(), await client.tasks.list()
        judge(self.memory, requests, calls, self.journal)
        for task_id, value in fetched.items():
            (request,) = [r for r in requests if r.task_id == task_id] or [None]
            if request is None or value != request.answer:
                self.memory.wrong(f"task {task_id}: its result is {value}, its answer {request}")
        for name, records in (("inbox", requests), ("calls", calls), ("tasks", tasks)):
            await compare(self.memory, name, watches[name], {record.id: record for record in records})

    async def _fetch_all(self, client: Any) -> dict[str, Any]:
        """The results of all receiver tasks as their server sees them, without what is added for the wire."""
        found: dict[str, Any] = {}
        for task in await client.tasks.list(role="receiver"):
            result = await client.call_tool("tasks", "fetch", {"task_id": task.id})
            report = json.loads(result.text)
            if report["get"].get("status") != "completed":
                self.memory.wrong(f"task {task.id}: has not ended well: {report}")
            found[task.id] = {key: value for key, value in report.get("result", {}).items() if key != "_meta"}
        self.memory.counts["task results fetched"] = len(found)
        for lost in self.memory.tasks - set(found):
            self.memory.wrong(f"task {lost}: was seen and is gone")
        return found

    async def _person(self, stack: AsyncExitStack, name: str) -> Person:
        client = await stack.enter_async_context(
            hubbub_client.connect(data_dir=self.data_dir, name=name, connect_timeout_s=1)
        )
        return Person(name, client, self.memory, str(self.seed))

    async def _peers(self, stack: AsyncExitStack) -> dict[str, str]:
        """The servers over HTTP, which stay up."""
        commands = {
            "plain": [sys.executable, str(SCRIPTS / "asking_server.py"), "http"],
            "mrtr": [sys.executable, str(SCRIPTS / "mrtr_server.py"), "http"],
            "ext": [sys.executable, str(SCRIPTS / "ext_tasks_server.py"), "http"],
            "tasks": [self.mcp1_python, str(SCRIPTS / "tasks_server.py"), "http"],
        }
        urls: dict[str, str] = {}
        log = stack.enter_context((self.directory / "peers.log").open("ab"))
        for name, command in commands.items():
            port = stack.enter_context(reserved())
            env = environment() | {"PORT": str(port), "JOURNAL": str(self.journal)}
            await stack.enter_async_context(child(command, env=env, stdout=log, stderr=log))
            urls[name] = f"http://127.0.0.1:{port}/mcp"
        for url in urls.values():
            await listening(int(url.split(":")[2].split("/")[0]))
        return urls

    def _configure(self, peers: dict[str, str]) -> Path:
        legacy = {"protocol": "2025-11-25"}
        servers: dict[str, Any] = {
            name: {"url": url, "max_in_flight": 4, **(legacy if name == "plain" else {})} for name, url in peers.items()
        }
        asking = {
            "command": sys.executable,
            "args": [str(SCRIPTS / "asking_server.py"), "stdio"],
            "env": {"JOURNAL": str(self.journal)},
            "max_in_flight": 4,
            **legacy,
        }
        servers["asking"] = forks.quick(asking)
        servers["family"] = {"command": sys.executable, "args": ["-I", "-S", str(SCRIPTS / "bad.py"), "family"]}
        plenty = dict.fromkeys(("call_history_count", "request_history_count", "task_history_count"), 1_000_000)
        patient = {"auto_reject_on_timeout": False}
        servers = {name: options | plenty | patient for name, options in servers.items()}
        config = self.directory / "hub.toml"
        config.write_text(toml({"hub": plenty, "servers": servers}))
        return config


async def answer_all(people: list[Person], client: hubbub_client.Hub) -> None:
    """Answers what is open until nothing waits any more, as this client sees it."""
    async with anyio.create_task_group() as answers:
        while True:
            for request in await client.inbox.list(states=["open"]):
                for person in people:
                    person.consider(request, answers)
            unfinished = await client.calls.list(states=["queued", "in_progress", "waiting_input"])
            if not unfinished and not await client.inbox.list(states=["open"]):
                return
            await anyio.sleep(0.1)


async def compare(memory: Memory, name: str, seen: Seen, held: dict[str, Any]) -> None:
    """A watch over all restarts must come to hold just what the list does."""
    with anyio.move_on_after(LIMIT_S):
        while {k: v.to_json() for k, v in seen.records.items()} != {k: v.to_json() for k, v in held.items()}:
            await anyio.sleep(POLL_S)
    differing = [
        key
        for key in seen.records.keys() | held.keys()
        if key not in held or key not in seen.records or seen.records[key].to_json() != held[key].to_json()
    ]
    memory.counts[f"records seen by the watch of {name}"] = len(seen.records)
    if differing or seen.resets:
        memory.wrong(f"the watch of {name} was reset {seen.resets} times and differs in {differing}")


async def listening(port: int) -> None:
    """Returns once somebody listens on a port."""
    with anyio.fail_after(LIMIT_S):
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            except OSError:
                await anyio.sleep(POLL_S)
            else:
                return


async def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    peers = Path(os.environ.get("HUBBUB_PEERS") or REPOSITORY / ".peers")
    begun = monotonic()
    with tempfile.TemporaryDirectory(prefix="hubbub-crash-") as directory:
        storm = Storm(Path(directory), str(peers / "mcp1/bin/python"), options.seed)
        print(f"seed {options.seed}", flush=True)
        with anyio.fail_after(LIMIT_S + 10 * options.kills):
            await storm.run(options.kills, lambda line: print(f"{monotonic() - begun:6.0f} s  {line}", flush=True))
    print(report(storm.memory))
    return 1 if storm.memory.violations else 0


def report(memory: Memory) -> str:
    """The counts, and what was wrong."""
    lines = [f"{count:8}  {name}" for name, count in sorted(memory.counts.items())]
    return "\n".join([*lines, f"{len(memory.violations):8}  violations", *memory.violations[:SHOWN]])


if __name__ == "__main__":
    sys.exit(anyio.run(main))
