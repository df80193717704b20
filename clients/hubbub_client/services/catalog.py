"""`hub.catalog`: tools, resources, templates, prompts and skills of the servers, and the freshness of each list."""

from collections.abc import AsyncGenerator, Collection, Sequence

from hubbub.v1 import catalog_pb2
from hubbub_client.data import watch_events
from hubbub_client.data.catalog import CatalogEntry, CatalogList
from hubbub_client.data.conversion import enum_numbers, read
from hubbub_client.data.literals import CatalogKind
from hubbub_client.data.watch_events import WatchEvent
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.services.service import HubService
from hubbub_client.watch import follow_watch


class Catalog(HubService):
    """CatalogService. Every method raises HubbubError; NotFound if the server does not exist."""

    async def tools(self, server: str | None = None) -> Sequence[CatalogEntry]:
        """Return the tools of a server, or of all servers."""
        return (await self.read("tool", server))[0]

    async def resources(self, server: str | None = None) -> Sequence[CatalogEntry]:
        """Return the resources of a server, or of all servers."""
        return (await self.read("resource", server))[0]

    async def templates(self, server: str | None = None) -> Sequence[CatalogEntry]:
        """Return the resource templates of a server, or of all servers."""
        return (await self.read("template", server))[0]

    async def prompts(self, server: str | None = None) -> Sequence[CatalogEntry]:
        """Return the prompts of a server, or of all servers."""
        return (await self.read("prompt", server))[0]

    async def skills(self, server: str | None = None) -> Sequence[CatalogEntry]:
        """Return the skills of a server, or of all servers."""
        return (await self.read("skill", server))[0]

    async def read(
        self, kind: CatalogKind | None = None, server: str | None = None
    ) -> tuple[Sequence[CatalogEntry], Sequence[CatalogList]]:
        """Return the entries that match all given conditions, and the lists that hold them.

        Entries are sorted by server and kind, then in the server's own order.
        """
        condition = _catalog_filter(server, [kind] if kind else ())
        lists: list[CatalogList] = []

        async def fetch_page(page_fields: PageFields) -> tuple[Sequence[CatalogEntry], str]:
            """Return the records of one page, and the token of the next page; "" after the last."""
            request = catalog_pb2.ListCatalogEntriesRequest(filter=condition, **page_fields)
            response = await self._connection.call(lambda hub: hub.catalog.ListCatalogEntries, request)
            lists.extend(read(CatalogList, each) for each in response.lists)
            return [read(CatalogEntry, each) for each in response.entries], response.next_page_token

        return await fetch_pages(fetch_page), lists

    async def refresh(self, server: str) -> Sequence[CatalogList]:
        """Fetch all lists of a server again and return them; `error` is set on one that could not be fetched.

        Raises FailedPrecondition (SERVER_NOT_CONNECTED).
        """
        request = catalog_pb2.RefreshCatalogRequest(server=server)
        response = await self._connection.call(lambda hub: hub.catalog.RefreshCatalog, request)
        return [read(CatalogList, each) for each in response.lists]

    def watch(
        self, *, server: str | None = None, kinds: Collection[CatalogKind] = (), resume_token: str | None = None
    ) -> AsyncGenerator[WatchEvent[CatalogList], None]:
        """Watch the lists that match all given conditions: a snapshot, then changes."""
        condition = _catalog_filter(server, kinds)
        return follow_watch(
            self._connection,
            lambda hub: hub.catalog.WatchCatalogLists,
            catalog_pb2.WatchCatalogListsRequest(filter=condition),
            lambda step: watch_events.read(CatalogList, step),
            resume_token,
        )


def _catalog_filter(server: str | None, kinds: Collection[CatalogKind]) -> catalog_pb2.CatalogFilter:
    """Return a filter for the lists of a server (None: of all servers) of these kinds (none: of all kinds)."""
    numbers = enum_numbers(catalog_pb2.CatalogKind.DESCRIPTOR, kinds)
    return catalog_pb2.CatalogFilter(server=server or "", kinds=numbers)
