"""`hub.audit`: who changed what, and who was refused."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from hubbub.v1 import admin_pb2
from hubbub_client.data.conversion import read
from hubbub_client.data.records import Record
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.services.service import HubService

AuditSort = Literal["change", "answer", "refusal"]

PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class AuditEntry(Record):
    """One change or refusal; `count` is the number of equal refusals within a minute, else 1."""

    id: str
    sort: AuditSort
    created_at: datetime
    principal: str | None
    credential: str | None
    peer: str | None
    action: str
    target: str | None
    outcome: str
    count: int
    trace_id: str | None


class AuditLog(HubService):
    """The audit log of AdminService. Every method raises HubbubError."""

    async def list(
        self,
        *,
        principal: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[AuditEntry]:
        """Return the entries that match all given conditions, newest first."""
        condition = _audit_filter(principal, action, target, since)
        return await fetch_pages(partial(self._fetch_page, condition), limit)

    async def export(self, *, since: datetime | None = None) -> AsyncGenerator[AuditEntry, None]:
        """Yield all entries since a time, newest first, fetched a page at a time."""
        condition, token = _audit_filter(None, None, None, since), ""
        while True:
            entries, token = await self._fetch_page(condition, PageFields(page_size=PAGE, page_token=token))
            for entry in entries:
                yield entry
            if not token:
                return

    async def _fetch_page(
        self, condition: admin_pb2.AuditFilter, page_fields: PageFields
    ) -> tuple[Sequence[AuditEntry], str]:
        """Return one page of entries, and the token of the next; empty after the last."""
        request = admin_pb2.ListAuditEntriesRequest(filter=condition, **page_fields)
        response = await self._connection.call(lambda hub: hub.admin.ListAuditEntries, request)
        return [read(AuditEntry, each) for each in response.entries], response.next_page_token


def _audit_filter(
    principal: str | None, action: str | None, target: str | None, since: datetime | None
) -> admin_pb2.AuditFilter:
    """Return a filter for entries that match all given conditions; a condition that is None matches all."""
    condition = admin_pb2.AuditFilter(principal=principal or "", action=action or "", target=target or "")
    if since is not None:
        condition.earliest_created_at.FromDatetime(since)
    return condition
