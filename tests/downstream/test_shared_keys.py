"""Keys that the members of a fleet share: what one has sealed, all can open."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from hubbubd.errors import Overtaken
from hubbubd.store import StoreError
from hubbubd.store.vault.shared_state_keys import SETTLED_S, SHARED, SHARED_LOOK_S, SharedStateKeyRing
from hubbubd.store.vault.state_keys import ROTATE_S
from hubbubd.timing.clock import Clock

from ..runtime.conftest import EPOCH
from ..runtime.conftest import anyio_backend as anyio_backend


class Database:
    """What members share: a version, and what it has."""

    def __init__(self) -> None:
        self.version = 0
        self.kept: dict[str, Any] | None = None
        self.away = False


class Member:
    """A member's vault: it knows what it read last, and goes over nothing else."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: tuple[int, dict[str, Any] | None] = 0, None

    def get(self, server: str) -> dict[str, Any] | None:
        assert server == SHARED
        return self._known[1]

    async def put(self, server: str, secrets: dict[str, Any] | None) -> None:
        await anyio.sleep(0.01)
        if self._known[0] != self._database.version:
            raise Overtaken("another was faster")
        self._database.version += 1
        self._database.kept = secrets

    async def refresh(self, *servers: str) -> None:
        if self._database.away:
            raise OSError("away")
        self._known = self._database.version, self._database.kept


@pytest.fixture
def database() -> Database:
    return Database()


def clock() -> Clock:
    time = asyncio.get_running_loop().time
    return Clock(time, EPOCH + time())


@asynccontextmanager
async def rings(database: Database) -> AsyncGenerator[list[SharedStateKeyRing]]:
    made = list[SharedStateKeyRing]()

    async def make() -> None:
        made.append(await SharedStateKeyRing.open_shared(Member(database), clock()))

    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as together:
            for _ in range(3):
                together.start_soon(make)
        for ring in made:
            tasks.start_soon(ring.maintain_keys)
        yield made
        tasks.cancel_scope.cancel()


async def test_members_that_start_together_have_one_key(database: Database) -> None:
    async with rings(database) as made:
        assert len({ring.secrets for ring in made}) == 1
        assert len(made[0].secrets) == 1
    assert database.version == 1


async def test_a_new_key_opens_at_all_members_before_it_seals_at_any(database: Database) -> None:
    async with rings(database) as made:
        (first,) = made[0].secrets
        await anyio.sleep(ROTATE_S + SHARED_LOOK_S)
        assert {ring.secrets[0] for ring in made} == {first}
        await anyio.sleep(SETTLED_S)
        assert {ring.secrets for ring in made} == {made[0].secrets}
        new, old = made[0].secrets
        assert new != old == first
    assert database.version == 2


async def test_keys_are_kept_while_the_database_is_away(database: Database) -> None:
    async with rings(database) as made:
        before = made[0].secrets
        database.away = True
        await anyio.sleep(10 * SHARED_LOOK_S)
        assert made[0].secrets == before


async def test_damaged_keys_are_told(database: Database) -> None:
    database.kept, database.version = {"keys": [{"secret": "x", "made_at": 1}]}, 1
    with pytest.raises(StoreError, match="damaged keys"):
        await SharedStateKeyRing.open_shared(Member(database), clock())
