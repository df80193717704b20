"""A fleet at a steady load, of which a member is restarted each minute: does anything grow, is anything lost?

    python -m tests.fleet.soak --minutes 60 [--seed N] [--pace N]        (or `make fleet-soak MINUTES=60`)

Members a and b are restarted in turn, in order; c lives for the whole time. Little is kept of what has ended, so that
deleting and compacting are part of the load, which takes about a third of a core in all. The fleet is looked at every
ten seconds. Exits with 1 when the memory of a member has grown by more than a tenth, when a queue was ever past its
bound, when something was lost, accepted or delivered twice, is left behind, or was logged as an error.
"""

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import asyncpg

import hubbub_client
from hubbub_client import HubbubError, Reset
from hubbubd.runtime.records.broadcast import BUFFER_EVENTS

from .. import forks
from ..e2e.crash import compare, report
from ..e2e.crash_model import Seen, judge
from ..e2e.crash_people import Calls
from .databases import databases
from .growth import Bounded, Row, Steady, after_warm_up, bounded, grown, table
from .looks import Look, Observer, OfMember
from .members import NAMES, Members, members
from .storm import CALLS, ROUND_S, Storm
from .torment import Torment

SAMPLE_S, MINUTE_S, FIRST_RESTART_S = 10.0, 60.0, 20.0
WARM_UP, WARM_UP_S = 1 / 6, 600.0
"""What does not count: this share of the time, and so much at most."""
STAYS = "c"
RESTARTED = tuple(name for name in NAMES if name != STAYS)
SETTLE_S, LOOK_S = 60.0, 5.0
WATCH_S = 0.5

MAX_QUEUED, MAX_IN_FLIGHT, OPEN_PER_SERVER = 40, 4, 100
AUDITED = 100
KEPT = {"call_history_count": 500, "request_history_count": 500, "task_history_count": 100}
LEAN = {
    "deletion_history_age_s": 30,
    "audit_history_count": AUDITED,
    "open_requests_per_server": OPEN_PER_SERVER,
    "shutdown_grace_s": 2,
}
NOUNS_OF_AUDIT = 3
"""Changes, answers and refusals are counted apart."""
KEPT_IN_ALL = sum(KEPT.values()) + AUDITED * NOUNS_OF_AUDIT
FILLED_S = 300.0
"""When as much is kept as may be; from then on there are no more and no less."""
SPARE = 200
"""Records that may be there beyond what is kept: those that go on, and those whose deletion is due."""
LAG = 500
"""Revisions that a member may be behind: some seconds' worth."""
QUICK: Calls = (
    ("plain1", "count", lambda: {"steps": 3}),
    ("plain2", "count", lambda: {"steps": 3}),
    ("mrtr1", "echo", lambda: {"text": "x" * 100}),
    ("mrtr2", "echo", lambda: {"text": "x" * 100}),
)


@dataclass
class Chronicle:
    """All records that there ever were, as they were last seen: those that were deleted since too."""

    requests: dict[str, Any] = field(default_factory=dict[str, Any])
    calls: dict[str, Any] = field(default_factory=dict[str, Any])
    resets: int = 0

    async def keep(self, news: AsyncGenerator[Any, None], records: dict[str, Any]) -> None:
        """Follows a watch for ever."""
        async with aclosing(news) as events:
            async for event in events:
                if (record := getattr(event, "record", None)) is not None:
                    records[record.id] = record
                self.resets += isinstance(event, Reset)


@dataclass
class Soak(Storm):
    """A fleet of three in peace, but for restarts."""

    calls: Calls = CALLS + QUICK
    pace: float = 40.0
    chronicle: Chronicle = field(default_factory=Chronicle)
    looks: list[Look] = field(default_factory=list[Look])

    async def soak(self, minutes: int, say: Callable[[str], None]) -> list[Row]:
        """So many minutes of load, and then all that was begun to its end; what became of memory and queues."""
        forks.REAL.wanted = True  # what is forked has the memory of what it does not use
        async with AsyncExitStack() as stack:
            both = stack.enter_context(databases())
            entries = await self.servers(stack)
            servers = {name: entry | {"max_queued": MAX_QUEUED} for name, entry in entries.items()}
            fleet = await stack.enter_async_context(
                members(
                    self.directory,
                    both,
                    servers,
                    lease_ttl_s=self.lease_ttl_s,
                    kept=KEPT,
                    settings=LEAN,
                    measured=True,
                )
            )
            torment = Torment(fleet, both, random.Random(self.seed), self.memory, self.lease_ttl_s)
            await torment.begin(stack)
            observer = Observer(torment, torment.clients[STAYS], monotonic())
            async with AsyncExitStack() as at_work:
                await self._under_load(at_work, fleet, torment, observer, minutes, say)
            quiet = await self._quiet(observer)
            for member in fleet.all.values():
                await member.terminate()
                self._judge_log(member.name, member.log())
        return self._rows(quiet, minutes)

    async def _under_load(
        self,
        at_work: AsyncExitStack,
        fleet: Members,
        torment: Torment,
        observer: Observer,
        minutes: int,
        say: Callable[[str], None],
    ) -> None:
        people = [await self._person(at_work, fleet, number) for number in range(self.people)]
        watches = {"inbox": Seen(), "calls": Seen(), "tasks": Seen()}
        begun, stays = anyio.CancelScope(), torment.clients[STAYS]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.chronicle.keep, stays.inbox.watch(), self.chronicle.requests)
            tasks.start_soon(self.chronicle.keep, stays.calls.watch(), self.chronicle.calls)
            self._begin(people, watches, tasks, begun)
            tasks.start_soon(self._visit, fleet)
            async with anyio.create_task_group() as minute_by_minute:
                minute_by_minute.start_soon(self._restart, torment, minutes, say)
                await self._look(observer, minutes, say)
            await self._end(people, begun)
            await self._judge_records(people[0].client, watches, torment)
            tasks.cancel_scope.cancel()

    async def _restart(self, torment: Torment, minutes: int, say: Callable[[str], None]) -> None:
        """Each minute one member, in turn."""
        begun = anyio.current_time()
        for minute in range(minutes):
            await anyio.sleep_until(begun + minute * MINUTE_S + FIRST_RESTART_S)
            with anyio.fail_after(ROUND_S):
                said = await torment.in_order(RESTARTED[minute % len(RESTARTED)])
            self.memory.counts["restarts in order"] += 1
            say(f"restart of {said}")

    async def _look(self, observer: Observer, minutes: int, say: Callable[[str], None]) -> None:
        """Looks again and again, and tells each minute."""
        begun = anyio.current_time()
        with (self.directory / "looks.jsonl").open("a") as noted:
            for number in range(1, int(minutes * MINUTE_S / SAMPLE_S) + 1):
                await anyio.sleep_until(begun + number * SAMPLE_S)
                try:
                    self.looks.append(await observer.look())
                except (HubbubError, OSError, asyncpg.PostgresError) as error:
                    self.memory.wrong(f"the fleet was not to be seen after {number * SAMPLE_S:.0f} s: {error}")
                    continue
                noted.write(json.dumps(asdict(self.looks[-1])) + "\n")
                noted.flush()
                if number % round(MINUTE_S / SAMPLE_S) == 0:
                    say(told(self.looks))

    async def _visit(self, fleet: Members) -> None:
        """Comes to any member with a connection of its own, watches for a moment, and goes."""
        chance = random.Random(f"{self.seed}/visitor")
        while True:
            address = fleet.address(*chance.sample(NAMES, len(NAMES)))
            try:
                async with hubbub_client.connect(address, fleet.token, name="visitor", connect_timeout_s=1) as client:
                    for noun in (client.inbox, client.calls, client.tasks, client.servers):
                        with anyio.move_on_after(WATCH_S):
                            async with aclosing(noun.watch()) as news:
                                async for _ in news:
                                    self.memory.counts["events that visitors saw"] += 1
            except HubbubError as error:
                self.memory.counts[f"visitors refused {error.reason or error.code}"] += 1
            await anyio.sleep(chance.uniform(0, 10 * WATCH_S))

    async def _judge_records(self, client: hubbub_client.Hub, watches: dict[str, Seen], torment: Torment) -> None:
        """As the storm does, by all records that there were; and all members must hold the same now."""
        held = await self._settled(client)
        judge(self.memory, self.chronicle.requests.values(), self.chronicle.calls.values(), self.journal)
        self._judge_plain(self.chronicle.requests)
        if self.chronicle.resets:
            self.memory.wrong(f"a watch of {STAYS}, which was never restarted, was reset {self.chronicle.resets} times")
        for name, records in held.items():
            await compare(self.memory, name, watches[name], records)
            for member, other in torment.clients.items():
                theirs = {record.id: record.to_json() for record in await getattr(other, name).list()}
                if theirs != {key: record.to_json() for key, record in records.items()}:
                    self.memory.wrong(f"{member} holds other {name} than the one that was asked first")
        await self._judge_owners(torment)
        torment.tell()

    async def _settled(self, client: hubbub_client.Hub) -> dict[str, dict[str, Any]]:
        """What is held once no answer is under way and nothing more is deleted."""
        before: Any = None
        with anyio.fail_after(SETTLE_S):
            while True:
                lists = {"inbox": client.inbox, "calls": client.calls, "tasks": client.tasks}
                now: dict[str, dict[str, Any]] = {}
                for name, noun in lists.items():
                    now[name] = {record.id: record for record in await noun.list()}
                if now == before and all(request.delivery != "pending" for request in now["inbox"].values()):
                    return now
                before = now
                await anyio.sleep(LOOK_S)

    async def _quiet(self, observer: Observer) -> Look:
        """What is left when everybody has gone, which should be nothing."""
        with anyio.move_on_after(SETTLE_S):
            while any(left(each) for each in (await observer.look()).members.values()):
                await anyio.sleep(LOOK_S)
        return await observer.look()

    def _judge_log(self, name: str, log: str) -> None:
        for line in log.splitlines():
            if "Traceback" in line or '"level": "error"' in line or '"level": "critical"' in line:
                self.memory.wrong(f"{name} has logged {line[:1000]}")

    def _rows(self, quiet: Look, minutes: int) -> list[Row]:
        """What became of it all; what must not be is among the violations."""
        counted = after_warm_up(self.looks, min(minutes * MINUTE_S * WARM_UP, WARM_UP_S))
        steady = STEADY + (STEADY_ONCE_FILLED if counted and counted[0].at_s >= FILLED_S else ())
        rows = [*(grown(counted, each) for each in steady), *(bounded(self.looks, each) for each in BOUNDED)]
        wrong = [row.wrong for row in rows if row.wrong]
        wrong += [f"{STAYS} was not to be seen after {x.at_s:.0f} s" for x in self.looks if STAYS not in x.members]
        wrong += [f"{name} was not to be seen at the end" for name in NAMES if name not in quiet.members]
        wrong += [f"{name} has left behind {left(there)}" for name, there in quiet.members.items() if left(there)]
        for each in wrong:
            self.memory.wrong(each)
        return rows


def left(there: OfMember) -> dict[str, int]:
    """What a member has that is to be nothing when nobody wants anything."""
    found = {name: getattr(there, name) for name in ("queued", "open", "watchers", "backlog", "lag")}
    return {name: count for name, count in found.items() if count}


def told(looks: list[Look]) -> str:
    """A line about the last look."""
    last, first = looks[-1], looks[0]
    files = last.members[STAYS].files if STAYS in last.members else "?"
    memory = ", ".join(f"{name} {there.rss_mib:.1f}" for name, there in last.members.items())
    share = (last.cpu_s - first.cpu_s) / max(last.at_s - first.at_s, 1)
    return (
        f"MiB {memory}, database {last.database_mib:.1f}; {last.entries} entries, {last.commits} commits,"
        f" store {last.store_mib:.1f} MiB; files of {STAYS} {files}; queue {last.longest_queue},"
        f" open {last.open}; {share:.0%} of a core"
    )


def _of(name: str, what: str) -> Callable[[Look], float | None]:
    return lambda look: getattr(look.members[name], what) if name in look.members else None


def _most(what: str, names: Collection[str] = NAMES) -> Callable[[Look], float | None]:
    return lambda look: max(
        (getattr(there, what) for name, there in look.members.items() if name in names), default=None
    )


def _rows(noun: str) -> Callable[[Look], float]:
    return lambda look: look.rows.get(noun, 0)


STEADY = (
    Steady(f"MiB of {STAYS}", _of(STAYS, "rss_mib")),
    # A life without servers has imported less: so the largest of many lives.
    Steady(f"most MiB of {' and '.join(RESTARTED)}", _most("rss_mib", RESTARTED), of=max),
    Steady("MiB of the database", lambda look: look.database_mib, noise=8),
    Steady(f"files of {STAYS}", _of(STAYS, "files"), noise=10),
    Steady(f"watchers of {STAYS}", _of(STAYS, "watchers"), noise=10),
)
STEADY_ONCE_FILLED = (
    Steady("rows of entries", lambda look: look.entries, noise=SPARE),
    Steady("tombstones among them", lambda look: look.tombstones, noise=SPARE),
)
BOUNDED = (
    Bounded("calls queued at a server", lambda look: look.longest_queue, MAX_QUEUED),
    Bounded("calls on its wire", lambda look: look.on_the_wire, MAX_IN_FLIGHT),
    Bounded("open questions", lambda look: look.open, OPEN_PER_SERVER * len(NAMES)),
    Bounded("backlog of a watcher", _most("backlog"), BUFFER_EVENTS),
    Bounded("watches ended", _most("dropped"), 0),
    Bounded("revisions behind", _most("lag"), LAG),
    Bounded("seconds late", _most("late_s"), math.inf),
    Bounded("times fenced", _most("fenced"), 0),
    Bounded("most rows of entries", lambda look: look.entries, 2 * KEPT_IN_ALL),
    Bounded("calls kept", _rows("call"), KEPT["call_history_count"] + SPARE),
    Bounded("questions kept", _rows("request"), KEPT["request_history_count"] + SPARE),
    Bounded("tasks kept", _rows("task"), KEPT["task_history_count"] + SPARE),
    Bounded("audit entries kept", _rows("audit"), AUDITED * NOUNS_OF_AUDIT + SPARE),
)


async def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=60, help="fewer than 4 are over before all is warm")
    parser.add_argument("--pace", type=float, default=Soak.pace, help="how many times as long pauses are as in a storm")
    parser.add_argument("--ttl", type=float, default=6.0, help="lease_ttl_s of the members, in seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--keep", type=Path, help="a directory for logs and all that was seen, which stays")
    options = parser.parse_args()
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="hubbub-fleet-soak-") as made:
        directory: Path = options.keep or Path(made)
        directory.mkdir(parents=True, exist_ok=True)
        soak = Soak(directory, options.seed, options.ttl, pace=options.pace)
        print(f"seed {options.seed}", flush=True)
        rows = await soak.soak(options.minutes, lambda line: print(f"{monotonic() - began:6.0f} s  {line}", flush=True))
    print(report(soak.memory))
    print(table(rows))
    print("something has grown or went wrong" if soak.memory.violations else "nothing has grown, and nothing is lost")
    return 1 if soak.memory.violations else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
