"""CatalogService: what servers offer."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from hubbub.v1 import catalog_pb2 as pb
from hubbub.v1 import common_pb2
from hubbubd import bounds
from hubbubd.core.access import Permission
from hubbubd.core.servers.catalog import CatalogList, sort_key
from hubbubd.rpc.auth import access
from hubbubd.rpc.messages import api_records, pages, requests, watch
from hubbubd.rpc.messages.pages import Position
from hubbubd.runtime.catalog import Catalog


class _Entry(NamedTuple):
    """An entry with its position in its list."""

    catalog_list: CatalogList
    place: int
    object: bytes


class CatalogService:
    """Implements hubbub.v1.CatalogService."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def list_catalog_entries(self, request: pb.ListCatalogEntriesRequest) -> pb.ListCatalogEntriesResponse:
        """Return a page of entries; the first page also has the lists."""
        scope = access.browsable_servers()
        lists = self._catalog.select(requests.catalog_filter(request.filter, scope))
        backwards = pages.is_backwards(request, common_pb2.ORDER_DESCENDING)
        entries, token = pages.page_ordered(
            lambda position: (self._entries_before if backwards else self._entries_after)(lists, position),
            request,
            lambda entry: (float(entry.place), entry.catalog_list.id),
            _render_entry,
            list_filter=request.filter,
            scope=scope,
        )
        list_messages = (
            []
            if request.page_token
            else [api_records.catalog_list(record, access.observable_servers()) for record in lists]
        )
        return pb.ListCatalogEntriesResponse(entries=entries, next_page_token=token, lists=list_messages)

    async def refresh_catalog(self, request: pb.RefreshCatalogRequest) -> pb.RefreshCatalogResponse:
        """Fetch all lists of a server, and return them."""
        server = access.check_server(requests.identifier(request.server, "server"), Permission.CALL, Permission.OPERATE)
        lists = await self._catalog.refresh(server)
        return pb.RefreshCatalogResponse(
            lists=[api_records.catalog_list(record, access.observable_servers()) for record in lists]
        )

    def watch_catalog_lists(self, request: pb.WatchCatalogListsRequest) -> AsyncGenerator[bytes, None]:
        """Stream the lists: snapshot, then changes."""
        full_scope = access.observable_servers()
        catalog_filter = replace(
            requests.catalog_filter(request.filter, access.browsable_servers()), full_scope=full_scope
        )
        events = self._catalog.watch(catalog_filter, request.resume_token)
        return watch.serialize_events(
            events,
            pb.WatchCatalogListsResponse,
            partial(api_records.catalog_list, seen=full_scope),
            batches=request.allow_batches,
        )

    def _entries_after(self, lists: Sequence[CatalogList], position: Position | None) -> Iterator[_Entry]:
        """Yield the entries after a position, or all for None. Each list is read when it is reached."""
        # A position comes from a page token, which may be made up, so its number may be any.
        last, list_id = (-1, "") if position is None else (bounds.clamp_whole(position[0]) or 0, position[1])
        for record in lists:
            if sort_key(record.id) >= sort_key(list_id):
                start = max(last + 1, 0) if record.id == list_id else 0
                entries = self._catalog.entries(record.id)
                yield from (_Entry(record, at, entries[at]) for at in range(start, len(entries)))

    def _entries_before(self, lists: Sequence[CatalogList], position: Position | None) -> Iterator[_Entry]:
        """Yield the entries before a position, or all for None, the last one first. Else as `_entries_after`."""
        last, list_id = (0, "") if position is None else (bounds.clamp_whole(position[0]) or 0, position[1])
        for record in reversed(lists):
            if position is None or sort_key(record.id) <= sort_key(list_id):
                entries = self._catalog.entries(record.id)
                end = min(last, len(entries)) if record.id == list_id else len(entries)
                yield from (_Entry(record, at, entries[at]) for at in range(end - 1, -1, -1))


def _render_entry(entry: _Entry) -> pb.CatalogEntry:
    """Return an entry of a list as a message; the object of the server passes unchanged."""
    return pb.CatalogEntry(
        server=entry.catalog_list.server, kind=api_records.CATALOG_KINDS[entry.catalog_list.kind], object=entry.object
    )
