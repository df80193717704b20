"""Tokens, while the store takes its time."""

import anyio
import pytest

from hubbubd.core.access import Grant, Role
from hubbubd.errors import Unauthenticated
from hubbubd.runtime.oversight.tokens import LOOKUPS_PER_S

from ..raising import raising
from .conftest import World, settle
from .fleet import count_lookups, members


async def test_a_token_whose_end_is_on_its_way_to_the_disk_is_good_for_nothing_and_no_use_brings_it_back(
    world: World,
) -> None:
    async with world.hub() as hub:
        _, secret = await hub.tokens.create("ada", [Grant(Role.VIEWER)], by="test", ttl_s=None, may_name_others=False)
        assert await hub.tokens.principal(secret) is not None
        await anyio.sleep(3600)  # so that a use would be noted again
        world.store.delay_s = 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.tokens.revoke, "ada")
            await settle()
            with raising(Unauthenticated, "TOKEN_INVALID"):
                await hub.tokens.principal(secret)
        await settle(5)
        assert hub.tokens.all() == []
    async with world.hub() as hub:
        assert hub.tokens.all() == []


async def test_for_tokens_that_nobody_knows_a_member_asks_the_database_a_few_times_a_second_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = count_lookups(monkeypatch)
    async with members() as fleet:
        hub = (await fleet.start("a")).hub
        _, secret = await hub.tokens.create("ada", [], by="test", ttl_s=None, may_name_others=False)
        await hub.tokens.revoke("ada")
        asked.clear()
        for _ in range(100):
            with raising(Unauthenticated, "TOKEN_INVALID"):
                await hub.tokens.principal(secret)
        assert 1 <= len(asked) <= LOOKUPS_PER_S + 1
