"""Members of a fleet over one store in virtual time, and the database that knows of them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from hubbubd.config import ServerConfig
from hubbubd.members import ClockReading, Expulsion, Member, MemberStatus, Schema
from hubbubd.runtime.fleet.clock import FleetClock
from hubbubd.runtime.fleet.member import FleetOwnership
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.ownership import Owner
from hubbubd.runtime.records import Ledger
from hubbubd.store import Precondition, StoreUnavailable, Write
from hubbubd.store.membership import Expelled, HistoryLost
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.telemetry.meter import OFF, Meter
from hubbubd.timing.clock import Clock

from . import foreign
from .conftest import EPOCH, World
from .peer import Peers

TTL_S = 6.0


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Row:
    """A member as the database has it."""

    member: Member
    beat_at: float
    expires_at: float
    steady_since: float


@dataclass
class Database:
    """Which members there are. While `away` it answers nobody."""

    store: SqliteStore
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    away: bool = False
    standbys: int | None = 1
    schema: Schema = field(default_factory=lambda: Schema(3, 3))
    lost: HistoryLost | None = None
    """What all members find as soon as they ask: another history."""

    slow_s: float = 0.0
    """How long a beat takes."""

    full: bool = False
    """Whether its disk is full: beats, which change a row, succeed."""

    set_s: float = 0.0
    """By how much its clock was set."""

    def time(self) -> float:
        """What its clock says."""
        return EPOCH + now() + self.set_s

    async def slow(self) -> None:
        if self.slow_s:
            await anyio.sleep(self.slow_s)

    def joined(self, name: str) -> int:
        """A member starts; returns its term."""
        term = self.rows[name].member.term + 1 if name in self.rows else 1
        member = Member(
            name=name,
            term=term,
            status=MemberStatus.LIVE,
            address=f"{name}:1",
            forward=f"{name}:2",
            version="1",
            position=0,
            overdue=False,
            schema=self.schema.version,
        )
        self.rows[name] = Row(member, now(), now() + TTL_S, now())
        return term

    def is_gone(self, name: str, term: int) -> bool:
        member = self.rows[name].member
        return member.term != term or member.status is MemberStatus.GONE


class Store(foreign.Follower):
    """A member's store: it reaches nobody while `cut` off, and a member that is gone commits nothing."""

    def __init__(self, database: Database, name: str, term: int) -> None:
        super().__init__(database.store, name)
        self.database, self.name_of_member, self.term = database, name, term
        self.cut = False

    def reach(self) -> None:
        if self.cut or self.database.away:
            raise StoreUnavailable("the database is away")
        if self.database.lost is not None:
            raise copy(self.database.lost)
        if self.database.is_gone(self.name_of_member, self.term):
            raise Expelled("gone")

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        await self.probe()
        return await super().commit(writes, guards)

    async def probe(self) -> None:
        self.reach()
        if self.database.full:
            raise StoreUnavailable("the disk of the database is full")

    def sever(self, cut: bool) -> None:
        """Cut the member off from the database, or join it again."""
        self.cut = self.held = cut
        if not cut:
            self.release()


class Place:
    """The membership of one member."""

    lease_ttl_s = TTL_S

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows = store.database.rows
        self.name, self.term = store.name_of_member, store.term

    async def renew_lease(self, position: int, for_s: float) -> ClockReading:
        await self._store.database.slow()
        self._store.reach()
        row = self._rows[self.name]
        if min(row.expires_at, row.beat_at + TTL_S / 2) < now():
            row.steady_since = now()
        row.beat_at, row.expires_at = now(), now() + for_s
        row.member = replace(row.member, position=position)
        return ClockReading(at=self._store.database.time(), sent_s=now(), received_s=now())

    async def members(self) -> list[Member]:
        self._store.reach()
        return [
            replace(row.member, overdue=row.expires_at < now(), silent_s=max(now() + TTL_S - row.expires_at, 0.0))
            for row in self._rows.values()
        ]

    async def expel(self, member: Member) -> Expulsion:
        self._store.reach()
        own, other = self._rows[self.name], self._rows[member.name]
        may = own.beat_at + TTL_S / 2 >= now() and now() - own.steady_since >= TTL_S
        if other.member.status is MemberStatus.GONE:
            return Expulsion.GONE_BEFORE
        if other.member.term != member.term or other.expires_at >= now() or not may:
            return Expulsion.REFUSED
        other.member = replace(other.member, status=MemberStatus.GONE)
        return Expulsion.DONE

    async def set_status(self, member: Member, status: MemberStatus) -> bool:
        self._store.reach()
        row = self._rows[member.name]
        if row.member.term != member.term or row.member.status is MemberStatus.GONE:
            return False
        row.member = replace(row.member, status=status)
        return True

    async def publish(self, address: str, forward: str) -> None:
        self._store.reach()
        row = self._rows[self.name]
        row.member = replace(row.member, address=address, forward=forward)

    async def count_standbys(self) -> int | None:
        self._store.reach()
        return self._store.database.standbys

    @property
    def schema(self) -> Schema:
        return self._store.database.schema

    async def finish_upgrade(self) -> Schema:
        self._store.reach()
        version = self.schema.version
        if not any(each.status is not MemberStatus.GONE and each.schema < version for each in await self.members()):
            self._store.database.schema = Schema(version, version)
        return self.schema

    async def set_own_status(self, status: MemberStatus) -> None:
        self._store.reach()
        row = self._rows[self.name]
        row.member = replace(row.member, status=status)


@dataclass
class Running:
    """A member at work."""

    name: str
    hub: Hub
    store: Store
    members: "Members"
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def fleet(self) -> FleetOwnership:
        assert self.hub.fleet is not None
        return self.hub.fleet

    def kill(self) -> None:
        """It ends at once, and says nothing to anybody."""
        self.store.sever(cut=True)
        self.ended.set()
        self.members.running.pop(self.name, None)


async def first_of(*events: anyio.Event) -> None:
    """Returns as soon as one of these has happened."""
    async with anyio.create_task_group() as waiting:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            waiting.cancel_scope.cancel()

        for event in events:
            waiting.start_soon(wait, event)


class Members:
    """The members of a fleet, and the servers that they all can reach."""

    def __init__(self, store: SqliteStore, tasks: anyio.abc.TaskGroup) -> None:
        self.database = Database(store)
        self.running: dict[str, Running] = {}
        self.peers = Peers()
        self.settings: dict[str, Any] = {}
        self.meters: dict[str, Meter] = {}
        self.losses: dict[str, list[HistoryLost]] = {}
        self.wrong_s: dict[str, float] = {}
        """By how much the clocks of members' machines are wrong."""
        self._tasks = tasks

    async def start(self, name: str, *servers: ServerConfig) -> Running:
        """Start a member."""
        started: list[Running] = []
        self._tasks.start_soon(self._run, name, servers, started)
        while not started:
            await anyio.sleep(0.01)
        return started[0]

    async def _run(self, name: str, servers: Sequence[ServerConfig], started: list[Running]) -> None:
        store = Store(self.database, name, self.database.joined(name))
        fleet = FleetOwnership(
            Place(store),
            drain_timeout_s=30,
            rebalance=self.settings.get("rebalance", False),
            losses=self.losses.setdefault(name, []),
            now=now,
            time=FleetClock(now, lambda: EPOCH + now() + self.wrong_s.get(name, 0.0), lambda: False),
        )
        hub = self.settings.get("hub", {})
        fleet.answers = self.answers
        world = World(store, self.peers, settings=hub, fleet=fleet, meter=self.meters.get(name, OFF))
        with suppress(Exception):
            async with anyio.create_task_group() as beating:
                beating.start_soon(fleet.send_beats)
                await first_of(fleet.time.is_known, fleet.lost)
                world.clock = Clock(now, read_wall_s=fleet.time.now, read_suspended_s=lambda: 0.0)
                async with world.hub(*servers) as hub, anyio.create_task_group() as waiting:
                    running = self.running[name] = Running(name, hub, store, self)
                    started.append(running)
                    waiting.start_soon(self._until_lost, fleet, running)
                    await running.ended.wait()
                    waiting.cancel_scope.cancel()
                beating.cancel_scope.cancel()
        if name in self.running and self.running[name].store is store:
            del self.running[name]

    async def _until_lost(self, fleet: FleetOwnership, running: Running) -> None:
        await fleet.lost.wait()
        running.store.sever(cut=True)
        running.ended.set()

    async def answers(self, owner: Owner) -> bool:
        """Whether a member is reached by others."""
        return owner.member in self.running

    def owners(self, server: str) -> list[str]:
        """Who has a server and may act on it."""
        return [each.name for each in self.running.values() if each.fleet.owns(server) and each.fleet.may_act()]


def count_lookups(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Has a list get an entry whenever a member asks the database what others have committed."""
    asked: list[None] = []
    catch_up = Ledger.catch_up

    async def catch_up_counted(ledger: Ledger) -> None:
        asked.append(None)
        await catch_up(ledger)

    monkeypatch.setattr(Ledger, "catch_up", catch_up_counted)
    return asked


@asynccontextmanager
async def members() -> AsyncGenerator[Members]:
    """A fleet without members yet."""
    store = await SqliteStore.open(":memory:")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        fleet = Members(store, tasks)
        try:
            yield fleet
        finally:
            for running in list(fleet.running.values()):
                running.ended.set()
            fleet.database.away = False
            tasks.cancel_scope.cancel()
