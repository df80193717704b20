"""Requests with a wrong field, by RPC, with the field that a refusal names; and requests for what does not exist."""

from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from hubbub.v1 import (
    admin_pb2,
    approval_pb2,
    call_pb2,
    catalog_pb2,
    event_pb2,
    fleet_pb2,
    inbox_pb2,
    mcp_pb2,
    server_pb2,
    task_pb2,
)

from .conftest import spec_of


def spec(**more: Any) -> server_pb2.ServerSpec:
    return spec_of(**({"name": "new", "url": "http://127.0.0.1:9"} | more))


def of_variant(number: Any) -> server_pb2.ServerSpec:
    made = spec()
    made.http.variant = number
    return made


def fixed(*roots: bytes) -> server_pb2.Roots:
    return server_pb2.Roots(fixed=server_pb2.Roots.Fixed(roots=roots))


def with_roots(*roots: bytes) -> server_pb2.ServerSpec:
    """Roots that are chosen in no way, unless some are given."""
    made = spec()
    made.roots.CopyFrom(fixed(*roots) if roots else server_pb2.Roots())
    return made


def lasting(seconds: int) -> server_pb2.ServerSpec:
    made = spec()
    made.timeouts.call.seconds = seconds
    return made


def named(*names: str) -> server_pb2.ServerFilter:
    return server_pb2.ServerFilter(names=names)


def offered(**more: Any) -> catalog_pb2.CatalogFilter:
    return catalog_pb2.CatalogFilter(**more)


def told(**more: Any) -> event_pb2.EventFilter:
    return event_pb2.EventFilter(**more)


def to_call(**more: Any) -> call_pb2.CallSpec:
    return call_pb2.CallSpec(**({"server": "away", "method": "tools/list"} | more))


def answer(**more: Any) -> inbox_pb2.AnswerPendingRequestRequest:
    return inbox_pb2.AnswerPendingRequestRequest(**({"id": "req_1"} | more))


def approve(**more: Any) -> inbox_pb2.AnswerPendingRequestRequest.Approve:
    return inbox_pb2.AnswerPendingRequestRequest.Approve(**more)


def to_check(**more: Any) -> approval_pb2.CheckApprovalRequest:
    return approval_pb2.CheckApprovalRequest(server="away", tool="t", **more)


def calls(**more: Any) -> call_pb2.CallFilter:
    return call_pb2.CallFilter(**more)


VIEWER = admin_pb2.AccessGrant(role=admin_pb2.ACCESS_ROLE_VIEWER)


def to_create(**changes: Any) -> admin_pb2.CreateTokenRequest:
    return admin_pb2.CreateTokenRequest(**{"name": "ada", "grants": [VIEWER]} | changes)


OF_MEMBERS = ("DrainMember", "ResumeMember", "ExpelMember")
TOO_MANY = [f"h{at}" for at in range(1001)]
# RPC, request, the one violation (or the reason where there is none)
WRONG: list[tuple[str, Message, str]] = [
    ("MoveServer", fleet_pb2.MoveServerRequest(), "server"),
    *((each, getattr(fleet_pb2, f"{each}Request")(member="\n"), "member") for each in OF_MEMBERS),
    ("Work", inbox_pb2.WorkRequest(), "ready"),
    ("Work", inbox_pb2.WorkRequest(skip=inbox_pb2.WorkRequest.Skip(id="x")), "ready"),
    ("Work", inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready(capacity=101)), "ready.capacity"),
    ("Work", inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready(capacity=-1)), "ready.capacity"),
    (
        "Work",
        inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready(filter=inbox_pb2.PendingRequestFilter(kinds=[9]))),
        "filter.kinds",
    ),
    ("Serve", mcp_pb2.ServeRequest(), "open"),
    ("StreamCalls", call_pb2.StreamCallsRequest(steps=[{}]), "step"),
    ("StreamCalls", call_pb2.StreamCallsRequest(steps=[{"start": {}}]), "start.id"),
    ("AddServer", server_pb2.AddServerRequest(), "spec.name"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(name="no spaces")), "spec.name"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(url="")), "spec"),
    ("AddServer", server_pb2.AddServerRequest(spec=server_pb2.ServerSpec(name="new")), "spec"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(url="ftp://x")), "spec"),
    ("AddServer", server_pb2.AddServerRequest(spec=of_variant(99)), "spec.http.variant"),
    ("AddServer", server_pb2.AddServerRequest(spec=with_roots()), "spec.roots"),
    ("AddServer", server_pb2.AddServerRequest(spec=with_roots(*[b"{}"] * 1001)), "spec.roots.fixed.roots"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(backoff_s=[-1] * 1001)), "spec.retry.backoff"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(headers=dict.fromkeys(TOO_MANY, ""))), "spec.http.headers"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(name="new", headers={"Host": "x"})), "spec.http.headers.Host"),
    ("UpdateServer", server_pb2.UpdateServerRequest(spec=spec(deny_tools=["x"] * 1001)), "spec.tools.deny"),
    ("AddServer", server_pb2.AddServerRequest(spec=lasting(2**62)), "spec.timeouts.call"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(connect_timeout_s=-1)), "spec.timeouts.connect"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(connect_timeout_s=0)), "spec.timeouts.connect"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(backoff_s=[1, 2**36])), "spec.retry.backoff.1"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(retries=-2)), "spec.retry.retries"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(max_in_flight=0)), "spec.queue.max_in_flight"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(protocol="tomorrow")), "spec.protocol_version"),
    ("UpdateServer", server_pb2.UpdateServerRequest(spec=spec(name="")), "spec.name"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(headers={"x": "**********"})), "spec.http.headers.x"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(url="http://127.0.0.1:9/?**********")), "spec.http.url"),
    ("RemoveServer", server_pb2.RemoveServerRequest(), "name"),
    ("AnswerPendingRequest", answer(result=b'{"_meta":7}'), "result._meta"),
    ("CreateToken", to_create(name=""), "name"),
    ("CreateToken", to_create(name="local"), "name"),
    ("CreateToken", to_create(name="Local"), "name"),
    ("CreateToken", to_create(name="hub"), "name"),
    ("CreateToken", to_create(name="cert:ada"), "name"),
    ("CreateToken", to_create(name="oidc:ada"), "name"),
    ("CreateToken", to_create(name="a:b"), "name"),
    ("CreateToken", to_create(name=" ada"), "name"),
    ("CreateToken", to_create(name="a\nb"), "name"),
    ("CreateToken", to_create(name="x" * 65), "name"),
    ("CreateToken", to_create(grants=[]), "grants"),
    ("CreateToken", to_create(grants=[VIEWER] * 21), "grants"),
    ("CreateToken", to_create(grants=[VIEWER, admin_pb2.AccessGrant()]), "grants.1.role"),
    ("CreateToken", to_create(grants=[admin_pb2.AccessGrant(role=9)]), "grants.0.role"),  # type: ignore[arg-type]
    ("CreateToken", to_create(grants=[admin_pb2.AccessGrant(role=1, servers=["a", ""])]), "grants.0.servers.1"),
    ("CreateToken", to_create(grants=[admin_pb2.AccessGrant(role=1, servers=["a"] * 101)]), "grants.0.servers"),
    ("CreateToken", to_create(ttl=Duration(seconds=-1)), "ttl"),
    ("CreateToken", to_create(ttl=Duration(nanos=-1000)), "ttl"),
    ("CreateToken", to_create(ttl=Duration(seconds=2**62)), "ttl"),
    ("RevokeToken", admin_pb2.RevokeTokenRequest(), "name"),
    ("ListTokens", admin_pb2.ListTokensRequest(filter=admin_pb2.TokenFilter(names=["a", ""])), "filter.names.1"),
    ("ListHosts", mcp_pb2.ListHostsRequest(filter=mcp_pb2.HostFilter(principals=[""])), "filter.principals.0"),
    ("ListHosts", mcp_pb2.ListHostsRequest(filter=mcp_pb2.HostFilter(call_ids=[""])), "filter.call_ids.0"),
    ("GetServer", server_pb2.GetServerRequest(), "name"),
    ("ConnectServer", server_pb2.ConnectServerRequest(), "name"),
    ("DisconnectServer", server_pb2.DisconnectServerRequest(), "name"),
    ("GetRoots", server_pb2.GetRootsRequest(), "name"),
    ("SetRoots", server_pb2.SetRootsRequest(), "name"),
    ("SetRoots", server_pb2.SetRootsRequest(name="away", roots=server_pb2.Roots()), "roots"),
    ("SetRoots", server_pb2.SetRootsRequest(name="away", roots=fixed(b"[]")), "roots.fixed.roots.0"),
    (
        "SetRoots",
        server_pb2.SetRootsRequest(name="away", roots=fixed(b'{"uri": "file:///x"}', b'"file:///x"')),
        "roots.fixed.roots.1",
    ),
    ("SetRoots", server_pb2.SetRootsRequest(name="away", roots=fixed(b'{"uri": "https://x"}')), "roots.fixed.roots.0"),
    (
        "SetRoots",
        server_pb2.SetRootsRequest(name="away", roots=fixed(b'{"uri": "file:///x", "name": 7}')),
        "roots.fixed.roots.0",
    ),
    ("WatchServers", server_pb2.WatchServersRequest(filter=named("away", "")), "filter.names.1"),
    ("WatchServers", server_pb2.ListServersRequest(filter=named(*map(str, range(1001)))), "filter.names"),
    (
        "WatchPendingRequests",
        inbox_pb2.WatchPendingRequestsRequest(filter=inbox_pb2.PendingRequestFilter(kinds=[99])),
        "filter.kinds",
    ),
    (
        "ListPendingRequests",
        inbox_pb2.ListPendingRequestsRequest(filter=inbox_pb2.PendingRequestFilter(states=[-1])),
        "filter.states",
    ),
    (
        "ListPendingRequests",
        inbox_pb2.ListPendingRequestsRequest(filter=inbox_pb2.PendingRequestFilter(server="x" * 200)),
        "filter.server",
    ),
    (
        "ListPendingRequests",
        inbox_pb2.ListPendingRequestsRequest(filter=inbox_pb2.PendingRequestFilter(call_id="\n")),
        "filter.call_id",
    ),
    ("GetPendingRequest", inbox_pb2.GetPendingRequestRequest(), "id"),
    ("ClaimPendingRequest", inbox_pb2.ClaimPendingRequestRequest(), "id"),
    ("ClaimPendingRequest", inbox_pb2.ClaimPendingRequestRequest(id="req_1", ttl=Duration(seconds=-1)), "ttl"),
    ("ClaimPendingRequest", inbox_pb2.ClaimPendingRequestRequest(id="req_1", ttl=Duration(nanos=-1000)), "ttl"),
    ("ClaimPendingRequest", inbox_pb2.ClaimPendingRequestRequest(id="req_1", ttl=Duration(seconds=2**63 - 1)), "ttl"),
    ("RenewClaim", inbox_pb2.RenewClaimRequest(id="req_1"), "claim_id"),
    ("RenewClaim", inbox_pb2.RenewClaimRequest(id="req_1", claim_id="c", ttl=Duration(seconds=-(2**63))), "ttl"),
    ("ReleasePendingRequest", inbox_pb2.ReleasePendingRequestRequest(id="req_1"), "claim_id"),
    ("AnswerPendingRequest", answer(), "answer"),
    ("AnswerPendingRequest", answer(id="", decline=inbox_pb2.AnswerPendingRequestRequest.Decline()), "id"),
    (
        "AnswerPendingRequest",
        answer(accept=inbox_pb2.AnswerPendingRequestRequest.Accept(content=b"{")),
        "accept.content",
    ),
    (
        "AnswerPendingRequest",
        answer(accept=inbox_pb2.AnswerPendingRequestRequest.Accept(content=b"[]")),
        "accept.content",
    ),
    (
        "AnswerPendingRequest",
        answer(accept=inbox_pb2.AnswerPendingRequestRequest.Accept(content=b'{"a":NaN}')),
        "accept.content",
    ),
    (
        "AnswerPendingRequest",
        answer(accept=inbox_pb2.AnswerPendingRequestRequest.Accept(content=b"\xff")),
        "accept.content",
    ),
    (
        "AnswerPendingRequest",
        answer(accept=inbox_pb2.AnswerPendingRequestRequest.Accept(content=b"[" * 100_000)),
        "accept.content",
    ),
    ("AnswerPendingRequest", answer(result=b"7"), "result"),
    ("AnswerPendingRequest", answer(result=b"{} {}"), "result"),
    (
        "AnswerPendingRequest",
        answer(reject=inbox_pb2.AnswerPendingRequestRequest.Reject(message="x" * 5000)),
        "reject.message",
    ),
    ("AnswerPendingRequest", answer(approve=approve(arguments=b"[]")), "approve.arguments"),
    ("AnswerPendingRequest", answer(approve=approve(arguments=b'{"a":1,}')), "approve.arguments"),
    ("AnswerPendingRequest", answer(approve=approve(remember=Duration(seconds=-1))), "approve.remember"),
    ("AnswerPendingRequest", answer(approve=approve(remember=Duration(seconds=31 * 86400))), "approve.remember"),
    ("AnswerPendingRequest", answer(approve=approve(comment="x" * 4097)), "approve.comment"),
    ("AnswerPendingRequest", answer(approve=approve(digest="x" * 129)), "approve.digest"),
    (
        "AnswerPendingRequest",
        answer(deny=inbox_pb2.AnswerPendingRequestRequest.Deny(reason="x" * 4097)),
        "deny.reason",
    ),
    (
        "ListRememberedApprovals",
        approval_pb2.ListRememberedApprovalsRequest(filter=approval_pb2.RememberedApprovalFilter(server="a\n")),
        "filter.server",
    ),
    ("RevokeRememberedApproval", approval_pb2.RevokeRememberedApprovalRequest(), "id"),
    ("CheckApproval", approval_pb2.CheckApprovalRequest(server="away"), "tool"),
    ("CheckApproval", to_check(arguments=b"7"), "arguments"),
    ("CheckApproval", to_check(caller="a\tb"), "caller"),
    ("CheckApproval", to_check(roles=["caller", ""]), "roles.1"),
    ("CheckApproval", to_check(host="h" * 129), "host"),
    ("CheckApproval", to_check(profile="\n"), "profile"),
    ("ReplayApprovals", approval_pb2.ReplayApprovalsRequest(server="\n"), "server"),
    ("ReplayApprovals", approval_pb2.ReplayApprovalsRequest(since=Duration(seconds=-1)), "since"),
    ("ReplayApprovals", approval_pb2.ReplayApprovalsRequest(rules="[approvals"), "rules"),
    ("ReplayApprovals", approval_pb2.ReplayApprovalsRequest(rules="approvals = 1"), "rules"),
    ("ReplayApprovals", approval_pb2.ReplayApprovalsRequest(rules="[[approvals.rules]]\nwhen = '1 +'"), "rules"),
    ("CallMethod", call_pb2.CallMethodRequest(), "spec.server"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(method="")), "spec.method"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(method="m" * 257)), "spec.method"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(method="tools\nlist")), "spec.method"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(params=b"{")), "spec.params"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(params=b"[1]")), "spec.params"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(params=b"\xff\xfe")), "spec.params"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(call_id="x" * 129)), "spec.call_id"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(timeout=Duration())), "spec.timeout"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(timeout=Duration(seconds=-1))), "spec.timeout"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(max_duration=Duration(seconds=2**62))), "spec.max_duration"),
    ("StartCall", call_pb2.StartCallRequest(spec=to_call(params=b"null")), "spec.params"),
    ("StartCall", call_pb2.StartCallRequest(spec=to_call(call_id="a\tb")), "spec.call_id"),
    ("WatchCalls", call_pb2.WatchCallsRequest(filter=calls(states=[99])), "filter.states"),
    ("WatchCalls", call_pb2.WatchCallsRequest(filter=calls(ids=[""])), "filter.ids.0"),
    ("GetCall", call_pb2.GetCallRequest(), "id"),
    ("ListCalls", call_pb2.ListCallsRequest(filter=calls(states=[7])), "filter.states"),
    ("CancelCall", call_pb2.CancelCallRequest(), "id"),
    ("GetQueue", call_pb2.GetQueueRequest(), "server"),
    ("ClearQueue", call_pb2.ClearQueueRequest(), "server"),
    ("ListTasks", task_pb2.ListTasksRequest(filter=task_pb2.TaskFilter(role=9)), "filter.role"),
    ("WatchTasks", task_pb2.WatchTasksRequest(filter=task_pb2.TaskFilter(statuses=[-5])), "filter.statuses"),
    ("GetTask", task_pb2.GetTaskRequest(), "id"),
    ("GetTaskResult", task_pb2.GetTaskResultRequest(), "id"),
    ("CancelTask", task_pb2.CancelTaskRequest(), "id"),
    ("ListCatalogEntries", catalog_pb2.ListCatalogEntriesRequest(filter=offered(kinds=[9])), "filter.kinds"),
    ("ListCatalogEntries", catalog_pb2.ListCatalogEntriesRequest(filter=offered(server="\n")), "filter.server"),
    ("WatchCatalogLists", catalog_pb2.WatchCatalogListsRequest(filter=offered(kinds=[1, -1])), "filter.kinds"),
    ("WatchCatalogLists", catalog_pb2.WatchCatalogListsRequest(filter=offered(server="x" * 200)), "filter.server"),
    ("RefreshCatalog", catalog_pb2.RefreshCatalogRequest(), "server"),
    ("WatchEvents", event_pb2.WatchEventsRequest(filter=told(kinds=[1, 99])), "filter.kinds"),
    ("WatchEvents", event_pb2.WatchEventsRequest(filter=told(server="a\n")), "filter.server"),
    ("TailLogs", event_pb2.TailLogsRequest(), "server"),
    ("TailLogs", event_pb2.TailLogsRequest(server="away", lines=-1), "lines"),
    ("TailLogs", event_pb2.TailLogsRequest(server="away", lines=501, follow=True), "lines"),
    ("WatchResource", event_pb2.WatchResourceRequest(uri="x://y"), "server"),
    ("WatchResource", event_pb2.WatchResourceRequest(server="away"), "uri"),
]

UNKNOWN: list[tuple[str, Message, str]] = [
    ("UpdateServer", server_pb2.UpdateServerRequest(spec=spec()), "SERVER_NOT_FOUND"),
    ("RemoveServer", server_pb2.RemoveServerRequest(name="x"), "SERVER_NOT_FOUND"),
    ("RevokeToken", admin_pb2.RevokeTokenRequest(name="x"), "TOKEN_NOT_FOUND"),
    ("GetServer", server_pb2.GetServerRequest(name="no such ☂"), "SERVER_NOT_FOUND"),
    ("ConnectServer", server_pb2.ConnectServerRequest(name="x"), "SERVER_NOT_FOUND"),
    ("DisconnectServer", server_pb2.DisconnectServerRequest(name="x"), "SERVER_NOT_FOUND"),
    ("LogOutServer", server_pb2.LogOutServerRequest(name="x"), "SERVER_NOT_FOUND"),
    ("GetPendingRequest", inbox_pb2.GetPendingRequestRequest(id="x"), "REQUEST_NOT_FOUND"),
    ("ClaimPendingRequest", inbox_pb2.ClaimPendingRequestRequest(id="x"), "REQUEST_NOT_FOUND"),
    ("RenewClaim", inbox_pb2.RenewClaimRequest(id="x", claim_id="y"), "REQUEST_NOT_FOUND"),
    ("ReleasePendingRequest", inbox_pb2.ReleasePendingRequestRequest(id="x", claim_id="y"), "REQUEST_NOT_FOUND"),
    ("AnswerPendingRequest", answer(text="hello"), "REQUEST_NOT_FOUND"),
    ("AnswerPendingRequest", answer(approve=approve()), "REQUEST_NOT_FOUND"),
    ("RevokeRememberedApproval", approval_pb2.RevokeRememberedApprovalRequest(id="x"), "APPROVAL_NOT_FOUND"),
    ("CheckApproval", approval_pb2.CheckApprovalRequest(server="x", tool="t"), "SERVER_NOT_FOUND"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(server="x")), "SERVER_NOT_FOUND"),
    ("StartCall", call_pb2.StartCallRequest(spec=to_call(server="x")), "SERVER_NOT_FOUND"),
    ("GetCall", call_pb2.GetCallRequest(id="x"), "CALL_NOT_FOUND"),
    ("CancelCall", call_pb2.CancelCallRequest(id="x", abort=True), "CALL_NOT_FOUND"),
    ("GetQueue", call_pb2.GetQueueRequest(server="x"), "SERVER_NOT_FOUND"),
    ("ClearQueue", call_pb2.ClearQueueRequest(server="x"), "SERVER_NOT_FOUND"),
    ("GetTask", task_pb2.GetTaskRequest(id="x"), "TASK_NOT_FOUND"),
    ("GetTaskResult", task_pb2.GetTaskResultRequest(id="x"), "TASK_NOT_FOUND"),
    ("CancelTask", task_pb2.CancelTaskRequest(id="x"), "TASK_NOT_FOUND"),
    ("ListCatalogEntries", catalog_pb2.ListCatalogEntriesRequest(filter=offered(server="x")), "SERVER_NOT_FOUND"),
    ("RefreshCatalog", catalog_pb2.RefreshCatalogRequest(server="x"), "SERVER_NOT_FOUND"),
    ("GetRoots", server_pb2.GetRootsRequest(name="x"), "SERVER_NOT_FOUND"),
    ("SetRoots", server_pb2.SetRootsRequest(name="x", roots=fixed()), "SERVER_NOT_FOUND"),
    ("WatchEvents", event_pb2.WatchEventsRequest(filter=told(server="x")), "SERVER_NOT_FOUND"),
    ("TailLogs", event_pb2.TailLogsRequest(server="x"), "SERVER_NOT_FOUND"),
    ("WatchResource", event_pb2.WatchResourceRequest(server="x", uri="x://y"), "SERVER_NOT_FOUND"),
]
