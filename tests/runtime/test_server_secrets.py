"""Secrets of servers that are added and changed while the store does not say what has become of that."""

from collections.abc import Awaitable, Callable

import pytest

from hubbubd.config import ServerConfig
from hubbubd.errors import UnknownOutcome
from hubbubd.runtime.hub import Hub

from .conftest import World, server, settle
from .foreign import Late


def named(secret: str, host: str = "one") -> ServerConfig:
    return server("new", command=None, url=f"https://{host}.example.org/mcp", headers={"X-Secret": secret})


async def add(hub: Hub) -> None:
    await hub.servers.add(named("new"))


async def update(hub: Hub) -> None:
    await hub.servers.change("new", lambda _: named("new", "other"))


@pytest.mark.parametrize("act", [add, update], ids=["add", "update"])
async def test_a_change_that_holds_after_all_has_its_secrets(
    world: World, act: Callable[[Hub], Awaitable[None]]
) -> None:
    world.store = store = Late(world.store.inner)
    async with world.hub() as hub:
        if act is update:
            await hub.servers.add(named("old"))
        await settle()
        store.unsure = True
        with pytest.raises(UnknownOutcome):
            await act(hub)
        await store.soon()
    async with world.hub() as hub:
        secret = hub.servers.get("new").config.headers["X-Secret"]
        assert secret.get_secret_value() == "new"
