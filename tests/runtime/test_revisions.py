"""The revision of a server: it grows with each change of its configuration and its roots, and with nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import Unavailable
from hubbubd.runtime.hub import Hub

from .conftest import ANY_PEER, World, server, settle, until, update

URL = ServerConfig.model_validate({"name": "one", "url": "http://127.0.0.1:9/mcp"})
SETTINGS = HubSettings(data_dir=Path("unused"), allow_commands=(ANY_PEER,), allow_hosts=("127.0.0.1",))

CHANGES: dict[str, Callable[[Hub], Awaitable[object]]] = {
    "change": lambda hub: update(hub, server(call_timeout_s=7)),
    "remove": lambda hub: hub.servers.remove("one"),
    "connect": lambda hub: hub.servers.connect("one"),
    "disconnect": lambda hub: hub.servers.disconnect("one"),
    "log out": lambda hub: hub.servers.log_out("one"),
    "set roots": lambda hub: hub.servers.set_roots("one", "ask"),
}


def revision(hub: Hub) -> int:
    return hub.servers.get("one").revision


async def test_a_server_of_the_api_has_its_revision_after_a_restart(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
        await hub.servers.set_roots("one", "ask")
        known = await update(hub, server(call_timeout_s=7))
    async with world.hub() as hub:
        assert revision(hub) == known.revision


async def test_a_server_of_a_file_has_its_revision_after_a_restart_unless_the_file_says_something_else(
    world: World,
) -> None:
    async with world.hub(server()) as hub:
        first = revision(hub)
    async with world.hub(server()) as hub:
        assert revision(hub) == first
    async with world.hub(server(call_timeout_s=7)) as hub:
        changed = revision(hub)
        assert changed > first
        assert (await hub.servers.set_roots("one", "ask")).revision > changed
    # The roots that were set go when the file names some of its own.
    async with world.hub(server(call_timeout_s=7, roots=({"uri": "file:///x"},))) as hub:
        assert revision(hub) > changed + 1


@pytest.mark.parametrize(
    "other",
    [server(call_timeout_s=7), server(env={"KEY": "other"}), server(args=("-v",))],
    ids=["an option", "a secret", "another server"],
)
async def test_a_file_that_is_read_again_gives_what_it_changes_a_new_revision(
    world: World, other: ServerConfig
) -> None:
    before = server(env={"KEY": "secret"})
    async with world.hub(before) as hub:
        first = revision(hub)
        await hub.servers.adopt({"one": before}, SETTINGS)
        assert revision(hub) == first
        await hub.servers.adopt({"one": other}, SETTINGS)
        assert revision(hub) > first


async def test_what_happens_to_a_server_is_no_change_of_it(world: World) -> None:
    world.settings = {"allow_hosts": ("127.0.0.1",)}
    async with world.hub() as hub:
        known = await hub.servers.add(URL)
        await hub.servers.disconnect("one")
        await hub.servers.connect("one")
        await until(lambda: hub.servers.get("one").connection.state is ConnectionState.CONNECTED)
        links = len(world.peer.links)
        await hub.servers.adopt({}, SETTINGS.model_copy(update={"allow_hosts": ("127.0.0.1", "10.0.0.1")}))
        await until(lambda: len(world.peer.links) > links)
        assert revision(hub) == known.revision


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_waits_for_the_one_before_it(world: World, change: Callable[[Hub], Awaitable[object]]) -> None:
    is_over = anyio.Event()
    async with world.hub() as hub, anyio.create_task_group() as tasks:
        await hub.servers.add(server())
        tasks.start_soon(hub.servers.run_exclusively, "one", is_over.wait)
        await settle(1)
        changing = asyncio.ensure_future(change(hub))
        await settle(1)
        assert not changing.done()
        is_over.set()
        await asyncio.wait([changing])
        changing.exception()  # that of a process, from which nobody logs out


async def test_a_change_that_could_not_be_stored_is_none(world: World) -> None:
    world.settings = {"allow_hosts": ("127.0.0.1",)}
    before = ServerConfig.model_validate({**URL.model_dump(), "headers": {"Key": "secret"}})
    async with world.hub() as hub:
        known = await hub.servers.add(before)
        await settle()
        world.store.failures = 1
        with pytest.raises(Unavailable):
            await update(hub, before.model_copy(update={"headers": {}}))
        after = hub.servers.get("one")
        assert (after.revision, after.config) == (known.revision, before)
        await settle(120)  # the store is well again
    async with world.hub() as hub:
        after = hub.servers.get("one")
        assert (after.revision, after.config) == (known.revision, before)
