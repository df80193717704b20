"""Every list goes both ways, whole and in pages, and a page token is good for nothing but its own list."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from pydantic import TypeAdapter

from hubbub.v1 import admin_pb2, common_pb2
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.core.access import Grant, Role
from hubbubd.core.approvals.remembered import RememberedApproval
from hubbubd.core.servers.catalog import CatalogEntries, CatalogKind, CatalogList, Freshness
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.hub import Hub
from hubbubd.runtime.oversight import HostIdentity
from hubbubd.store import Write
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from .conftest import Caller, gate, settled
from .test_bad_input import METHODS, PAGED
from .test_long_histories import LISTS

NAMES = ("a", "b", "c")
OFFERED = {"a/tool": (b'{"name":"1"}', b'{"name":"2"}', b'{"name":"3"}'), "b/tool": (b'{"name":"4"}',)}
OWN = common_pb2.ORDER_UNSPECIFIED
UP = common_pb2.ORDER_ASCENDING
DOWN = common_pb2.ORDER_DESCENDING
NARROW: dict[str, dict[str, Any]] = {
    "ListServers": {"names": NAMES},
    "ListPendingRequests": {"states": [3]},
    "ListCalls": {"states": [4]},
    "ListTasks": {"role": 2},
    "ListCatalogEntries": {"kinds": [1]},
    "ListTokens": {"names": NAMES},
    "ListHosts": {"principals": NAMES},
    "ListAuditEntries": {"principal": "me"},
    "ListRememberedApprovals": {"server": "a"},
}
"""A filter that all records match."""


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Caller]:
    """A caller of a hub that has three records of each kind; of servers and tokens in the order of their names."""
    now, store = time.time(), await SqliteStore.open(":memory:")
    records = [(noun, make(name, now - 10 + at)) for noun, make, *_ in LISTS.values() for at, name in enumerate(NAMES)]
    records = [(noun, replace(each, last_updated_at=now) if noun == "task" else each) for noun, each in records]
    for name, entries in OFFERED.items():
        made = CatalogList(
            id=name, server=name[0], kind=CatalogKind.TOOL, freshness=Freshness.STALE, count=len(entries)
        )
        records += [("catalog", made), ("catalog_entries", CatalogEntries(id=name, entries=entries))]
    records += [("approval", remembered(name, now - 10 + at, now + 3600)) for at, name in enumerate(NAMES)]
    await store.commit([Write(f"{noun}/{each.id}", TypeAdapter(type(each)).dump_json(each)) for noun, each in records])
    servers = {name: ServerConfig(name=name, transport="http", url="http://127.0.0.1:9/mcp") for name in NAMES}
    connector, settings = McpConnector(TokenFile.open(tmp_path)), HubSettings(data_dir=tmp_path)
    async with (
        settled(),
        Hub.open(store, connector, servers, settings) as hub,
        serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        for name in NAMES:
            await hub.tokens.create(name, [Grant(Role.VIEWER)], by="me", ttl_s=None, may_name_others=False)
            about = {"name": "x", "version": "1", "revision": "2025-11-25", "via": "http", "endpoint": "s/a"}
            hub.hosts.add(HostIdentity(principal=name, **about))
        yield Caller(channel)
    await store.close()


def remembered(name: str, created_at: float, expires_at: float) -> RememberedApproval:
    return RememberedApproval(
        id=name,
        server="a",
        tool="t",
        caller="me",
        rule="r",
        terms="",
        definition="",
        approved_by=("me",),
        created_at=created_at,
        expires_at=expires_at,
        request_id="q",
    )


def name_of(record: Any) -> Any:
    """Which one it is: a server has no id, an entry of the catalog neither that nor a name."""
    member = next(name for name in ("id", "name", "object") if name in record.DESCRIPTOR.fields_by_name)
    return getattr(record, member)


async def read(api: Caller, rpc: str, order: int, size: int) -> list[Any]:
    """A whole list, page by page."""
    found, token, request = list[Any](), "", GetMessageClass(METHODS[rpc].input_type)
    while len(found) < 100:
        page = await api(METHODS[rpc], request(filter=NARROW[rpc], order=order, page_size=size, page_token=token))
        field = next(field for field in page.DESCRIPTOR.fields if field.is_repeated)
        found += map(name_of, getattr(page, field.name))
        if not (token := page.next_page_token):
            break
    return found


@pytest.mark.parametrize("rpc", sorted(PAGED))
async def test_a_list_goes_both_ways_and_is_the_same_in_pages(api: Caller, rpc: str) -> None:
    up = await read(api, rpc, UP, 100)
    match rpc:
        case "ListCatalogEntries":
            assert up == [entry for entries in OFFERED.values() for entry in entries]
        case "ListTokens" | "ListHosts":
            assert len(up) == len(NAMES)  # their ids are random; the tokens themselves say who is older
        case _:
            assert up == list(NAMES)
    down = list(reversed(up))
    assert await read(api, rpc, DOWN, 100) == down
    assert await read(api, rpc, OWN, 100) == (up if rpc in ("ListServers", "ListCatalogEntries") else down)
    for order, whole in ((UP, up), (DOWN, down)):
        for size in (1, 2):
            assert await read(api, rpc, order, size) == whole


@pytest.mark.parametrize("rpc", sorted(PAGED))
async def test_a_page_token_is_good_for_no_other_filter_and_no_other_order(api: Caller, rpc: str) -> None:
    request = GetMessageClass(METHODS[rpc].input_type)
    first = await api(METHODS[rpc], request(filter=NARROW[rpc], page_size=1))
    assert first.next_page_token
    for other in ({}, {"filter": NARROW[rpc], "order": UP}, {"filter": NARROW[rpc], "order": DOWN}):
        refusal = await api.refused(METHODS[rpc], request(**other, page_token=first.next_page_token))
        assert refusal.reason == "PAGE_TOKEN_INVALID"


async def test_tokens_are_chosen_by_name(api: Caller) -> None:
    request = admin_pb2.ListTokensRequest(filter=admin_pb2.TokenFilter(names=["a", "c", "none"]))
    assert [token.name for token in (await api(METHODS["ListTokens"], request)).tokens] == ["c", "a"]
