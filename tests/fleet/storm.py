"""Kills, stops and cuts off the members of a fleet under load, and its database too, and checks that it keeps its word.

    python -m tests.fleet.storm --kills 200 --stops 50 --partitions 50 --restarts 20 --failovers 20 [--seed N]

or `make fleet`. The seed decides what happens in which order, and to whom. Exits with 1 when something acknowledged was
lost, accepted or delivered twice, when two members acted on one server, or when takeovers took too long.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
from anyio.abc import TaskGroup

import hubbub_client

from ..e2e.conftest import child, environment
from ..e2e.crash import answer_all, compare, listening, report
from ..e2e.crash_model import Memory, Seen, judge, value_of
from ..e2e.crash_people import OPEN_CALLS, Calls, Person, follow
from ..ports import reserved
from . import history
from .databases import databases
from .members import NAMES, Members, members
from .torment import Torment

SCRIPTS = Path(__file__).parents[1] / "peers"
MODULES = {"plain": "asking_server", "mrtr": "mrtr_server", "ext": "ext_tasks_server"}
SERVERS = {f"{kind}{number}": module for kind, module in MODULES.items() for number in ("1", "2")}
LASTING = tuple(name for name in SERVERS if not name.startswith("plain"))
TOOLS = {"plain": ("ask",), "mrtr": ("three_forms", "two_rounds"), "ext": ("greet",)}
CALLS: Calls = tuple((name, tool, dict) for name in SERVERS for tool in TOOLS[name[:-1]])
PEOPLE = 4
"""Who call, and answer what all are asked."""
ALONE = ("restarts", "failovers")
"""What befalls all at once."""
LONG_PEOPLE = 32
LONG_OPEN_CALLS = 2
LONG_PACE = 60.0
"""How much slower they are in the long form: what they make is kept, and read by each member that starts."""
LIMIT_S = 120
ROUND_S = 120
"""Of one kill, stop, partition, restart or failover, until all members are well again; more is a fault.

A member can be cut off from others by what befalls one of those meanwhile.
"""


@dataclass(frozen=True)
class Plan:
    """How often what happens."""

    kills: int = 0
    stops: int = 0
    partitions: int = 0
    restarts: int = 0
    failovers: int = 0

    def order(self, chance: random.Random) -> list[str]:
        """All of it, in any order."""
        rounds = [each.name for each in fields(self) for _ in range(getattr(self, each.name))]
        chance.shuffle(rounds)
        return rounds


@dataclass
class Storm:
    """A fleet of three, with servers that ask, people who call and answer, and what befalls it."""

    directory: Path
    seed: int
    lease_ttl_s: float
    together: int = 1
    """How many members something befalls at a time; at least one is left in peace."""
    people: int = PEOPLE
    open_calls: int = OPEN_CALLS
    """Calls that each of them has under way."""
    memory: Memory = field(default_factory=lambda: Memory(lasting=LASTING))
    late: str = ""
    """What took longer than it may."""
    calls: Calls = CALLS
    pace: float = 1.0
    """How many times as long people wait between calls."""

    @property
    def journal(self) -> Path:
        """The answers that servers have received."""
        return self.directory / "journal.jsonl"

    @property
    def frames(self) -> Path:
        """The requests that servers have received, and from whom."""
        return self.directory / "frames.jsonl"

    async def run(self, plan: Plan, say: Callable[[str], None]) -> None:
        """Everything that is planned, and then all that was begun to its end."""
        chance = random.Random(self.seed)
        async with AsyncExitStack() as stack:
            both = stack.enter_context(databases())
            servers = await self.servers(stack)
            fleet = await stack.enter_async_context(
                members(self.directory, both, servers, lease_ttl_s=self.lease_ttl_s)
            )
            torment = Torment(fleet, both, chance, self.memory, self.lease_ttl_s)
            await torment.begin(stack)
            people = [await self._person(stack, fleet, number) for number in range(self.people)]
            watches = {"inbox": Seen(), "calls": Seen(), "tasks": Seen()}
            tasks = await stack.enter_async_context(anyio.create_task_group())
            begun = anyio.CancelScope()
            self._begin(people, watches, tasks, begun)
            await self._befall(plan.order(chance), torment, chance, say)
            await self._finish(people, begun, watches, torment)
            tasks.cancel_scope.cancel()
            for member in fleet.all.values():
                await member.terminate()

    async def _befall(
        self, rounds: list[str], torment: Torment, chance: random.Random, say: Callable[[str], None]
    ) -> None:
        """All rounds, `together` at a time; what befalls the database, by itself."""
        places = anyio.Semaphore(self.together)

        async def one(what: str) -> None:
            try:
                with anyio.fail_after(ROUND_S):
                    took = await getattr(torment, what)()
            except TimeoutError:
                raise AssertionError(
                    f"{what}: not well after {ROUND_S} s: {torment.refused}\n{await torment.state()}"
                ) from None
            self.memory.counts[what] += 1
            say(f"{what}: {took}")
            places.release()

        async with anyio.create_task_group() as under_way:
            for what in rounds:
                alone = what in ALONE
                for _ in range(self.together if alone else 1):
                    await places.acquire()
                await anyio.sleep(chance.uniform(0.2, 1.0))
                if not alone:
                    under_way.start_soon(one, what)
                    continue
                await one(what)
                for _ in range(self.together - 1):
                    places.release()

    def _begin(
        self, people: list[Person], watches: dict[str, Seen], tasks: TaskGroup, begun: anyio.CancelScope
    ) -> None:
        """Sets everybody to work: callers until they are asked to stop, the others to the end."""

        async def callers() -> None:
            with begun:
                async with anyio.create_task_group() as calling:
                    for person in people:
                        calling.start_soon(person.call_forever)

        for name, seen in watches.items():
            tasks.start_soon(follow, getattr(people[0].client, name).watch(), seen)
        for person in people:
            tasks.start_soon(person.answer_forever)
            tasks.start_soon(person.look_again_forever)
        tasks.start_soon(callers)

    async def _finish(
        self, people: list[Person], begun: anyio.CancelScope, watches: dict[str, Seen], torment: Torment
    ) -> None:
        """Lets everything end that was begun, and judges."""
        client = people[0].client
        await self._end(people, begun)
        requests, calls, tasks = await client.inbox.list(), await client.calls.list(), await client.tasks.list()
        judge(self.memory, requests, calls, self.journal)
        self._judge_plain({request.id: request for request in requests})
        for name, records in (("inbox", requests), ("calls", calls), ("tasks", tasks)):
            await compare(self.memory, name, watches[name], {record.id: record for record in records})
        await self._judge_owners(torment)
        torment.tell()
        self.late = torment.late()

    async def _end(self, people: list[Person], begun: anyio.CancelScope) -> None:
        """Begins nothing more, and returns when nothing waits for an answer."""
        begun.cancel()
        for person in people:
            person.hasty = True
        with anyio.fail_after(LIMIT_S):
            await answer_all(people, people[0].client)

    async def _judge_owners(self, torment: Torment) -> None:
        """Two members never act on one server."""
        held = await torment.history.held()
        for wrong in history.judge(held, history.frames(self.frames), self.memory.counts):
            self.memory.wrong(wrong)

    def _judge_plain(self, held: dict[str, Any]) -> None:
        """A plain answer reaches its server once at most; one in rounds may come again, as its value shows."""
        received = Counter(value_of(json.loads(line)["answer"]) for line in self.journal.read_text().splitlines())
        for value, attempt in self.memory.attempts.items():
            request = held.get(attempt.request_id)
            if request is not None and request.server.startswith("plain") and received[value] > 1:
                self.memory.wrong(f"{request.id}: its plain answer {value!r} was delivered {received[value]} times")

    async def _person(self, stack: AsyncExitStack, fleet: Members, number: int) -> Person:
        """Each second one knows all members, from a different one on; the others know two."""
        name = f"person-{number}"
        client = await stack.enter_async_context(
            hubbub_client.connect(self._addresses(fleet, number), fleet.token, name=name, connect_timeout_s=1)
        )
        return Person(
            name,
            client,
            self.memory,
            str(self.seed),
            calls=self.calls,
            open_calls=self.open_calls,
            pace=self.pace,
            crowd=self.people / PEOPLE,
        )

    def _addresses(self, fleet: Members, number: int) -> str:
        turned = NAMES[number % len(NAMES) :] + NAMES[: number % len(NAMES)]
        return fleet.address(*(turned if number % 2 else turned[:2]))

    async def servers(self, stack: AsyncExitStack) -> dict[str, Any]:
        """The MCP servers, which stay up; their entries in each member's file."""
        entries: dict[str, Any] = {}
        log = stack.enter_context((self.directory / "peers.log").open("ab"))
        for name, module in SERVERS.items():
            port = stack.enter_context(reserved())
            env = environment() | {
                "PORT": str(port),
                "SERVER": name,
                "JOURNAL": str(self.journal),
                "FRAMES": str(self.frames),
            }
            command = [sys.executable, str(SCRIPTS / "framed_server.py"), module]
            await stack.enter_async_context(child(command, env=env, stdout=log, stderr=log))
            legacy = {"protocol": "2025-11-25"} if name.startswith("plain") else {}
            entries[name] = {
                "url": f"http://127.0.0.1:{port}/mcp",
                "headers": {"X-Member": "${MEMBER}"},
                "max_in_flight": 4,
                "auto_reject_on_timeout": False,
                **legacy,
            }
        for entry in entries.values():
            await listening(int(entry["url"].split(":")[2].split("/")[0]))
        return entries


async def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for each in fields(Plan):
        parser.add_argument(f"--{each.name}", type=int, default=0)
    parser.add_argument("--ttl", type=float, default=6.0, help="lease_ttl_s of the members, in seconds")
    parser.add_argument("--together", type=int, choices=(1, 2), default=1, help="members that suffer at a time")
    parser.add_argument("--people", type=int, default=LONG_PEOPLE, help="who call and answer")
    parser.add_argument("--calls", type=int, default=LONG_OPEN_CALLS, help="that each of them has under way")
    parser.add_argument("--pace", type=float, default=LONG_PACE, help="how many times as long they wait between calls")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--keep", type=Path, help="a directory for logs, which is made, and stays")
    options = parser.parse_args()
    plan = Plan(**{each.name: getattr(options, each.name) for each in fields(Plan)})
    began = monotonic()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        if any(options.keep.iterdir()):
            parser.error(f"{options.keep} is not empty; name another directory for logs")
    with tempfile.TemporaryDirectory(prefix="hubbub-fleet-") as directory:
        storm = Storm(
            options.keep or Path(directory),
            options.seed,
            options.ttl,
            together=options.together,
            people=options.people,
            open_calls=options.calls,
            pace=options.pace,
        )
        print(f"seed {options.seed}", flush=True)
        await storm.run(plan, lambda line: print(f"{monotonic() - began:6.0f} s  {line}", flush=True))
    print(report(storm.memory), storm.late, sep="\n")
    return 1 if storm.memory.violations or storm.late else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
