"""Tokens, while the store takes its time."""

import anyio

from hubbubd.core.access import Grant, Role
from hubbubd.errors import Unauthenticated

from ..raising import raising
from .conftest import World, settle


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
