"""What befalls a fleet: one kill, stop, partition, restart or failover, until those concerned serve again."""

import itertools
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import anyio
import asyncpg
from anyio import to_thread

import hubbub_client
from hubbub_client import HubbubError

from ..e2e.crash_model import Memory
from .databases import Databases
from .history import Held, History
from .members import NAMES, Member, Members

PROBES = {"plain": ("count", {"steps": 0}), "mrtr": ("echo", {"text": "there"})}
"""Calls that ask nobody, by the kind of their server."""
POLL_S = 0.05
CALL_S = 5.0
"""How long a probing call may take before another one is made."""
LONG = 3.0
"""Leases' times for which a member is stopped or cut off."""
AT_ONCE_EVERY = 3
"""Which killed members are started again at once, as by a supervisor; the others, when theirs are with others."""
TAKEOVER = "takeover after a kill"
"""Until all servers of the member answer elsewhere."""
GOALS = (
    (TAKEOVER, 0.95, 10.0),
    (TAKEOVER, 1, 20.0),
    ("restart after a kill", 0.95, 5.0),
    ("until it serves again after a stop", 0.95, 10.0),
    ("until it serves again after a partition", 0.95, 10.0),
)
"""How many seconds what may take, in which share of all cases."""
CUT_OFF = ("database", "members", "both")
"""From what a member is cut off, in turn."""
LOG_LINES = 40
"""Of each member's log, what is shown of a fault."""
AWAY_EVERY = 4
"""Which restarts of the database have it away for two leases' times; the others, for any part of one."""


@dataclass
class Torment:
    """The fleet, and how long it took to be well again, in seconds."""

    fleet: Members
    databases: Databases
    chance: random.Random
    memory: Memory
    lease_ttl_s: float
    took_s: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    clients: dict[str, Any] = field(default_factory=dict[str, Any])
    busy: set[str] = field(default_factory=set[str])
    """The members that something befalls now."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """By server, why the last probing call was not answered."""

    def __post_init__(self) -> None:
        self._kills = itertools.count(self.chance.randrange(AT_ONCE_EVERY))
        self._cut_off = itertools.cycle(self.chance.sample(CUT_OFF, len(CUT_OFF)))

    @property
    def history(self) -> History:
        """Of the database that takes writes now."""
        return History(self.databases.primary.url)

    async def begin(self, stack: AsyncExitStack) -> None:
        """Notes leases from now on, and waits until all servers are with somebody."""
        await self.history.begin()
        for name in NAMES:
            self.clients[name] = await stack.enter_async_context(
                hubbub_client.connect(self.fleet.address(name), self.fleet.token, connect_timeout_s=1)
            )
        with anyio.fail_after(60):
            await self._all_serve()

    # What befalls it

    async def kills(self) -> str:
        """Kills a member, and starts it again: at once, or when its servers are with others."""
        at_once = next(self._kills) % AT_ONCE_EVERY == 0
        async with self._victim() as (victim, servers):
            return await self._kill(victim, servers, at_once=at_once)

    async def _kill(self, victim: Member, servers: list[str], *, at_once: bool) -> str:
        begun = monotonic()
        await victim.kill()
        async with anyio.create_task_group() as starting:
            if at_once:
                starting.start_soon(victim.start)
            await self._answered(servers, lambda: [*self._others(), *([victim.name] if at_once else [])])
            self._note("restart after a kill" if at_once else TAKEOVER, begun, bool(servers))
            if not at_once:
                starting.start_soon(victim.start)
        await self._serves(victim.name)
        return f"{victim.name} with {servers}, {'at once' if at_once else 'later'}, {monotonic() - begun:.1f} s"

    async def in_order(self, name: str) -> str:
        """Restarts a member as an operator does, and returns when it serves again."""
        begun = monotonic()
        await self.fleet.all[name].terminate()
        self._note("until it has ended in order", begun, True)
        ended_s = monotonic() - begun
        await self.fleet.all[name].start()
        back = await self._back(self.fleet.all[name], "a restart in order")
        return f"{name} ended within {ended_s:.1f} s, {back}, {monotonic() - begun:.1f} s in all"

    async def stops(self) -> str:
        """Has a member stand still, and go on when its servers are with others."""
        async with self._victim() as (victim, servers):
            return await self._stop(victim, servers)

    async def _stop(self, victim: Member, servers: list[str]) -> str:
        begun = monotonic()
        victim.stop()
        try:
            async with anyio.create_task_group() as together:
                together.start_soon(anyio.sleep, LONG * self.lease_ttl_s * self.chance.uniform(1, 1.2))
                await self._answered(servers, self._others)
                self._note("takeover after a stop", begun, bool(servers))
        finally:
            victim.wake()
        return f"{victim.name} with {servers}, {await self._back(victim, 'a stop')}"

    async def partitions(self) -> str:
        """Cuts a member off from the database, all from each other, or both."""
        async with self._victim() as (victim, servers):
            return await self._cut(victim, servers)

    async def _cut(self, victim: Member, servers: list[str]) -> str:
        kind = next(self._cut_off)
        gates = [] if kind == "members" else list(victim.to_databases)
        gates += [] if kind == "database" else [member.to_itself for member in self.fleet.all.values()]
        begun = monotonic()
        for gate in gates:
            gate.shut()
        try:
            async with anyio.create_task_group() as together:
                together.start_soon(anyio.sleep, LONG * self.lease_ttl_s * self.chance.uniform(1, 1.2))
                if kind == "database":
                    await self._answered(servers, self._others)
                    self._note("takeover after a partition", begun, bool(servers))
        finally:
            for gate in gates:
                gate.open()
        self.memory.counts[f"partitions: {kind}"] += 1
        return f"{victim.name} with {servers} from {kind}, {await self._back(victim, 'a partition')}"

    async def restarts(self) -> str:
        """Restarts the database as after a crash; nobody is to lose a server by that."""
        long = self.memory.counts["restarts"] % AWAY_EVERY == AWAY_EVERY - 1
        leases = 2.0 if long else self.chance.uniform(0, 1)
        before = await self.history.held()
        begun = monotonic()
        await to_thread.run_sync(self.databases.restart, leases * self.lease_ttl_s)
        await self._all_serve()
        self._note("until all serve after a restart of the database", begun, True)
        for change in taken_over(await self.history.held(), before[-1].revision):
            self.memory.wrong(f"a restart of the database, away for {leases:.2f} leases: {change}")
        return f"away for {leases:.2f} leases, {monotonic() - begun:.1f} s"

    async def failovers(self) -> str:
        """Starts a synchronous standby, kills the database, and has the standby take over."""
        standby = await to_thread.run_sync(self.databases.stand_by)
        await anyio.sleep(self.chance.uniform(0.2, 1))
        begun = monotonic()
        await to_thread.run_sync(self.databases.fail_over, standby)
        await self._all_serve()
        self._note("until all serve after a failover", begun, True)
        return f"{monotonic() - begun:.1f} s"

    # How it is

    async def state(self) -> str:
        """Of members and servers, for who looks for a fault: as the database, and as each member has them."""
        try:
            seen = [*await self.history.members(), f"owners {await self.history.owners()}"]
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
            seen = [f"the database does not answer: {exc}"]
        for name in NAMES:
            try:
                with anyio.fail_after(CALL_S):
                    seen.append(f"{name} says {await self.clients[name].fleet.status()}")
            except (HubbubError, TimeoutError) as exc:
                seen.append(f"{name} says nothing: {exc!r}")
            seen += [f"{name} logs {line}" for line in self.fleet.all[name].log().splitlines()[-LOG_LINES:]]
        return "\n".join(seen)

    def tell(self) -> None:
        """Puts how long it took among the counts."""
        for what, took in self.took_s.items():
            p50, p95, most = (self._share(what, part) for part in (0.5, 0.95, 1))
            self.memory.counts[f"times {what}: p50 {p50:.1f} s, p95 {p95:.1f} s, max {most:.1f} s"] = len(took)

    def late(self) -> str:
        """What took longer than it may; empty if nothing did."""
        late = [
            f"{what}: {took_s:.1f} s in {share:.0%} of the cases, goal {goal_s:g} s"
            for what, share, goal_s in GOALS
            if (took_s := self._share(what, share)) > goal_s
        ]
        return "\n".join(late)

    def _share(self, what: str, part: float) -> float:
        ordered = sorted(self.took_s.get(what, [0.0]))
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)]

    def _note(self, what: str, begun: float, measured: bool) -> None:
        if measured:
            self.took_s.setdefault(what, []).append(monotonic() - begun)

    @asynccontextmanager
    async def _victim(self) -> AsyncGenerator[tuple[Member, list[str]]]:
        """Any member that nothing befalls, and what of it can be called without a question."""
        name = self.chance.choice(self._others())
        self.busy.add(name)
        try:
            owners = await self.history.owners()
            yield self.fleet.all[name], [each for each in owners if owners[each] == name and each[:-1] in PROBES]
        finally:
            self.busy.discard(name)

    def _others(self) -> list[str]:
        return [name for name in NAMES if name not in self.busy]

    async def _back(self, victim: Member, what: str) -> str:
        begun = monotonic()
        await self._serves(victim.name)
        self._note(f"until it serves again after {what}", begun, True)
        return f"served again after {self.took_s[f'until it serves again after {what}'][-1]:.1f} s"

    async def _all_serve(self) -> None:
        async with anyio.create_task_group() as together:
            for name in NAMES:
                together.start_soon(self._serves, name)

    async def _serves(self, name: str) -> None:
        """Waits until a member takes part, and calls through it are answered."""
        while True:
            member = self.fleet.all[name]
            assert member.up, f"{name} has ended by itself:\n{member.log()[-2000:]}"
            try:
                if await self.history.lives(name) is not None:
                    break
            except (OSError, asyncpg.PostgresError):
                pass
            await anyio.sleep(POLL_S)
        await self._answered([f"{kind}{number}" for kind in PROBES for number in (1, 2)], lambda: [name])

    async def _answered(self, servers: list[str], names: Callable[[], list[str]]) -> None:
        """Waits until each of these servers has answered a call that was made at one of these members, as of then."""
        async with anyio.create_task_group() as together:
            for server in servers:
                together.start_soon(self._answers, server, names)

    async def _answers(self, server: str, names: Callable[[], list[str]]) -> None:
        tool, arguments = PROBES[server[:-1]]
        while True:
            name = self.chance.choice(names())
            why = f"no answer within {CALL_S:g} s"
            with anyio.move_on_after(CALL_S):
                try:
                    await self.clients[name].call_tool(server, tool, arguments)
                    self.refused.pop(server, None)
                    return
                except HubbubError as error:
                    self.memory.counts[f"probes refused {error.reason or error.code}"] += 1
                    why = str(error)
            self.refused[server] = f"{server} at {name}: {why}"
            await anyio.sleep(POLL_S)


def taken_over(held: list[Held], after: int) -> list[Held]:
    """The leases that went from one member to another after a revision, without having been given up."""
    last: dict[str, Held] = {}
    found: list[Held] = []
    for each in held:
        before = last.get(each.server)
        if each.revision > after and before and before.member and each.member not in ("", before.member):
            found.append(each)
        last[each.server] = each
    return found
