"""CatalogService."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from hubbub.v1 import catalog_pb2 as pb
from hubbubd import bounds
from hubbubd.core.access import Permission
from hubbubd.core.catalog import CatalogList, position
from hubbubd.rpc import access, convert, pages, requests, watch
from hubbubd.rpc.pages import Position
from hubbubd.runtime.catalog import Catalog


class _Entry(NamedTuple):
    """One entry and its place."""

    of: CatalogList
    at: int
    object: bytes


class CatalogService:
    """What the servers offer."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def list_catalog(self, request: pb.ListCatalogRequest) -> pb.ListCatalogResponse:
        """A page of entries; with the first one, the lists."""
        scope = access.browsing()
        lists = self._catalog.select(requests.catalog_filter(request, scope))
        of = pb.ListCatalogRequest(kind=request.kind, server=request.server)
        found, token = pages.page_of(lambda after: self._rest(lists, after), request.page, _position, _entry, of, scope)
        shown = [] if request.page.token else [convert.catalog_list(record, access.listening()) for record in lists]
        return pb.ListCatalogResponse(entries=found, next_page_token=token, lists=shown)

    async def refresh_catalog(self, request: pb.RefreshCatalogRequest) -> pb.RefreshCatalogResponse:
        """Fetches the lists of a server."""
        server = access.use(requests.identifier(request.server, "server"), Permission.CALL, Permission.OPERATE)
        lists = await self._catalog.refresh(server)
        return pb.RefreshCatalogResponse(lists=[convert.catalog_list(record, access.listening()) for record in lists])

    def watch_catalog(self, request: pb.WatchCatalogRequest) -> AsyncGenerator[bytes, None]:
        """Snapshot and changes of the lists."""
        seen = access.listening()
        chosen = replace(requests.catalog_filter(request, access.browsing()), seen=seen)
        events = self._catalog.watch(chosen, request.resume_token)
        return watch.responses(events, pb.WatchCatalogResponse, partial(convert.catalog_list, seen=seen))

    def _rest(self, lists: Sequence[CatalogList], after: Position | None) -> Iterator[_Entry]:
        """The entries after a position. They may be many: only those of the page are looked at."""
        last, list_id = (-1, "") if after is None else (bounds.whole(after[0]) or 0, after[1])
        for record in lists:
            if position(record.id) >= position(list_id):
                start = max(last + 1, 0) if record.id == list_id else 0
                entries = self._catalog.entries(record.id)
                yield from (_Entry(record, at, entries[at]) for at in range(start, len(entries)))


def _position(entry: _Entry) -> Position:
    return float(entry.at), entry.of.id


def _entry(entry: _Entry) -> pb.CatalogEntry:
    return pb.CatalogEntry(server=entry.of.server, kind=convert.CATALOG_KINDS[entry.of.kind], object=entry.object)
