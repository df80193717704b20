"""Bad input to every RPC: a clear status with details, nothing changed, the hub alive."""

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1 import (
    admin_pb2,
    approval_pb2,
    call_pb2,
    catalog_pb2,
    common_pb2,
    event_pb2,
    inbox_pb2,
    mcp_pb2,
    server_pb2,
    task_pb2,
)
from hubbubd.core.filters import CallFilter, RequestFilter, TaskFilter
from hubbubd.rpc.listeners.grpc_server import SERVICES
from hubbubd.runtime.hub import Hub

from ..config.test_allowances import ODD
from .conftest import Caller, spec_of

METHODS: dict[str, MethodDescriptor] = {m.name: m for service in SERVICES.values() for m in service.methods}
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)

INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISSING = grpc.StatusCode.NOT_FOUND
GET_STATUS = METHODS["GetStatus"]


@pytest.fixture(autouse=True)
async def unharmed(shared_hub: Hub, shared_api: Caller) -> Any:
    """The hub answers as before, and has nothing that it had not."""
    yield
    assert (await shared_api(GET_STATUS, admin_pb2.GetStatusRequest())).pid
    assert [server.name for server in shared_hub.servers.all()] == ["away"]
    assert shared_hub.calls.select(CallFilter()) == []
    assert shared_hub.inbox.select(RequestFilter()) == []
    assert shared_hub.tasks.select(TaskFilter()) == []


@EVERY
async def test_bytes_that_are_no_message_are_refused(shared_api: Caller, method: MethodDescriptor) -> None:
    refusal = await shared_api.refused(method, b"\xff\xff\xff\xff")
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED_REQUEST")
    assert method.input_type.full_name in refusal.message


@EVERY
async def test_a_request_that_is_a_little_too_long_is_refused_with_the_limit(
    shared_api: Caller, method: MethodDescriptor
) -> None:
    refusal = await shared_api.refused(method, unknown_field(1024 * 1024 + 1))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    assert "1048576" in refusal.message


@EVERY
async def test_a_request_that_is_much_too_long_is_not_even_read(shared_api: Caller, method: MethodDescriptor) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shared_api.raw(method, unknown_field(2 * 1024 * 1024 + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def unknown_field(size: int) -> bytes:
    """A well-formed message with one long field that no message has."""
    return varint(9999 << 3 | 2) + varint(size) + b"x" * size


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


# Fields for which every text is right: a watch resumes from what it can, and people write what they like.
FREE = {"resume_token", "text"}


def text_fields(*, but: set[str] | frozenset[str] = frozenset()) -> list[Any]:
    return [
        pytest.param(method, field, id=f"{method.name}.{field.name}")
        for method in METHODS.values()
        for field in method.input_type.fields
        if field.type == FieldDescriptor.TYPE_STRING and field.name not in but
    ]


@pytest.mark.parametrize(("method", "field"), text_fields())
async def test_text_that_is_no_utf_8_is_refused(
    shared_api: Caller, method: MethodDescriptor, field: FieldDescriptor
) -> None:
    refusal = await shared_api.refused(method, varint(field.number << 3 | 2) + b"\x02\xc3\x28")
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED_REQUEST")


LONGEST = {"uri": 8192, "tool": 256}
LONG = "one character more than it may have"


@pytest.mark.parametrize("value", [LONG, "a\nb", "a\x00b"], ids=["long", "newline", "null"])
@pytest.mark.parametrize(("method", "field"), text_fields(but=FREE))
async def test_a_name_of_the_wrong_shape_is_refused_by_field(
    shared_api: Caller, method: MethodDescriptor, field: FieldDescriptor, value: str
) -> None:
    if value is LONG:
        value = "x" * (LONGEST.get(field.name, 128) + 1)
    request = GetMessageClass(method.input_type)()
    for other in method.input_type.fields:
        if other.type == FieldDescriptor.TYPE_STRING and other.name not in FREE and not is_list(other):
            setattr(request, other.name, "x")
    if method.name == "AnswerPendingRequest":
        request.decline.SetInParent()
    if is_list(field):
        getattr(request, field.name).append(value)
    else:
        setattr(request, field.name, value)
    refusal = await shared_api.refused(method, request)
    assert refusal.code is INVALID
    assert [path.partition(".")[0] for path in refusal.violations] == [field.name]


def is_list(field: FieldDescriptor) -> bool:
    return isinstance(getattr(GetMessageClass(field.containing_type)(), field.name), str) is False


PAGED = {
    "ListServers",
    "ListPendingRequests",
    "ListCalls",
    "ListTasks",
    "ListCatalogEntries",
    "ListTokens",
    "ListHosts",
    "ListAuditEntries",
    "ListRememberedApprovals",
}


WATCHES = [name for name, method in METHODS.items() if "resume_token" in method.input_type.fields_by_name]


@pytest.mark.parametrize("token", ["x", "????", "ä", "bm90IG91cnM", "A" * 5000, "\x00"])
@pytest.mark.parametrize("rpc", WATCHES)
async def test_a_watch_with_a_token_that_is_none_starts_over_and_says_so(
    shared_api: Caller, rpc: str, token: str
) -> None:
    request = GetMessageClass(METHODS[rpc].input_type)(resume_token=token)
    response = await shared_api(METHODS[rpc], request)
    assert response.WhichOneof("event") == "reset"
    assert response.reset.reason == common_pb2.RESET_REASON_MALFORMED


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
    ("MoveServer", GetMessageClass(METHODS["MoveServer"].input_type)(), "server"),
    *((each, GetMessageClass(METHODS[each].input_type)(member="\n"), "member") for each in OF_MEMBERS),
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


@pytest.mark.parametrize(("rpc", "request_", "violation"), WRONG)
async def test_a_wrong_field_is_named(shared_api: Caller, rpc: str, request_: Message, violation: str) -> None:
    refusal = await shared_api.refused(METHODS[rpc], request_)
    assert refusal.code is INVALID
    assert violation in refusal.violations
    assert refusal.violations[violation]


@pytest.mark.parametrize("url", ODD)
async def test_a_url_that_is_none_once_its_references_are_replaced_is_not_added(api: Caller, url: str) -> None:
    refusal = await api.refused(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec(name="new", url=url)))
    assert refusal.code is INVALID
    assert set(refusal.violations) <= {"spec", "spec.http.url"}
    assert refusal.violations


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


@pytest.mark.parametrize(("rpc", "request_", "reason"), UNKNOWN)
async def test_what_does_not_exist_is_said_not_to(shared_api: Caller, rpc: str, request_: Message, reason: str) -> None:
    refusal = await shared_api.refused(METHODS[rpc], request_)
    assert (refusal.code, refusal.reason) == (MISSING, reason)


async def test_every_rpc_that_takes_something_has_its_bad_input_here() -> None:
    tried = {rpc for rpc, _, _ in [*WRONG, *UNKNOWN]} | PAGED
    of_the_hub = {"GetStatus", "GetStoreStats", "CompactStore", "BackupStore", "ReloadConfig", "CheckHub", "GetSelf"}
    assert set(METHODS) - tried == of_the_hub | {
        "GetFleet",
        "TrustClock",
        "RotateVaultKey",
        "FinishUpgrade",
        "GetApprovalRules",
    }
