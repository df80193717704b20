"""`hub.hosts`: the MCP hosts that use the hub as their server, what each waits for, and codes that let them log in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hubbub.v1 import login_pb2, mcp_pb2
from hubbub_client.data.conversion import read
from hubbub_client.data.hosts import ConnectedHost
from hubbub_client.data.records import RECORDS, Record
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.services.service import HubService


@dataclass(frozen=True, kw_only=True)
class LoginCode(Record):
    """A code that identifies, once, the person at a browser; `link` is the address of the page with the code in it.

    A program with the code speaks for the person who requested it. `endpoint` is the address to give to a host.
    """

    code: str = field(repr=False)
    link: str = field(repr=False)
    expires_at: datetime
    endpoint: str


RECORDS["CreateLoginCodeResponse"] = LoginCode


class Hosts(HubService):
    """The hosts of McpService, and LoginService. Every method raises HubbubError."""

    async def list(
        self,
        principals: Iterable[str] = (),
        limit: int | None = None,
        *,
        ids: Iterable[str] = (),
        call_ids: Iterable[str] = (),
    ) -> Sequence[ConnectedHost]:
        """Return the connected hosts that match all given conditions, newest first.

        The host is of one of these principals, has one of these ids, and has a request open for one of these calls.
        """
        condition = mcp_pb2.HostFilter(principals=principals, ids=ids, call_ids=call_ids)

        async def fetch_page(page_fields: PageFields) -> tuple[Sequence[ConnectedHost], str]:
            """Return the records of one page, and the token of the next page; "" after the last."""
            request = mcp_pb2.ListHostsRequest(filter=condition, **page_fields)
            response = await self._connection.call(lambda hub: hub.mcp.ListHosts, request)
            return [read(ConnectedHost, each) for each in response.hosts], response.next_page_token

        return await fetch_pages(fetch_page, limit)

    async def create_login_code(self) -> LoginCode:
        """Return a code that identifies the caller on the page that a host opens in a browser to log in.

        Raises FailedPrecondition (LOGIN_OFF) where hosts cannot log in.
        """
        request = login_pb2.CreateLoginCodeRequest()
        return read(LoginCode, await self._connection.call(lambda hub: hub.logins.CreateLoginCode, request))
