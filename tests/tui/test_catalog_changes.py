"""The catalog's pane while lists change faster than their entries come, on a scripted hub."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
from textual.widgets import Tree

from hubbub.v1 import catalog_pb2, common_pb2
from hubbub_tui.panes.catalog import CatalogPane

from ..clients.conftest import Refusal, ScriptedHub, hub, staying
from .conftest import LIMIT_S, Person, at_terminal

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


silence = staying()


def script(hub: ScriptedHub, *lists: Any) -> None:
    """Scripts a hub with these lists, and nothing else."""

    for name in ("WatchServers", "WatchPendingRequests", "WatchCalls", "WatchTasks", "WatchEvents"):
        hub.streams[name] = silence
    hub.streams["WatchCatalogLists"] = staying(
        *lists, catalog_pb2.WatchCatalogListsResponse(synced=common_pb2.WatchSynced())
    )


async def test_the_keys_of_the_lists_move_through_the_catalog(hub: ScriptedHub) -> None:
    script(hub, listed("one", 2))
    hub.replies["ListCatalogEntries"] = lambda _: entries("one", "brew", "roast")
    async with at_terminal(hub) as ann:
        await ann.press("5")
        await ann.sees("2 entries of 1 server ·", "brew", "Open a branch")
        await ann.press("j", "j", "j")
        await ann.sees("enter to call it")
        assert cursor(ann) == "roast"
        await ann.press("k")
        assert cursor(ann) == "brew"


def cursor(person: Person) -> str:
    node = person.app.query_one(CatalogPane).query_one(Tree).cursor_node
    return str(node.label) if node is not None else ""


async def test_a_catalog_without_what_is_looked_for_says_where_to_go(hub: ScriptedHub) -> None:
    script(hub, listed("one", 1))
    hub.replies["ListCatalogEntries"] = lambda _: entries("one", "brew")
    async with at_terminal(hub) as ann:
        await ann.press("5")
        await ann.sees("brew")
        await ann.press("slash", *"tea")
        await ann.sees("0 with tea", "Nothing that the servers offer has all these words; escape shows everything.")
        await ann.press("escape")
        await ann.sees("brew", "Open a branch")


async def test_a_catalog_without_servers_says_where_to_add_one(hub: ScriptedHub) -> None:
    script(hub)
    async with at_terminal(hub) as ann:
        await ann.press("5")
        await ann.sees("No server offers anything yet", "2 shows the servers; there, a adds one.")


async def test_a_second_key_does_not_call_a_tool_twice(hub: ScriptedHub) -> None:
    script(hub, listed("one", 1))
    begun, let_go = anyio.Event(), anyio.Event()

    async def start(_: Any) -> Any:
        begun.set()
        await let_go.wait()
        raise Refusal("FAILED_PRECONDITION", "TOOL_DENIED", "not this tool")

    hub.replies |= {"ListCatalogEntries": lambda _: entries("one", "brew"), "StartCall": start}
    async with at_terminal(hub) as ann:
        await ann.press("5")
        await ann.sees("brew")
        await ann.press("j", "j", "enter")
        await ann.sees("It takes no arguments.")
        await ann.press("ctrl+s")
        with anyio.fail_after(LIMIT_S):
            await begun.wait()
        await ann.press("ctrl+s")
        let_go.set()
        await ann.sees("not this tool")
        assert len(hub.requests("StartCall")) == 1
        await ann.press("ctrl+s")
        await ann.sees("not this tool")
    assert len(hub.requests("StartCall")) == 2


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
