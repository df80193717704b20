"""`hub.tokens`: creates, lists and revokes API tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hubbub.v1 import admin_pb2
from hubbub_client.data.conversion import enum_number, read
from hubbub_client.data.literals import Role
from hubbub_client.data.records import RECORDS, Record
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.services.service import HubService
from hubbub_shared.durations import to_duration

_ROLES: Any = admin_pb2.AccessRole.DESCRIPTOR


@dataclass(frozen=True, kw_only=True)
class Grant(Record):
    """A role for the servers whose names match one of the patterns (`*`, `?`, `[...]`)."""

    role: Role
    servers: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True)
class TokenLogin(Record):
    """The log-in of a host that led to a token. `client_name` is the name that the program gives itself, unverified.

    `endpoint` is the path that the token is good for; it ends with the credential of the person, `granted_by`.
    """

    client_name: str
    client_id: str
    redirect_host: str
    granted_by: str
    endpoint: str


@dataclass(frozen=True, kw_only=True)
class Token(Record):
    """An API token, without its secret."""

    id: str
    name: str
    grants: tuple[Grant, ...]
    may_name_others: bool
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    last_used_at: datetime | None
    hold_ms: int | None = None
    """For how many milliseconds requests of MCP hosts are held while people are asked; None: as the profile says."""
    login: TokenLogin | None = None


@dataclass(frozen=True, kw_only=True)
class NewToken(Record):
    """A new API token. The hub returns its `secret` only this once."""

    token: Token
    secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Caller(Record):
    """The principal that calls, with its grants."""

    name: str
    credential: str
    grants: tuple[Grant, ...]
    expires_at: datetime | None
    may_name_others: bool


# Registered here, so that the converter finds the record of each message.
RECORDS.update(
    {
        "AccessGrant": Grant,
        "ApiToken": Token,
        "CreateTokenResponse": NewToken,
        "Caller": Caller,
        "TokenLogin": TokenLogin,
    }
)


class Tokens(HubService):
    """The tokens of AdminService. Every method raises HubbubError."""

    async def create(
        self,
        name: str,
        grants: Sequence[Grant],
        *,
        ttl_s: float | None = None,
        may_name_others: bool = False,
        hold_s: float | None = None,
    ) -> NewToken:
        """Create a token that is valid for `ttl_s` seconds or for ever, and return it with its secret.

        `may_name_others` lets it act under the names of others (`name` of `connect`). Requests of MCP hosts with it are
        held for `hold_s` seconds while people are asked; by default the host's profile decides. Raises
        ValueError for a `ttl_s` below one microsecond.
        """
        ttl = None if ttl_s is None else to_duration(ttl_s)
        if ttl is not None and ttl.ToMicroseconds() <= 0:  # zero means for ever in the API
            raise ValueError(f"ttl_s must be more than 0, not {ttl_s}")
        request = admin_pb2.CreateTokenRequest(
            name=name,
            grants=[
                admin_pb2.AccessGrant(role=enum_number(_ROLES, grant.role), servers=grant.servers) for grant in grants
            ],
            ttl=ttl,
            may_name_others=may_name_others,
            hold=None if hold_s is None else to_duration(hold_s),
        )
        return read(NewToken, await self._connection.call(lambda hub: hub.admin.CreateToken, request))

    async def list(self, limit: int | None = None) -> Sequence[Token]:
        """Return all tokens, newest first, with the expired ones."""

        async def fetch_page(page_fields: PageFields) -> tuple[Sequence[Token], str]:
            """Return the records of one page, and the token of the next page; "" after the last."""
            request = admin_pb2.ListTokensRequest(**page_fields)
            response = await self._connection.call(lambda hub: hub.admin.ListTokens, request)
            return [read(Token, each) for each in response.tokens], response.next_page_token

        return await fetch_pages(fetch_page, limit)

    async def revoke(self, name: str) -> Token:
        """Revoke a token and return it; calls and streams that are open with it end."""
        request = admin_pb2.RevokeTokenRequest(name=name)
        return read(Token, (await self._connection.call(lambda hub: hub.admin.RevokeToken, request)).token)
