"""Profiles of hosts that change while the hub serves."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from hubbubd.config import HubSettings, LoadedSettings, ServerConfig
from hubbubd.config.sections.mcp import ProfileSettings
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from .conftest import until

AWAY = ServerConfig(name="away", transport="http", url="http://127.0.0.1:9/mcp")

Change = Callable[[Mapping[str, ProfileSettings]], None]
Make = Callable[[], AbstractAsyncContextManager[tuple[Hub, Change]]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A hub, and what writes other profiles into its files."""

    @asynccontextmanager
    async def made() -> AsyncIterator[tuple[Hub, Change]]:
        base = HubSettings(data_dir=tmp_path, allow_hosts=("127.0.0.1",))
        files = [LoadedSettings(hub=base, servers=(AWAY,))]
        store = await SqliteStore.open(":memory:")
        connector = McpConnector(TokenFile.open(tmp_path))
        async with Hub.open(store, connector, {"away": AWAY}, base, load=lambda: files[-1]) as hub:
            yield (
                hub,
                lambda profiles: files.append(
                    LoadedSettings(hub=base.model_copy(update={"mcp_profiles": profiles}), servers=(AWAY,))
                ),
            )
        await store.close()

    return made


async def test_other_profiles_are_told_at_once_to_those_who_show_them(make: Make) -> None:
    told: list[Mapping[str, ProfileSettings]] = []
    mine = ProfileSettings(tools="search")
    async with make() as (hub, change):
        hub.configuration.on_adopted(lambda settings: told.append(settings.profiles))
        change({"mine": mine})
        assert (await hub.configuration.reload()).settings == ("mcp_profiles",)
        assert (await hub.configuration.reload()).settings == ()
        change({})
        assert (await hub.configuration.reload()).needs_restart == ()
    assert told == [{"default": ProfileSettings(), "mine": mine}, {"default": ProfileSettings()}]


async def test_a_server_of_the_api_is_not_connected_while_an_alias_takes_its_name(make: Make) -> None:
    async with make() as (hub, change):
        await hub.servers.add(AWAY.model_copy(update={"name": "gh"}))

        def faults() -> dict[str, str]:
            found = {record.name: record.connection.fault for record in hub.servers.all()}
            return {name: fault.code for name, fault in found.items() if fault is not None}

        await until(lambda: faults() == {"away": "CONNECTION_REFUSED", "gh": "CONNECTION_REFUSED"})
        change({"default": ProfileSettings(alias={"away": "gh"})})
        await hub.configuration.reload()
        await until(lambda: faults() == {"away": "CONNECTION_REFUSED", "gh": "CONFIG_INVALID"})
        change({})
        await hub.configuration.reload()
        await until(lambda: faults() == {"away": "CONNECTION_REFUSED", "gh": "CONNECTION_REFUSED"})
