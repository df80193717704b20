"""`hub.approvals`: the rules by which calls wait for approval, and the approvals that are remembered.

Approvals themselves are pending requests: `hub.inbox.approve` and `deny`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from hubbub.v1 import approval_pb2
from hubbub_client import payload
from hubbub_client.data.conversion import read
from hubbub_client.data.records import RECORDS, Record
from hubbub_client.services.pages import PageFields, fetch_pages
from hubbub_client.services.service import HubService
from hubbub_shared.durations import to_duration

ApprovalAction = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, kw_only=True)
class ApprovalRule(Record):
    """A rule. `preset` is the option from which it was made, None for a rule of the file."""

    name: str
    servers: tuple[str, ...]
    tools: tuple[str, ...]
    when: str | None
    action: ApprovalAction
    needed: int
    not_by_caller: bool
    approvers: tuple[str, ...]
    edit: bool
    remember_ms: tuple[int, ...]
    message: str | None
    preset: str | None


@dataclass(frozen=True, kw_only=True)
class ApprovalRules(Record):
    """The rules in their order: the first that matches a call counts, else `default_action`."""

    rules: tuple[ApprovalRule, ...]
    default_action: ApprovalAction
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RememberedApproval(Record):
    """An approval that also holds for later calls of a tool by a caller; with `arguments` for these only."""

    id: str
    server: str
    tool: str
    caller: str
    rule: str
    approved_by: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    arguments: Any
    pending_request_id: str | None


@dataclass(frozen=True, kw_only=True)
class ApprovalCheck(Record):
    """The decision of the rules on a call, and why. `rule` is None if the default decides."""

    action: ApprovalAction
    rule: ApprovalRule | None
    reason: str
    remembered_id: str | None


@dataclass(frozen=True, kw_only=True)
class ReplayedCalls(Record):
    """Similar calls, and the decision of rules on them. `callers` are at most 20 of those who made them.

    `rule` is None for the default; `server` and `tool` are None in rows of calls that are allowed, one per rule. No
    `approvers` means everybody with the permission to approve.
    """

    rule: str | None
    action: ApprovalAction
    server: str | None
    tool: str | None
    calls: int
    callers: tuple[str, ...]
    problems: int
    approvers: tuple[str, ...]
    newest_call_id: str


@dataclass(frozen=True, kw_only=True)
class ApprovalReplay(Record):
    """The decisions of rules on the calls in the history; `asked` and `denied` are numbers of calls."""

    rows: tuple[ReplayedCalls, ...]
    calls: int
    asked: int
    denied: int
    warnings: tuple[str, ...]


# Registered here, so that the converter finds the record of each message.
RECORDS.update({"ApprovalRule": ApprovalRule, "RememberedApproval": RememberedApproval, "Row": ReplayedCalls})


class Approvals(HubService):
    """ApprovalService. Every method raises HubbubError."""

    async def list(self, *, server: str | None = None, limit: int | None = None) -> Sequence[RememberedApproval]:
        """Return the remembered approvals that hold, newest first."""

        async def fetch_page(page_fields: PageFields) -> tuple[Sequence[RememberedApproval], str]:
            """Return the records of one page, and the token of the next page; "" after the last."""
            condition = approval_pb2.RememberedApprovalFilter(server=server or "")
            request = approval_pb2.ListRememberedApprovalsRequest(filter=condition, **page_fields)
            response = await self._connection.call(lambda hub: hub.approvals.ListRememberedApprovals, request)
            return [read(RememberedApproval, each) for each in response.approvals], response.next_page_token

        return await fetch_pages(fetch_page, limit)

    async def revoke(self, id: str) -> RememberedApproval:  # noqa: A002 - the field's name
        """Forget a remembered approval and return it: people are asked about the next such call again."""
        request = approval_pb2.RevokeRememberedApprovalRequest(id=id)
        response = await self._connection.call(lambda hub: hub.approvals.RevokeRememberedApproval, request)
        return read(RememberedApproval, response.approval)

    async def rules(self) -> ApprovalRules:
        """Return the rules."""
        request = approval_pb2.GetApprovalRulesRequest()
        return read(ApprovalRules, await self._connection.call(lambda hub: hub.approvals.GetApprovalRules, request))

    async def check(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        caller: str | None = None,
        roles: Sequence[str] = (),
        host: str | None = None,
        profile: str | None = None,
    ) -> ApprovalCheck:
        """Return the decision of the rules on a call of a tool, without making it. By default you are its `caller`."""
        request = approval_pb2.CheckApprovalRequest(
            server=server,
            tool=tool,
            arguments=b"" if arguments is None else payload.dumps(arguments),
            caller=caller or "",
            roles=roles,
            host=host or "",
            profile=profile or "",
        )
        return read(ApprovalCheck, await self._connection.call(lambda hub: hub.approvals.CheckApproval, request))

    async def replay(
        self, *, server: str | None = None, since_s: float | None = None, rules: str | None = None
    ) -> ApprovalReplay:
        """Return what rules would have decided on the calls in the history, or on those of the last `since_s` seconds.

        `rules` is the table `[approvals]` in TOML; without it the rules in use are tried.
        """
        request = approval_pb2.ReplayApprovalsRequest(
            server=server or "", since=None if since_s is None else to_duration(since_s), rules=rules or ""
        )
        return read(ApprovalReplay, await self._connection.call(lambda hub: hub.approvals.ReplayApprovals, request))
