"""The catalog's pane while lists change faster than their entries come, on a scripted hub."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio

from hubbub.v1 import catalog_pb2, common_pb2

from ..clients.conftest import ScriptedHub, hub
from .conftest import LIMIT_S, at_terminal

__all__ = ["hub"]

TOOL = catalog_pb2.CATALOG_KIND_TOOL
FRESH = catalog_pb2.FRESHNESS_FRESH


def listed(server: str, count: int) -> Any:
    """News of a server's tools."""
    tools = catalog_pb2.CatalogList(id=f"{server}/tool", server=server, kind=TOOL, count=count, freshness=FRESH)
    return catalog_pb2.WatchCatalogListsResponse(upsert=tools)


def entries(server: str, *names: str) -> Any:
    """A server's tools."""
    found = [
        catalog_pb2.CatalogEntry(server=server, kind=TOOL, object=json.dumps({"name": name}).encode()) for name in names
    ]
    return catalog_pb2.ListCatalogEntriesResponse(entries=found)


async def test_entries_that_come_after_those_of_a_newer_list_are_not_shown(hub: ScriptedHub) -> None:
    changed, late, another = anyio.Event(), anyio.Event(), anyio.Event()

    async def lists(_: Any) -> AsyncIterator[Any]:
        yield listed("one", 1)
        yield catalog_pb2.WatchCatalogListsResponse(synced=common_pb2.WatchSynced())
        await changed.wait()
        yield listed("one", 2)
        await another.wait()
        yield listed("two", 1)
        await anyio.sleep_forever()

    async def silence(_: Any) -> AsyncIterator[Any]:
        await anyio.sleep_forever()
        yield

    async def read(request: Any) -> Any:
        if request.filter.server == "two":
            return entries("two", "another-tool")
        if changed.is_set():
            return entries("one", "new-tool", "newer-tool")
        changed.set()
        await late.wait()
        another.set()
        return entries("one", "old-tool")

    for name in ("WatchServers", "WatchPendingRequests", "WatchCalls", "WatchTasks", "WatchEvents"):
        hub.streams[name] = silence
    hub.streams["WatchCatalogLists"] = lists
    hub.replies["ListCatalogEntries"] = read
    async with at_terminal(hub) as ann:
        await ann.press("5")
        with anyio.fail_after(LIMIT_S):
            await changed.wait()
        await ann.sees("tools 2", "new-tool", "newer-tool")
        late.set()
        another.set()
        screen = await ann.sees("another-tool")
    assert "old-tool" not in screen
    assert "newer-tool" in screen
