"""The remembered approvals: made with the answer of a pending request, in its commit; listed and revoked."""

import secrets
from collections.abc import Sequence
from typing import Any, Final

from hubbubd import payload
from hubbubd.config.sections.approvals import ApprovalRule
from hubbubd.core.approvals.remembered import RememberedApproval
from hubbubd.core.inbox.request_states import PendingRequest, RequestState
from hubbubd.runtime.records import Change, Ledger, RecordReader, Table
from hubbubd.timing.clock import Clock

MAX_PER_SERVER: Final = 1000
"""The most remembered approvals of one server; one more replaces the oldest."""


class RememberedApprovals(RecordReader[RememberedApproval]):
    """The remembered approvals of all servers. Expired ones are deleted when a new one is made."""

    def __init__(self, ledger: Ledger, table: Table[RememberedApproval], clock: Clock) -> None:
        super().__init__(table)
        self._ledger = ledger
        self._clock = clock
        self._by_server: dict[str, dict[str, RememberedApproval]] = {}
        table.follow(self._update_index)
        table.for_each(lambda approval: self._update_index(None, approval))

    def list_valid(self) -> list[RememberedApproval]:
        """Return the remembered approvals that have not expired, newest first."""
        now = self._clock.now()
        valid = [approval for approval in self._table if now < approval.expires_at]
        return sorted(valid, key=lambda approval: (approval.created_at, approval.id), reverse=True)

    def find_for(
        self,
        server: str,
        tool: str,
        caller: str,
        rule: ApprovalRule,
        definition: str,
        digest: str,
        *,
        folder: str = "",
    ) -> RememberedApproval | None:
        """Return a remembered approval that suffices for a call (`RememberedApproval.covers`); None without one.

        `definition` is the digest of the tool's definition, `digest` that of the arguments.
        """
        now = self._clock.now()
        for approval in self._by_server.get(server, {}).values():
            if approval.covers(tool, caller, rule, definition, digest, now, folder=folder):
                return approval
        return None

    async def revoke(self, approval_id: str) -> RememberedApproval:
        """Delete a remembered approval, durably, and return it. Raises NotFound and Unavailable."""

        def plan_revocation() -> tuple[RememberedApproval, Sequence[Change[Any]]]:
            return self.get(approval_id), [self._table.change(approval_id, None)]

        return await self._ledger.transact(plan_revocation)

    def changes_by_answer(self, request: PendingRequest) -> list[Change[Any]]:
        """Return the changes that remember an approval, for the commit of its answer; none if it is for one call."""
        if request.state is not RequestState.ANSWERED or request.answer is None:
            return []
        answer = payload.loads(request.answer.payload)
        remember_s = answer.get("remember_s", 0.0)
        if not remember_s:
            return []
        document, now = payload.loads(request.request), self._clock.now()
        arguments = answer.get("arguments", document["arguments"]) if answer["same_arguments"] else None
        approval = RememberedApproval(
            id=f"apv_{secrets.token_hex(8)}",
            server=request.server,
            tool=document["tool"]["name"],
            caller=request.principal or "",
            rule=document["rule"]["name"],
            terms=document["rule"]["terms"],
            definition=document["definition"],
            approved_by=tuple(vote.by for vote in request.votes),
            created_at=now,
            expires_at=now + remember_s,
            request_id=request.id,
            folder=document.get("cwd", ""),
            arguments=None if arguments is None else payload.dumps(arguments),
            arguments_digest="" if arguments is None else request.votes[-1].digest,  # of what is sent, secrets and all
        )
        return [
            *(self._table.change(old.id, None) for old in self._find_superfluous(request.server, now)),
            self._table.new(approval.id, approval),
        ]

    def _find_superfluous(self, server: str, now: float) -> list[RememberedApproval]:
        """Return the expired approvals of a server, and the oldest others beyond the limit when one more is made."""
        by_age = sorted(self._by_server.get(server, {}).values(), key=lambda approval: approval.created_at)
        valid = [approval for approval in by_age if now < approval.expires_at]
        expired = [approval for approval in by_age if now >= approval.expires_at]
        return [*expired, *valid[: max(0, len(valid) + 1 - MAX_PER_SERVER)]]

    def _update_index(self, before: RememberedApproval | None, after: RememberedApproval | None) -> None:
        """Keep the index by server in step with the table."""
        if before is not None:
            server_approvals = self._by_server.get(before.server, {})
            server_approvals.pop(before.id, None)
            if not server_approvals:
                self._by_server.pop(before.server, None)
        if after is not None:
            self._by_server.setdefault(after.server, {})[after.id] = after
