"""`hub.hosts`: the MCP hosts that use the hub as their server, and what each waits for."""

from collections.abc import Iterable, Sequence

from hubbub.v1 import mcp_pb2
from hubbub_client.data.conversion import read
from hubbub_client.data.hosts import ConnectedHost
from hubbub_client.transport.connection import HubConnection, PageFields, pages


class Hosts:
    """The hosts of McpService. Every method raises HubbubError."""

    def __init__(self, link: HubConnection) -> None:
        self._link = link

    async def list(
        self,
        principals: Iterable[str] = (),
        limit: int | None = None,
        *,
        ids: Iterable[str] = (),
        call_ids: Iterable[str] = (),
    ) -> Sequence[ConnectedHost]:
        """Return the hosts that are connected, newest first: all, or those of these principals, with these ids, and
        with a request open for one of these calls."""
        condition = mcp_pb2.HostFilter(principals=principals, ids=ids, call_ids=call_ids)

        async def page(which: PageFields) -> tuple[Sequence[ConnectedHost], str]:
            request = mcp_pb2.ListHostsRequest(filter=condition, **which)
            answer = await self._link.call(lambda hub: hub.mcp.ListHosts, request)
            return [read(ConnectedHost, each) for each in answer.hosts], answer.next_page_token

        return await pages(page, limit)
