"""`hub.tokens`: who may use the hub, by tokens that it makes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from hubbub.v1 import admin_pb2
from hubbub_client import numbers
from hubbub_client.link import Link, Page, pages
from hubbub_client.reading import enum_number, read
from hubbub_client.records import RECORDS, Record

Role = Literal["viewer", "responder", "caller", "operator", "admin"]

_ROLES: Any = admin_pb2.AccessRole.DESCRIPTOR


@dataclass(frozen=True, kw_only=True)
class Grant(Record):
    """A role, for the servers whose names match one of the patterns (`*`, `?`, `[...]`)."""

    role: Role
    servers: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True)
class Token(Record):
    """A token of a caller, without the token itself."""

    id: str
    name: str
    grants: tuple[Grant, ...]
    may_name_others: bool
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class NewToken(Record):
    """A token that was made just now. The hub tells its secret this once."""

    token: Token
    secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Caller(Record):
    """Who one is to the hub."""

    name: str
    credential: str
    grants: tuple[Grant, ...]
    expires_at: datetime | None
    may_name_others: bool


# Where the converter looks for the record of a message.
RECORDS.update({"AccessGrant": Grant, "ApiToken": Token, "CreateTokenResponse": NewToken, "Caller": Caller})


class Tokens:
    """The tokens of AdminService. Every method raises HubbubError."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def create(
        self, name: str, grants: Sequence[Grant], *, ttl_s: float | None = None, may_name_others: bool = False
    ) -> NewToken:
        """A token, good for `ttl_s` seconds or for ever. `may_name_others` lets it speak for anybody (`connect`)."""
        request = admin_pb2.CreateTokenRequest(
            name=name,
            grants=[
                admin_pb2.AccessGrant(role=enum_number(_ROLES, grant.role), servers=grant.servers) for grant in grants
            ],
            ttl=numbers.duration(ttl_s or 0),
            may_name_others=may_name_others,
        )
        return read(NewToken, await self._link.call(lambda hub: hub.admin.CreateToken, request))

    async def list(self, limit: int | None = None) -> Sequence[Token]:
        """The tokens there are, expired ones included, newest first."""

        async def page(which: Page) -> tuple[Sequence[Token], str]:
            request = admin_pb2.ListTokensRequest(**which)
            answer = await self._link.call(lambda hub: hub.admin.ListTokens, request)
            return [read(Token, each) for each in answer.tokens], answer.next_page_token

        return await pages(page, limit)

    async def revoke(self, name: str) -> Token:
        """Forgets a token; what is open with it ends."""
        request = admin_pb2.RevokeTokenRequest(name=name)
        return read(Token, (await self._link.call(lambda hub: hub.admin.RevokeToken, request)).token)
