"""The columns of tables: what stands in them, by the class of the record."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hubbub_client.data.records import Server
from hubbub_frontend.display.hosts import stream_state
from hubbub_frontend.display.records import (
    call_state,
    describe_fault,
    describe_queue,
    last_stderr_line,
    question_line,
    relative_time,
    request_state,
    short_call_title,
)
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_client.services.tokens import Caller, Token


def describe_trouble(server: Server) -> str:
    """Return what is wrong with a server, and which command helps; empty if nothing is wrong."""
    parts = [describe_fault(server.error)] if server.error else []
    if server.error and last_stderr_line(server.error):
        parts.append(with_hub_options(f"more: hubbub logs {server.name}"))
    if server.gave_up:
        parts.append(with_hub_options(f"gave up; try again: hubbub servers connect {server.name}"))
    return "; ".join(parts)


def _describe_grants(holder: "Caller | Token") -> str:
    """Return the roles of a caller or a token, each with the servers that it is for."""
    return ", ".join(f"{grant.role} of {' '.join(grant.servers)}" for grant in holder.grants)


Columns = Mapping[str, Callable[[Any], str | None]]

# Columns of each class of records, in tables and in the lines of a watch.
COLUMNS: dict[str, Columns] = {
    "Server": {
        "name": lambda it: it.name,
        "state": lambda it: it.state,
        "transport": lambda it: it.transport,
        "protocol": lambda it: it.protocol_version,
        "queue": lambda it: describe_queue(it.queue),
        "retry": lambda it: "gave up" if it.gave_up else relative_time(it.next_retry_at),
        "error": lambda it: describe_trouble(it) or None,
    },
    "PendingRequest": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "kind": lambda it: it.kind,
        "state": request_state,
        "came": lambda it: relative_time(it.created_at),
        "expires": lambda it: relative_time(it.deadline) if it.state == "open" else "-",
        "question": question_line,
    },
    "Call": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "call": lambda it: short_call_title(it),
        "state": call_state,
        "came": lambda it: relative_time(it.created_at),
        "asks": lambda it: str(len(it.pending_ids)) if it.state == "waiting_input" else None,
        "error": lambda it: it.error and describe_fault(it.error),
    },
    "Task": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "role": lambda it: it.role,
        "status": lambda it: it.status,
        "method": lambda it: it.method,
        "came": lambda it: relative_time(it.created_at),
        "message": lambda it: it.status_message,
    },
    "CatalogList": {
        "server": lambda it: it.server,
        "kind": lambda it: it.kind,
        "freshness": lambda it: it.freshness,
        "count": lambda it: str(it.count),
        "fetched": lambda it: relative_time(it.fetched_at),
        "error": lambda it: it.error and describe_fault(it.error),
    },
    "Caller": {
        "name": lambda it: it.name,
        "grants": lambda it: _describe_grants(it),
        "credential": lambda it: it.credential,
        "expires": lambda it: relative_time(it.expires_at),
        "names others": lambda it: "yes" if it.may_name_others else "no",
    },
    "Token": {
        "name": lambda it: it.name,
        "grants": lambda it: _describe_grants(it),
        "made": lambda it: relative_time(it.created_at),
        "by": lambda it: it.created_by,
        "for": lambda it: it.login and f"{it.login.client_name or it.login.redirect_host} at {it.login.endpoint}",
        "expires": lambda it: relative_time(it.expires_at),
        "used": lambda it: relative_time(it.last_used_at),
    },
    "RememberedApproval": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "tool": lambda it: it.tool,
        "caller": lambda it: it.caller,
        "rule": lambda it: it.rule,
        "by": lambda it: ", ".join(it.approved_by),
        "came": lambda it: relative_time(it.created_at),
        "expires": lambda it: relative_time(it.expires_at),
        "only with": lambda it: None if it.arguments is None else json.dumps(it.arguments, ensure_ascii=False),
    },
    "ApprovalRule": {
        "rule": lambda it: it.name,
        "servers": lambda it: " ".join(it.servers),
        "tools": lambda it: " ".join(it.tools),
        "when": lambda it: it.when,
        "action": lambda it: it.action,
        "needed": lambda it: str(it.needed) if it.action == "ask" and it.needed > 1 else None,
        "approvers": lambda it: ", ".join(it.approvers),
        "message": lambda it: it.message,
        "made by": lambda it: it.preset,
    },
    "ReplayedCalls": {
        "calls": lambda it: str(it.calls),
        "action": lambda it: it.action,
        "rule": lambda it: it.rule or "(default)",
        "server": lambda it: it.server,
        "tool": lambda it: it.tool,
        "callers": lambda it: ", ".join(it.callers),
        "approvers": lambda it: ", ".join(it.approvers),
        "failed": lambda it: str(it.problems) if it.problems else None,
        "newest": lambda it: it.newest_call_id,
    },
    "CatalogEntry": {
        "server": lambda it: it.server,
        "kind": lambda it: it.kind if it.kind != "tool" else None,
        "name": lambda it: it.name,
        "uri": lambda it: it.uri,
        "description": lambda it: it.title or it.description,
    },
    "ConnectedHost": {
        "host": lambda it: " ".join(filter(None, (it.name, it.version))),
        "principal": lambda it: it.principal,
        "sees": lambda it: it.endpoint,
        "protocol": lambda it: it.protocol_version,
        "by": lambda it: it.transport,
        "since": lambda it: relative_time(it.created_at),
        "last seen": lambda it: relative_time(it.last_used_at),
        "stream": stream_state,
        "open": lambda it: str(len(it.requests)) if it.requests else None,
        "waits for": lambda it: ", ".join(id_ for each in it.requests for id_ in each.pending_request_ids),
    },
    "FleetMember": {
        "name": lambda it: it.name,
        "state": lambda it: "overdue" if it.overdue else it.state,
        "address": lambda it: it.address,
        "version": lambda it: it.version,
        "heard": lambda it: f"{it.silent_ms / 1000:.1f} s ago",
        "lag": lambda it: str(it.lag) if it.state != "gone" else None,
        "servers": lambda it: ", ".join(it.servers) or None,
    },
    "UnownedServer": {
        "unowned": lambda it: it.server,
        "for": lambda it: f"{it.since_ms / 1000:.0f} s",
        "why": lambda it: it.why,
    },
    "Verdict": {
        "case": lambda it: it.case,
        "result": lambda it: it.result,
        "expected": lambda it: it.expected,
        "got": lambda it: it.got,
        "rule": lambda it: it.rule,
        "why": lambda it: it.why,
        "cost": lambda it: it.cost and f"{it.cost:.6g}",
    },
    "AuditEntry": {
        "came": lambda it: relative_time(it.created_at),
        "principal": lambda it: it.principal,
        "from": lambda it: it.peer,
        "action": lambda it: it.action,
        "target": lambda it: it.target,
        "outcome": lambda it: it.outcome if it.count == 1 else f"{it.outcome} x {it.count}",
    },
}

# What records are called where there are none.
NOUNS = {
    "ApprovalRule": "rules",
    "AuditEntry": "entries of the audit log",
    "Call": "calls",
    "CatalogEntry": "entries of the catalog",
    "CatalogList": "lists of the catalog",
    "ConnectedHost": "hosts",
    "FleetMember": "members",
    "PendingRequest": "pending requests",
    "RememberedApproval": "remembered approvals",
    "ReplayedCalls": "calls",
    "Server": "servers",
    "Task": "tasks",
    "Token": "tokens",
    "UnownedServer": "servers without an owner",
    "Verdict": "cases",
}
