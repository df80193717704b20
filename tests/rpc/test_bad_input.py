"""Bad input to every RPC: a clear status with details, nothing changed, the hub alive."""

import math
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, common_pb2, event_pb2, inbox_pb2, server_pb2, task_pb2
from hubbubd.core.filters import CallFilter, RequestFilter, TaskFilter
from hubbubd.rpc.server import SERVICES
from hubbubd.runtime.hub import Hub

from .conftest import Caller

METHODS: dict[str, MethodDescriptor] = {m.name: m for service in SERVICES.values() for m in service.methods}
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)

INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISSING = grpc.StatusCode.NOT_FOUND
GET_STATUS = METHODS["GetStatus"]


@pytest.fixture(autouse=True)
async def unharmed(hub: Hub, api: Caller) -> Any:
    """The hub answers as before, and has nothing that it had not."""
    yield
    assert (await api(GET_STATUS, admin_pb2.GetStatusRequest())).pid
    assert [server.name for server in hub.servers.all()] == ["away"]
    assert hub.calls.select(CallFilter()) == []
    assert hub.inbox.select(RequestFilter()) == []
    assert hub.tasks.select(TaskFilter()) == []


@EVERY
async def test_bytes_that_are_no_message_are_refused(api: Caller, method: MethodDescriptor) -> None:
    refusal = await api.refused(method, b"\xff\xff\xff\xff")
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED_REQUEST")
    assert method.input_type.full_name in refusal.message


@EVERY
async def test_a_request_that_is_a_little_too_long_is_refused_with_the_limit(
    api: Caller, method: MethodDescriptor
) -> None:
    refusal = await api.refused(method, unknown_field(1024 * 1024 + 1))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    assert "1048576" in refusal.message


@EVERY
async def test_a_request_that_is_much_too_long_is_not_even_read(api: Caller, method: MethodDescriptor) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await api.raw(method, unknown_field(8 * 1024 * 1024))
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
async def test_text_that_is_no_utf_8_is_refused(api: Caller, method: MethodDescriptor, field: FieldDescriptor) -> None:
    refusal = await api.refused(method, varint(field.number << 3 | 2) + b"\x02\xc3\x28")
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED_REQUEST")


LONGEST = {"uri": 8192}
LONG = "one character more than it may have"


@pytest.mark.parametrize("value", [LONG, "a\nb", "a\x00b"], ids=["long", "newline", "null"])
@pytest.mark.parametrize(("method", "field"), text_fields(but=FREE))
async def test_a_name_of_the_wrong_shape_is_refused_by_field(
    api: Caller, method: MethodDescriptor, field: FieldDescriptor, value: str
) -> None:
    if value is LONG:
        value = "x" * (LONGEST.get(field.name, 128) + 1)
    request = GetMessageClass(method.input_type)()
    for other in method.input_type.fields:
        if other.type == FieldDescriptor.TYPE_STRING and other.name not in FREE and not is_list(other):
            setattr(request, other.name, "x")
    if method.name == "AnswerRequest":
        request.decline.SetInParent()
    if is_list(field):
        getattr(request, field.name).append(value)
    else:
        setattr(request, field.name, value)
    refusal = await api.refused(method, request)
    assert refusal.code is INVALID
    assert [path.partition(".")[0] for path in refusal.violations] == [field.name]


def is_list(field: FieldDescriptor) -> bool:
    return isinstance(getattr(GetMessageClass(field.containing_type)(), field.name), str) is False


PAGED = {"ListServers", "ListRequests", "ListCalls", "ListTasks", "ListCatalog", "ListTokens", "ListAudit"}


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
@pytest.mark.parametrize("rpc", sorted(PAGED))
async def test_a_page_has_a_size_between_0_and_1000(api: Caller, rpc: str, size: int) -> None:
    refusal = await api.refused(METHODS[rpc], paged(rpc, common_pb2.Page(size=size)))
    assert (refusal.code, list(refusal.violations)) == (INVALID, ["page.size"])


@pytest.mark.parametrize("token", ["x", "????", "W10", "bnVsbA", "ä", "WyJ4IiwwLCJ4Il0", "A" * 5000])
@pytest.mark.parametrize("rpc", sorted(PAGED))
async def test_a_page_token_that_is_none_is_refused(api: Caller, rpc: str, token: str) -> None:
    refusal = await api.refused(METHODS[rpc], paged(rpc, common_pb2.Page(token=token)))
    assert (refusal.code, refusal.reason, list(refusal.violations)) == (INVALID, "PAGE_TOKEN_INVALID", ["page.token"])


def paged(rpc: str, page: common_pb2.Page) -> Message:
    return GetMessageClass(METHODS[rpc].input_type)(page=page)


WATCHES = [name for name, method in METHODS.items() if "resume_token" in method.input_type.fields_by_name]


@pytest.mark.parametrize("token", ["x", "????", "ä", "bm90IG91cnM", "A" * 5000, "\x00"])
@pytest.mark.parametrize("rpc", WATCHES)
async def test_a_watch_with_a_token_that_is_none_starts_over_and_says_so(api: Caller, rpc: str, token: str) -> None:
    request = GetMessageClass(METHODS[rpc].input_type)(resume_token=token)
    response = await api(METHODS[rpc], request)
    assert response.WhichOneof("event") == "reset"
    assert response.reset.reason == "MALFORMED"


def spec(**more: Any) -> server_pb2.ServerSpec:
    return server_pb2.ServerSpec(**({"name": "new", "url": "http://127.0.0.1:9"} | more))


def to_call(**more: Any) -> call_pb2.CallSpec:
    return call_pb2.CallSpec(**({"server": "away", "method": "tools/list"} | more))


def answer(**more: Any) -> inbox_pb2.AnswerRequestRequest:
    return inbox_pb2.AnswerRequestRequest(**({"id": "req_1"} | more))


def calls(**more: Any) -> call_pb2.CallFilter:
    return call_pb2.CallFilter(**more)


VIEWER = admin_pb2.Grant(role=admin_pb2.ROLE_VIEWER)


def to_create(**changes: Any) -> admin_pb2.CreateTokenRequest:
    return admin_pb2.CreateTokenRequest(**{"name": "ada", "grants": [VIEWER]} | changes)


# RPC, request, the one violation (or the reason where there is none)
WRONG: list[tuple[str, Message, str]] = [
    ("Work", inbox_pb2.WorkRequest(), "ready"),
    ("Work", inbox_pb2.WorkRequest(skip=inbox_pb2.Skip(id="x")), "ready"),
    ("Work", inbox_pb2.WorkRequest(ready=inbox_pb2.Ready(capacity=101)), "ready.capacity"),
    ("Work", inbox_pb2.WorkRequest(ready=inbox_pb2.Ready(filter=inbox_pb2.RequestFilter(kinds=[9]))), "filter.kinds"),
    ("AddServer", server_pb2.AddServerRequest(), "spec.name"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(name="no spaces")), "spec.name"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(url="")), "spec"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(command="x")), "spec"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(url="ftp://x")), "spec"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(transport=99)), "spec.transport"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(roots="everything")), "spec.roots"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(roots="[" + "7," * 1000 + "7]")), "spec.roots"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(backoff_s=[-1] * 1001)), "spec.backoff_s"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(headers={f"h{at}": "" for at in range(1001)})), "spec.headers"),
    ("UpdateServer", server_pb2.UpdateServerRequest(spec=spec(args=["x"] * 1001)), "spec.args"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(call_timeout_s=math.nan)), "spec.call_timeout_s"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(connect_timeout_s=-1)), "spec.connect_timeout_s"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(connect_timeout_s=0)), "spec.connect_timeout_s"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(backoff_s=[1, math.inf])), "spec.backoff_s.1"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(retries=-2)), "spec.retries"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(max_in_flight=0)), "spec.max_in_flight"),
    ("AddServer", server_pb2.AddServerRequest(spec=spec(protocol="tomorrow")), "spec.protocol"),
    ("UpdateServer", server_pb2.UpdateServerRequest(spec=spec(name="")), "spec.name"),
    ("RemoveServer", server_pb2.RemoveServerRequest(), "name"),
    ("AnswerRequest", answer(result=b'{"_meta":7}'), "result._meta"),
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
    ("CreateToken", to_create(grants=[VIEWER, admin_pb2.Grant()]), "grants.1.role"),
    ("CreateToken", to_create(grants=[admin_pb2.Grant(role=9)]), "grants.0.role"),  # type: ignore[arg-type]
    ("CreateToken", to_create(grants=[admin_pb2.Grant(role=1, servers=["a", ""])]), "grants.0.servers.1"),
    ("CreateToken", to_create(grants=[admin_pb2.Grant(role=1, servers=["a"] * 101)]), "grants.0.servers"),
    ("CreateToken", to_create(ttl_s=-1), "ttl_s"),
    ("CreateToken", to_create(ttl_s=math.nan), "ttl_s"),
    ("CreateToken", to_create(ttl_s=math.inf), "ttl_s"),
    ("RevokeToken", admin_pb2.RevokeTokenRequest(), "name"),
    ("GetServer", server_pb2.GetServerRequest(), "name"),
    ("ConnectServer", server_pb2.ConnectServerRequest(), "name"),
    ("DisconnectServer", server_pb2.DisconnectServerRequest(), "name"),
    ("GetRoots", server_pb2.GetRootsRequest(), "name"),
    ("SetRoots", server_pb2.SetRootsRequest(roots="[]"), "name"),
    ("SetRoots", server_pb2.SetRootsRequest(name="away", roots="everything"), "roots"),
    ("SetRoots", server_pb2.SetRootsRequest(name="away", roots="{}"), "roots"),
    ("SetRoots", server_pb2.SetRootsRequest(name="away", roots='["file:///x"]'), "roots"),
    ("SetRoots", server_pb2.SetRootsRequest(name="away", roots='[{"uri": "https://x"}]'), "roots"),
    ("SetRoots", server_pb2.SetRootsRequest(name="away", roots='[{"uri": "file:///x", "name": 7}]'), "roots"),
    ("WatchServers", server_pb2.WatchServersRequest(names=["away", ""]), "names.1"),
    ("WatchServers", server_pb2.WatchServersRequest(names=[f"s{n}" for n in range(1001)]), "names"),
    ("WatchInbox", inbox_pb2.WatchInboxRequest(filter=inbox_pb2.RequestFilter(kinds=[99])), "filter.kinds"),
    ("ListRequests", inbox_pb2.ListRequestsRequest(filter=inbox_pb2.RequestFilter(states=[-1])), "filter.states"),
    ("ListRequests", inbox_pb2.ListRequestsRequest(filter=inbox_pb2.RequestFilter(server="x" * 200)), "filter.server"),
    ("ListRequests", inbox_pb2.ListRequestsRequest(filter=inbox_pb2.RequestFilter(call_id="\n")), "filter.call_id"),
    ("GetRequest", inbox_pb2.GetRequestRequest(), "id"),
    ("ClaimRequest", inbox_pb2.ClaimRequestRequest(), "id"),
    ("ClaimRequest", inbox_pb2.ClaimRequestRequest(id="req_1", ttl_s=-1), "ttl_s"),
    ("ClaimRequest", inbox_pb2.ClaimRequestRequest(id="req_1", ttl_s=math.nan), "ttl_s"),
    ("ClaimRequest", inbox_pb2.ClaimRequestRequest(id="req_1", ttl_s=math.inf), "ttl_s"),
    ("RenewClaim", inbox_pb2.RenewClaimRequest(id="req_1"), "claim_id"),
    ("RenewClaim", inbox_pb2.RenewClaimRequest(id="req_1", claim_id="c", ttl_s=-math.inf), "ttl_s"),
    ("ReleaseRequest", inbox_pb2.ReleaseRequestRequest(id="req_1"), "claim_id"),
    ("AnswerRequest", answer(), "answer"),
    ("AnswerRequest", answer(id="", decline=inbox_pb2.Decline()), "id"),
    ("AnswerRequest", answer(accept=inbox_pb2.Accept(content=b"{")), "accept.content"),
    ("AnswerRequest", answer(accept=inbox_pb2.Accept(content=b"[]")), "accept.content"),
    ("AnswerRequest", answer(accept=inbox_pb2.Accept(content=b'{"a":NaN}')), "accept.content"),
    ("AnswerRequest", answer(accept=inbox_pb2.Accept(content=b"\xff")), "accept.content"),
    ("AnswerRequest", answer(accept=inbox_pb2.Accept(content=b"[" * 100_000)), "accept.content"),
    ("AnswerRequest", answer(result=b"7"), "result"),
    ("AnswerRequest", answer(result=b"{} {}"), "result"),
    ("AnswerRequest", answer(reject=inbox_pb2.Reject(message="x" * 5000)), "reject.message"),
    ("CallMethod", call_pb2.CallMethodRequest(), "spec.server"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(method="")), "spec.method"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(method="m" * 257)), "spec.method"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(method="tools\nlist")), "spec.method"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(params=b"{")), "spec.params"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(params=b"[1]")), "spec.params"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(params=b"\xff\xfe")), "spec.params"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(call_id="x" * 129)), "spec.call_id"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(timeout_s=0)), "spec.timeout_s"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(timeout_s=math.nan)), "spec.timeout_s"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(max_s=math.inf)), "spec.max_s"),
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
    ("ListCatalog", catalog_pb2.ListCatalogRequest(kind=9), "kind"),
    ("ListCatalog", catalog_pb2.ListCatalogRequest(server="\n"), "server"),
    ("WatchCatalog", catalog_pb2.WatchCatalogRequest(kinds=[1, -1]), "kinds"),
    ("WatchCatalog", catalog_pb2.WatchCatalogRequest(server="x" * 200), "server"),
    ("RefreshCatalog", catalog_pb2.RefreshCatalogRequest(), "server"),
    ("WatchEvents", event_pb2.WatchEventsRequest(kinds=[1, 99]), "kinds"),
    ("WatchEvents", event_pb2.WatchEventsRequest(server="a\n"), "server"),
    ("TailLogs", event_pb2.TailLogsRequest(), "server"),
    ("TailLogs", event_pb2.TailLogsRequest(server="away", lines=-1), "lines"),
    ("TailLogs", event_pb2.TailLogsRequest(server="away", lines=501, follow=True), "lines"),
    ("WatchResource", event_pb2.WatchResourceRequest(uri="x://y"), "server"),
    ("WatchResource", event_pb2.WatchResourceRequest(server="away"), "uri"),
]


@pytest.mark.parametrize(("rpc", "request_", "violation"), WRONG)
async def test_a_wrong_field_is_named(api: Caller, rpc: str, request_: Message, violation: str) -> None:
    refusal = await api.refused(METHODS[rpc], request_)
    assert refusal.code is INVALID
    assert violation in refusal.violations
    assert refusal.violations[violation]


UNKNOWN: list[tuple[str, Message, str]] = [
    ("UpdateServer", server_pb2.UpdateServerRequest(spec=spec()), "SERVER_NOT_FOUND"),
    ("RemoveServer", server_pb2.RemoveServerRequest(name="x"), "SERVER_NOT_FOUND"),
    ("RevokeToken", admin_pb2.RevokeTokenRequest(name="x"), "TOKEN_NOT_FOUND"),
    ("GetServer", server_pb2.GetServerRequest(name="no such ☂"), "SERVER_NOT_FOUND"),
    ("ConnectServer", server_pb2.ConnectServerRequest(name="x"), "SERVER_NOT_FOUND"),
    ("DisconnectServer", server_pb2.DisconnectServerRequest(name="x"), "SERVER_NOT_FOUND"),
    ("GetRequest", inbox_pb2.GetRequestRequest(id="x"), "REQUEST_NOT_FOUND"),
    ("ClaimRequest", inbox_pb2.ClaimRequestRequest(id="x"), "REQUEST_NOT_FOUND"),
    ("RenewClaim", inbox_pb2.RenewClaimRequest(id="x", claim_id="y"), "REQUEST_NOT_FOUND"),
    ("ReleaseRequest", inbox_pb2.ReleaseRequestRequest(id="x", claim_id="y"), "REQUEST_NOT_FOUND"),
    ("AnswerRequest", answer(text="hello"), "REQUEST_NOT_FOUND"),
    ("CallMethod", call_pb2.CallMethodRequest(spec=to_call(server="x")), "SERVER_NOT_FOUND"),
    ("StartCall", call_pb2.StartCallRequest(spec=to_call(server="x")), "SERVER_NOT_FOUND"),
    ("GetCall", call_pb2.GetCallRequest(id="x"), "CALL_NOT_FOUND"),
    ("CancelCall", call_pb2.CancelCallRequest(id="x", abort=True), "CALL_NOT_FOUND"),
    ("GetQueue", call_pb2.GetQueueRequest(server="x"), "SERVER_NOT_FOUND"),
    ("ClearQueue", call_pb2.ClearQueueRequest(server="x"), "SERVER_NOT_FOUND"),
    ("GetTask", task_pb2.GetTaskRequest(id="x"), "TASK_NOT_FOUND"),
    ("GetTaskResult", task_pb2.GetTaskResultRequest(id="x"), "TASK_NOT_FOUND"),
    ("CancelTask", task_pb2.CancelTaskRequest(id="x"), "TASK_NOT_FOUND"),
    ("ListCatalog", catalog_pb2.ListCatalogRequest(server="x"), "SERVER_NOT_FOUND"),
    ("RefreshCatalog", catalog_pb2.RefreshCatalogRequest(server="x"), "SERVER_NOT_FOUND"),
    ("GetRoots", server_pb2.GetRootsRequest(name="x"), "SERVER_NOT_FOUND"),
    ("SetRoots", server_pb2.SetRootsRequest(name="x", roots="ask"), "SERVER_NOT_FOUND"),
    ("WatchEvents", event_pb2.WatchEventsRequest(server="x"), "SERVER_NOT_FOUND"),
    ("TailLogs", event_pb2.TailLogsRequest(server="x"), "SERVER_NOT_FOUND"),
    ("WatchResource", event_pb2.WatchResourceRequest(server="x", uri="x://y"), "SERVER_NOT_FOUND"),
]


@pytest.mark.parametrize(("rpc", "request_", "reason"), UNKNOWN)
async def test_what_does_not_exist_is_said_not_to(api: Caller, rpc: str, request_: Message, reason: str) -> None:
    refusal = await api.refused(METHODS[rpc], request_)
    assert (refusal.code, refusal.reason) == (MISSING, reason)


async def test_every_rpc_that_takes_something_has_its_bad_input_here() -> None:
    tried = {rpc for rpc, _, _ in [*WRONG, *UNKNOWN]} | PAGED
    without_a_field = {
        "GetStatus",
        "GetStoreStats",
        "CompactStore",
        "BackupStore",
        "ReloadConfig",
        "CheckHub",
        "GetSelf",
    }
    assert set(METHODS) - tried == without_a_field


async def test_a_command_that_the_operator_did_not_allow_is_not_started(api: Caller) -> None:
    request = server_pb2.AddServerRequest(spec=server_pb2.ServerSpec(name="new", command="sh"))
    refusal = await api.refused(METHODS["AddServer"], request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED")


async def test_a_name_that_is_taken_is_refused(api: Caller) -> None:
    refusal = await api.refused(METHODS["AddServer"], server_pb2.AddServerRequest(spec=spec(name="away")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "SERVER_EXISTS")


async def test_a_server_of_a_file_is_not_changed_over_the_api(api: Caller) -> None:
    for rpc, request in (
        ("UpdateServer", server_pb2.UpdateServerRequest(spec=spec(name="away"))),
        ("RemoveServer", server_pb2.RemoveServerRequest(name="away")),
    ):
        refusal = await api.refused(METHODS[rpc], request)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SERVER_READ_ONLY")
