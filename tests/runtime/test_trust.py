"""Servers that the owner of the hub's machine adds: trust is theirs for as long as nobody else changes them."""

from pathlib import Path

import pytest

from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.servers.connection_states import ConnectionState
from hubbubd.errors import PermissionDenied
from hubbubd.runtime.hub import Hub

from ..raising import raising
from .conftest import ANY_PEER, World, server, settle, until

ANYTHING = server("mine", command="anything", args=("at", "all"))
LOCAL = ServerConfig(name="near", url="http://127.0.0.1:9/mcp")


def settings(**changes: object) -> HubSettings:
    return HubSettings.model_validate({"data_dir": Path("unused"), "allow_commands": (ANY_PEER,), **changes})


def held_to(world: World, name: str) -> str:
    """Why the server may not be connected under what it was last held to; empty if it may."""
    confinement = world.peers.confinements[name]
    return confinement.find_refusal(ANYTHING if name == "mine" else LOCAL, {})


async def connected(hub: Hub, name: str) -> None:
    await until(lambda: hub.servers.get(name).connection.state is ConnectionState.CONNECTED)


async def test_the_owners_server_is_trusted_also_by_the_next_hub(world: World) -> None:
    async with world.hub() as hub:
        record = await hub.servers.add(ANYTHING, trusted=True)
        assert record.trusted
        await connected(hub, "mine")
    world.peers.confinements.clear()
    async with world.hub() as hub:
        await connected(hub, "mine")
        assert hub.servers.get("mine").trusted
        assert held_to(world, "mine") == ""


async def test_nobody_elses_server_is_trusted(world: World) -> None:
    async with world.hub() as hub:
        for config in (ANYTHING, LOCAL):
            with pytest.raises(PermissionDenied):
                await hub.servers.add(config)
        assert hub.servers.names() == []


async def test_a_change_by_somebody_else_is_refused_where_it_needs_trust(world: World) -> None:
    async with world.hub() as hub:
        before = await hub.servers.add(ANYTHING, trusted=True)
        with raising(PermissionDenied, "COMMAND_NOT_ALLOWED"):
            await hub.servers.change("mine", lambda config: config.model_copy(update={"call_timeout_s": 7}))
        after = hub.servers.get("mine")
        assert (after.config, after.trusted, after.revision) == (before.config, True, before.revision)


async def test_a_change_by_somebody_else_ends_the_trust_where_it_needs_none(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(ANYTHING, trusted=True)
        await hub.servers.change("mine", lambda _: server("mine"))
        assert not hub.servers.get("mine").trusted
        with pytest.raises(PermissionDenied):
            await hub.servers.change("mine", lambda _: ANYTHING)
    async with world.hub() as hub:
        assert not hub.servers.get("mine").trusted


async def test_a_server_whose_trust_ends_is_connected_anew_under_the_rules(world: World) -> None:
    async with world.hub() as hub:
        url = ServerConfig(name="near", url="https://mcp.example.com/mcp")
        await hub.servers.add(url, trusted=True)
        await connected(hub, "near")
        trusted = world.peers.confinements["near"]
        assert trusted.trusted
        await hub.servers.change("near", lambda config: config.model_copy(update={"call_timeout_s": 7}))
        await until(lambda: len(world.peers["near"].links) == 2)
        now = world.peers.confinements["near"]
        assert not now.trusted


async def test_the_setting_turns_trust_off_and_on_while_the_hub_runs(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(ANYTHING, trusted=True)
        await hub.servers.add(LOCAL, trusted=True)
        await connected(hub, "mine")
        await connected(hub, "near")
        await hub.servers.adopt({}, settings(trust_local=False))
        await until(lambda: len(world.peers["mine"].links) == len(world.peers["near"].links) == 2)
        assert [held_to(world, name) for name in ("mine", "near")] == ["COMMAND_NOT_ALLOWED", "HOST_NOT_ALLOWED"]
        with pytest.raises(PermissionDenied):
            await hub.servers.add(server("more", command="anything"), trusted=True)
        await hub.servers.adopt({}, settings())
        await until(lambda: len(world.peers["mine"].links) == len(world.peers["near"].links) == 3)
        assert [held_to(world, name) for name in ("mine", "near")] == ["", ""]


async def test_the_setting_leaves_alone_what_was_never_trusted(world: World) -> None:
    async with world.hub() as hub:
        await hub.servers.add(server())
        await until(lambda: world.peer.links)
        await hub.servers.adopt({}, settings(trust_local=False))
        await settle(10)
        assert len(world.peer.links) == 1
