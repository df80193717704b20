"""Fifty answers at once to one question, at members chosen at random: real stores over one PostgreSQL, in real time."""

import json
import os
import random
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.filters import RequestFilter
from hubbubd.core.inbox.forms import Accept
from hubbubd.core.inbox.request_states import Delivery, PendingRequest, RequestState
from hubbubd.errors import FailedPrecondition
from hubbubd.runtime.fleet.member import FleetOwnership
from hubbubd.runtime.hub import Hub
from hubbubd.store import Precondition, Write, WriteConflict
from hubbubd.store.postgres.identity import Entrant
from hubbubd.store.postgres.members import PostgresMembers
from hubbubd.store.postgres.postgres_store import PostgresStore

from ..postgres import Postgres
from .conftest import FORM, server
from .peer import Peers

RACES = int(os.environ.get("HUBBUB_RACES", "300"))
"""How many questions are raced for; `make races` has more."""

ANSWERS = 50
TOGETHER = 8
"""Races under way at a time."""

SPREADS_S = (0.0, 0.0, 0.003, 0.02)
"""Within how many seconds all answers of a race begin: those of some overtake the news of the first one."""

LIMIT_S = 60
TTL_S = 300.0


@pytest.fixture
def anyio_backend() -> str:
    """A loop in real time: the database is outside of it."""
    return "asyncio"


class Store(PostgresStore):
    """Counts the commits that lost to others in the database."""

    lost = 0

    async def commit(self, writes: Sequence[Write], guards: Sequence[Precondition] = ()) -> int:
        try:
            return await super().commit(writes, guards)
        except WriteConflict:
            self.lost += 1
            raise


@dataclass
class Member:
    """A member that runs, and what those who watch its inbox received, by the question."""

    name: str
    hub: Hub
    store: Store
    told: dict[str, PendingRequest] = field(default_factory=dict[str, PendingRequest])

    async def watch(self) -> None:
        async for event in self.hub.inbox.watch(RequestFilter()):
            if event.record is not None:
                self.told[json.loads(event.record.request)["message"]] = event.record

    async def answer(self, request_id: str, number: int) -> PendingRequest:
        """Answer as one of fifty people, each with words and an id of their own."""
        given, by = Accept({"name": f"name {number}"}), f"person {number}"
        return await self.hub.inbox.answer(request_id, given, by, answer_id=f"answer {number}", claim_id=None)


@asynccontextmanager
async def joined(
    name: str, database: Postgres, schema: str, directory: Path, peers: Peers, *servers: ServerConfig
) -> AsyncGenerator[Member]:
    """A member with these servers in its file."""
    entrant = Entrant(name, TTL_S)
    store = await Store.open(database.url, schema=schema, directory=directory, timeout_s=LIMIT_S, member=entrant)
    async with AsyncExitStack() as held:
        held.push_async_callback(store.close)
        membership = PostgresMembers(store.identity, entrant)
        held.push_async_callback(membership.close)
        fleet = FleetOwnership(membership, drain_timeout_s=0, rebalance=False)
        await _beside(held, fleet.send_beats)
        configured = {config.name: config for config in servers}
        settings = HubSettings(data_dir=directory)
        hub = await held.enter_async_context(Hub.open(store, peers, configured, settings, fleet=fleet))
        member = Member(name, hub, store)
        await _beside(held, member.watch)
        yield member


async def _beside(held: AsyncExitStack, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do something until what is held is given back."""
    tasks = await held.enter_async_context(anyio.create_task_group())
    held.callback(tasks.cancel_scope.cancel)
    tasks.start_soon(work)


@dataclass
class Races:
    """Three members of which the first one has the server, and who has won at each."""

    members: Sequence[Member]
    peers: Peers
    chance: random.Random
    won: Counter[str] = field(default_factory=Counter[str])

    async def run(self, number: int) -> None:
        """Have one question answered fifty times, and look what every member has of it."""
        text = f"Which one, number {number}?"
        asked = self.peers["one"].link.ask("elicitation/create", FORM | {"message": text})
        await until(lambda: all(text in member.told for member in self.members))
        request_id = self.members[0].told[text].id
        winner, record = await self._answered(request_id)
        told = {member.name: await member.answer(request_id, winner) for member in self.members}
        assert {answer_of(each) for each in told.values()} == {answer_of(record)}
        assert (await asked.answered())["content"] == {"name": f"name {winner}"}
        await until(lambda: all(each.told[text].delivery is Delivery.DELIVERED for each in self.members))
        first, *others = (member.hub.inbox.get(request_id) for member in self.members)
        assert others == [first, first]
        assert {answer_of(member.told.pop(text)) for member in self.members} == {answer_of(first), answer_of(record)}

    async def _answered(self, request_id: str) -> tuple[int, PendingRequest]:
        """Return who answered, as the errors say, and the record that came with it."""
        accepted = dict[int, PendingRequest]()
        refused = Counter[str]()
        spread_s = self.chance.choice(SPREADS_S)

        async def answer(number: int, member: Member, after_s: float) -> None:
            await anyio.sleep(after_s)
            try:
                accepted[number] = await member.answer(request_id, number)
                self.won[member.name] += 1
            except FailedPrecondition as exc:
                refused[exc.reason] += 1

        async with anyio.create_task_group() as people:
            for number in range(ANSWERS):
                member = self.chance.choice(self.members)
                people.start_soon(answer, number, member, self.chance.uniform(0, spread_s))
        assert (len(accepted), refused) == (1, {"ALREADY_ANSWERED": ANSWERS - 1})
        ((winner, record),) = accepted.items()
        assert (record.state, record.answered_by) == (RequestState.ANSWERED, f"person {winner}")
        return winner, record


def answer_of(record: PendingRequest) -> tuple[object, ...]:
    """What must be the same wherever one asks."""
    return record.id, record.state, record.answer, record.answered_by, record.answered_at, record.answer_id


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(LIMIT_S):
        while not condition():
            await anyio.sleep(0.005)


async def test_of_fifty_answers_at_three_members_each_question_gets_one_that_all_members_name(
    postgres: Postgres, tmp_path: Path
) -> None:
    schema, peers, members = f"t{secrets.token_hex(8)}", Peers(), list[Member]()
    async with AsyncExitStack() as held:
        for name, servers in (("a", [server()]), ("b", []), ("c", [])):
            (directory := tmp_path / name).mkdir()
            joining = joined(name, postgres, schema, directory, peers, *servers)
            members.append(await held.enter_async_context(joining))
        await until(lambda: peers["one"].links)
        assert [member.hub.ownership.owns("one") for member in members] == [True, False, False]
        races, numbers = Races(members, peers, random.Random(7)), iter(range(RACES))

        async def in_turn() -> None:
            for number in numbers:
                await races.run(number)

        async with anyio.create_task_group() as together:
            for _ in range(TOGETHER):
                together.start_soon(in_turn)
        assert set(races.won) == {"a", "b", "c"}
        assert sum(races.won.values()) == RACES
        assert sum(member.store.lost for member in members) > RACES  # they met in the database, not before
