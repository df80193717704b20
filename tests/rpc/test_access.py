"""Who may do what: every RPC, every role, for what is somebody's own and what is not."""

from collections.abc import Callable
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1 import (
    admin_pb2,
    approval_pb2,
    call_pb2,
    catalog_pb2,
    event_pb2,
    fleet_pb2,
    inbox_pb2,
    login_pb2,
    mcp_pb2,
    server_pb2,
    task_pb2,
)
from hubbubd.core.access import Role
from hubbubd.core.inbox.request_states import CauseSource

from .access_world import ANSWER, ELSEWHERE, SERVER, SOMEBODY, World, let_in, world
from .conftest import LIMIT_S, TOKEN, Caller, explain, spec_of
from .test_bad_input import METHODS

__all__ = ["world"]

V, R, AP, C, OP, A = Role
OK, DENIED, HIDDEN = "ok", "denied", "hidden"


def spec(method: str = "tools/call", server: str = SERVER) -> call_pb2.CallSpec:
    return call_pb2.CallSpec(server=server, method=method, params=b'{"name":"x"}', timeout=Duration(nanos=50_000_000))


def configured() -> server_pb2.ServerSpec:
    return spec_of(name=SERVER, transport="http", url="http://127.0.0.1:9/mcp")


# What is about the hub as a whole: who may, given the role for all servers.
OF_THE_HUB: list[tuple[str, Message, set[Role]]] = [
    ("GetStatus", admin_pb2.GetStatusRequest(), {V, R, AP, OP, A}),
    ("GetStoreStats", admin_pb2.GetStoreStatsRequest(), {A}),
    ("CompactStore", admin_pb2.CompactStoreRequest(), {A}),
    ("TrustClock", admin_pb2.TrustClockRequest(), {A}),
    ("BackupStore", admin_pb2.BackupStoreRequest(), {A}),
    ("ReloadConfig", admin_pb2.ReloadConfigRequest(), {A}),
    ("CheckHub", admin_pb2.CheckHubRequest(), {A}),
    ("CreateToken", admin_pb2.CreateTokenRequest(name="new", grants=[admin_pb2.AccessGrant(role=1)]), {A}),
    ("ListHosts", mcp_pb2.ListHostsRequest(), {V, R, AP, OP, A}),
    ("ListAuditEntries", admin_pb2.ListAuditEntriesRequest(), {A}),
    ("GetFleet", fleet_pb2.GetFleetRequest(), {V, R, AP, OP, A}),
    ("MoveServer", fleet_pb2.MoveServerRequest(server=SERVER), {A}),
    ("DrainMember", fleet_pb2.DrainMemberRequest(), {A}),
    ("ResumeMember", fleet_pb2.ResumeMemberRequest(), {A}),
    ("ExpelMember", fleet_pb2.ExpelMemberRequest(member="x"), {A}),
    ("RotateVaultKey", fleet_pb2.RotateVaultKeyRequest(), {A}),
    ("FinishUpgrade", fleet_pb2.FinishUpgradeRequest(), {A}),
]

# What is about one server: who may, given the role for that server.
OF_A_SERVER: list[tuple[str, Message, set[Role]]] = [
    ("GetServer", server_pb2.GetServerRequest(name=SERVER), {V, R, AP, C, OP, A}),
    ("UpdateServer", server_pb2.UpdateServerRequest(spec=configured()), {A}),
    ("RemoveServer", server_pb2.RemoveServerRequest(name=SERVER), {A}),
    ("ConnectServer", server_pb2.ConnectServerRequest(name=SERVER), {OP, A}),
    ("GetRoots", server_pb2.GetRootsRequest(name=SERVER), {OP, A}),
    ("SetRoots", server_pb2.SetRootsRequest(name=SERVER), {OP, A}),
    ("CallMethod", call_pb2.CallMethodRequest(spec=spec()), {C, A}),
    ("CallMethod", call_pb2.CallMethodRequest(spec=spec("logging/setLevel")), {OP, A}),
    ("CallMethod", call_pb2.CallMethodRequest(spec=spec("tasks/result")), {OP, A}),
    ("StartCall", call_pb2.StartCallRequest(spec=spec()), {C, A}),
    ("StartCall", call_pb2.StartCallRequest(spec=spec(" Tools/CALL")), {C, A}),
    ("StartCall", call_pb2.StartCallRequest(spec=spec("resources/unsubscribe")), {OP, A}),
    ("GetQueue", call_pb2.GetQueueRequest(server=SERVER), {OP, A}),
    ("ClearQueue", call_pb2.ClearQueueRequest(server=SERVER), {OP, A}),
    ("RefreshCatalog", catalog_pb2.RefreshCatalogRequest(server=SERVER), {C, OP, A}),
    ("WatchEvents", event_pb2.WatchEventsRequest(filter=event_pb2.EventFilter(server=SERVER)), {V, R, AP, OP, A}),
    ("TailLogs", event_pb2.TailLogsRequest(server=SERVER, follow=True), {V, R, AP, OP, A}),
    ("WatchResource", event_pb2.WatchResourceRequest(server=SERVER, uri="x://y"), {C, A}),
    ("DisconnectServer", server_pb2.DisconnectServerRequest(name=SERVER), {OP, A}),
    ("LogOutServer", server_pb2.LogOutServerRequest(name=SERVER), {OP, A}),
    ("CheckApproval", approval_pb2.CheckApprovalRequest(server=SERVER, tool="x"), {V, R, AP, OP, A}),
]


async def _get_request(world: World, owner: str, _by: str) -> Message:
    return inbox_pb2.GetPendingRequestRequest(id=await world.request(owner))


async def _claim(world: World, owner: str, _by: str) -> Message:
    return inbox_pb2.ClaimPendingRequestRequest(id=await world.request(owner))


async def _answer(world: World, owner: str, _by: str) -> Message:
    return inbox_pb2.AnswerPendingRequestRequest(
        id=await world.request(owner), accept=inbox_pb2.AnswerPendingRequestRequest.Accept(content=ANSWER)
    )


async def _renew(world: World, owner: str, by: str) -> Message:
    request_id, claim_id = await world.claimed(owner, by)
    return inbox_pb2.RenewClaimRequest(id=request_id, claim_id=claim_id)


async def _release(world: World, owner: str, by: str) -> Message:
    request_id, claim_id = await world.claimed(owner, by)
    return inbox_pb2.ReleasePendingRequestRequest(id=request_id, claim_id=claim_id)


async def _claim_approval(world: World, owner: str, _by: str) -> Message:
    return inbox_pb2.ClaimPendingRequestRequest(id=await world.approval(owner))


async def _approve(world: World, owner: str, _by: str) -> Message:
    return inbox_pb2.AnswerPendingRequestRequest(
        id=await world.approval(owner), approve=inbox_pb2.AnswerPendingRequestRequest.Approve()
    )


async def _deny(world: World, owner: str, _by: str) -> Message:
    return inbox_pb2.AnswerPendingRequestRequest(
        id=await world.approval(owner), deny=inbox_pb2.AnswerPendingRequestRequest.Deny()
    )


async def _renew_approval(world: World, owner: str, by: str) -> Message:
    request_id, claim_id = await world.claimed(owner, by, await world.approval(owner))
    return inbox_pb2.RenewClaimRequest(id=request_id, claim_id=claim_id)


async def _release_approval(world: World, owner: str, by: str) -> Message:
    request_id, claim_id = await world.claimed(owner, by, await world.approval(owner))
    return inbox_pb2.ReleasePendingRequestRequest(id=request_id, claim_id=claim_id)


async def _get_call(world: World, owner: str, _by: str) -> Message:
    return call_pb2.GetCallRequest(id=await world.call(owner))


async def _cancel_call(world: World, owner: str, _by: str) -> Message:
    return call_pb2.CancelCallRequest(id=await world.call(owner))


async def _get_task(world: World, owner: str, _by: str) -> Message:
    return task_pb2.GetTaskRequest(id=await world.task(owner))


async def _get_task_result(world: World, owner: str, _by: str) -> Message:
    return task_pb2.GetTaskResultRequest(id=await world.task(owner))


async def _cancel_task(world: World, owner: str, _by: str) -> Message:
    return task_pb2.CancelTaskRequest(id=await world.task(owner))


# What is about one record: who may, given the role for its server; callers may all of it with what is their own.
OF_A_RECORD: list[tuple[str, Callable[[World, str, str], Any], set[Role]]] = [
    ("GetPendingRequest", _get_request, {V, R, AP, OP, A}),
    ("ClaimPendingRequest", _claim, {R, A}),
    ("RenewClaim", _renew, {R, A}),
    ("ReleasePendingRequest", _release, {R, A}),
    ("AnswerPendingRequest", _answer, {R, A}),
    ("GetCall", _get_call, {V, R, AP, OP, A}),
    ("CancelCall", _cancel_call, {OP, A}),
    ("GetTask", _get_task, {V, R, AP, OP, A}),
    ("GetTaskResult", _get_task_result, {V, R, AP, OP, A}),
    ("CancelTask", _cancel_task, {OP, A}),
]

# To approve takes the role, also with what is one's own.
OF_AN_APPROVAL: list[tuple[str, Callable[[World, str, str], Any], set[Role]]] = [
    ("ClaimPendingRequest", _claim_approval, {AP, OP, A}),
    ("RenewClaim", _renew_approval, {AP, OP, A}),
    ("ReleasePendingRequest", _release_approval, {AP, OP, A}),
    ("AnswerPendingRequest", _approve, {AP, OP, A}),
    ("AnswerPendingRequest", _deny, {AP, OP, A}),
]

# What shows many: those who see all there is of a server; callers see what is their own.
OF_MANY: dict[str, set[Role]] = {
    "ListServers": {V, R, AP, C, OP, A},
    "WatchServers": {V, R, AP, C, OP, A},
    "ListCatalogEntries": {V, R, AP, C, OP, A},
    "WatchCatalogLists": {V, R, AP, C, OP, A},
    "ListPendingRequests": {V, R, AP, OP, A},
    "WatchPendingRequests": {V, R, AP, OP, A},
    "ListCalls": {V, R, AP, OP, A},
    "WatchCalls": {V, R, AP, OP, A},
    "ListTasks": {V, R, AP, OP, A},
    "WatchTasks": {V, R, AP, OP, A},
}
OF_APPROVALS = {"GetApprovalRules", "ListRememberedApprovals", "ReplayApprovals", "RevokeRememberedApproval"}
"""Tested in test_approvals.py."""
OF_TOKENS = {"CreateLoginCode", "ListTokens", "RevokeToken"}
ELSEWHERE_TESTED = {"AddServer", "GetSelf", "Serve", "StreamCalls", "Work", *OF_APPROVALS, *OF_TOKENS}


def test_every_rpc_is_in_one_of_the_tables() -> None:
    tables = {rpc for rpc, _, _ in [*OF_THE_HUB, *OF_A_SERVER, *OF_A_RECORD]}
    assert tables | set(OF_MANY) | ELSEWHERE_TESTED == set(METHODS)


async def outcome(caller: Caller, rpc: str, request: Message) -> str:
    """What the hub makes of it; what has nothing to do with access counts as OK."""
    try:
        await caller(METHODS[rpc], request)
    except grpc.aio.AioRpcError as error:
        refusal = explain(error)
    else:
        return OK
    match refusal.code, refusal.reason:
        case grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED":
            assert set(refusal.metadata) == {"permission", "server"}
            return DENIED
        case grpc.StatusCode.NOT_FOUND, _:
            return HIDDEN
        case _:
            return OK


MEMBERS = {"ListPendingRequests": "pending_requests"}


async def shown(caller: Caller, rpc: str) -> set[str]:
    """The ids in a list, or in the snapshot of a watch."""
    method = METHODS[rpc]
    tools = catalog_pb2.CatalogFilter(kinds=[catalog_pb2.CATALOG_KIND_TOOL])
    kinds = {"ListCatalogEntries": catalog_pb2.ListCatalogEntriesRequest(filter=tools)}
    request = kinds.get(rpc, _request_type(method)())
    if not method.server_streaming:
        answer = await caller(method, request)
        records = (
            answer.lists
            if rpc == "ListCatalogEntries"
            else getattr(answer, MEMBERS.get(rpc, rpc.removeprefix("List").lower()))
        )
        return {getattr(record, "id", "") or record.name for record in records}
    found: set[str] = set()
    path = f"/{method.containing_service.full_name}/{method.name}"
    watch = caller.channel.unary_stream(path, response_deserializer=GetMessageClass(method.output_type).FromString)
    stream = watch(request.SerializeToString(), metadata=caller.metadata)
    with anyio.fail_after(LIMIT_S):
        while not (step := await stream.read()).HasField("synced"):
            found.add(getattr(step.upsert, "id", "") or step.upsert.name)
    stream.cancel()
    return found


def _request_type(method: MethodDescriptor) -> Any:
    return GetMessageClass(method.input_type)


ROLES = pytest.mark.parametrize("role", list(Role))


@ROLES
async def test_what_is_of_the_hub_needs_the_role_for_all_servers(world: World, role: Role) -> None:
    everywhere, limited = await world.caller(role), await world.caller(role, SERVER, ELSEWHERE)
    for rpc, request, may in OF_THE_HUB:
        assert await outcome(limited, rpc, request) == DENIED, rpc
        assert await outcome(everywhere, rpc, request) == (OK if role in may else DENIED), rpc


@ROLES
async def test_what_is_of_a_server_needs_the_role_for_that_server(world: World, role: Role) -> None:
    everywhere, there = await world.caller(role), await world.caller(role, "aw*")
    limited = await world.caller(role, ELSEWHERE)
    for rpc, request, may in OF_A_SERVER:
        expected = OK if role in may else DENIED
        unknown = DENIED if rpc == "UpdateServer" or role not in may else HIDDEN
        assert await outcome(limited, rpc, request) in {unknown, HIDDEN}, rpc
        assert (await outcome(everywhere, rpc, request), await outcome(there, rpc, request)) == (expected, expected), (
            rpc
        )


@ROLES
async def test_a_code_for_a_log_in_needs_the_right_to_call_any_server(world: World, role: Role) -> None:
    expected = OK if role in {C, A} else DENIED
    for caller in (await world.caller(role), await world.caller(role, ELSEWHERE)):
        assert await outcome(caller, "CreateLoginCode", login_pb2.CreateLoginCodeRequest()) == expected


@ROLES
async def test_a_person_sees_and_ends_the_log_ins_that_they_have_granted(world: World, role: Role) -> None:
    me, mine, other = await world.caller(role, name="me"), await let_in(world.hub, "me"), await let_in(world.hub, "ada")
    listed = {token.name for token in (await me(METHODS["ListTokens"], admin_pb2.ListTokensRequest())).tokens}
    assert listed == ({token.name for token in world.hub.tokens.all()} if role is A else {mine})
    expected = OK if role is A else HIDDEN
    for name, ends in ((other, expected), ("me" if role is not A else "none", HIDDEN), (mine, OK), (mine, HIDDEN)):
        assert await outcome(me, "RevokeToken", admin_pb2.RevokeTokenRequest(name=name)) == ends, name


@ROLES
async def test_a_server_out_of_reach_is_as_if_it_did_not_exist(world: World, role: Role) -> None:
    limited = await world.caller(role, ELSEWHERE)
    for rpc, request, _ in OF_A_SERVER:
        missing = _request_type(METHODS[rpc]).FromString(request.SerializeToString().replace(b"away", b"none"))
        answers = [await limited.refused(METHODS[rpc], each) for each in (request, missing)]
        there, nowhere = ((answer.code, answer.reason, answer.message.replace("none", SERVER)) for answer in answers)
        assert there == nowhere, rpc


@ROLES
async def test_adding_a_server_needs_an_admin_of_that_name(world: World, role: Role) -> None:
    request = server_pb2.AddServerRequest(spec=configured())
    expected = OK if role is A else DENIED
    assert await outcome(await world.caller(role, "aw*"), "AddServer", request) == expected
    assert await outcome(await world.caller(role, ELSEWHERE), "AddServer", request) == DENIED


@ROLES
async def test_records_of_others_need_the_role_for_their_server(world: World, role: Role) -> None:
    caller = await world.caller(role, "aw*", name="me")
    for rpc, make, may in OF_A_RECORD:
        expected = OK if role in may else HIDDEN if role is C else DENIED
        assert await outcome(caller, rpc, await make(world, SOMEBODY, "me")) == expected, rpc


@ROLES
async def test_callers_may_do_with_their_own_what_it_needs(world: World, role: Role) -> None:
    caller = await world.caller(role, "aw*", name="me")
    for rpc, make, may in OF_A_RECORD:
        expected = OK if role in may or role is C else DENIED
        assert await outcome(caller, rpc, await make(world, "me", "me")) == expected, rpc


@ROLES
async def test_only_who_may_approve_claims_and_answers_an_approval_even_of_its_own_call(
    world: World, role: Role
) -> None:
    caller = await world.caller(role, "aw*", name="me")
    for rpc, make, may in OF_AN_APPROVAL:
        for owner in ("me", SOMEBODY):
            hidden = HIDDEN if role is C and owner == SOMEBODY else DENIED
            assert await outcome(caller, rpc, await make(world, owner, "me")) == (OK if role in may else hidden), rpc


@ROLES
async def test_records_out_of_reach_are_as_if_they_did_not_exist(world: World, role: Role) -> None:
    limited = await world.caller(role, ELSEWHERE, name="me")
    both = [*OF_A_RECORD, *OF_AN_APPROVAL]
    for rpc, make, _ in both:
        # Who may do this with no server at all is denied at the door.
        is_admitted = role is C or any(role in may for name, _, may in both if name == rpc)
        expected = HIDDEN if is_admitted else DENIED
        for owner in ("me", SOMEBODY):
            assert await outcome(limited, rpc, await make(world, owner, "me")) == expected, rpc


async def test_a_cause_that_was_only_inferred_makes_a_request_nobodys_own(world: World) -> None:
    caller = await world.caller(C, name="me")
    request_id = await world.request("me", CauseSource.INFERRED)
    for rpc, request in (
        ("GetPendingRequest", inbox_pb2.GetPendingRequestRequest(id=request_id)),
        ("ClaimPendingRequest", inbox_pb2.ClaimPendingRequestRequest(id=request_id)),
        (
            "AnswerPendingRequest",
            inbox_pb2.AnswerPendingRequestRequest(
                id=request_id, decline=inbox_pb2.AnswerPendingRequestRequest.Decline()
            ),
        ),
    ):
        assert await outcome(caller, rpc, request) == HIDDEN
    assert await shown(caller, "ListPendingRequests") == set()


@ROLES
async def test_lists_and_watches_show_what_is_in_reach(world: World, role: Role) -> None:
    here, elsewhere = await world.caller(role, SERVER, name="me"), await world.caller(role, ELSEWHERE, name="them")
    own, others, far = (("me", SERVER), (SOMEBODY, SERVER), (SOMEBODY, ELSEWHERE))
    ids: dict[str, list[str]] = {"Inbox": [], "Calls": [], "Tasks": []}
    for owner, server in (own, others, far):
        task = await world.task(owner, server)
        ids["Tasks"].append(task)
        ids["Inbox"].append(world.hub.tasks.get(task).pending_ids[0])
        ids["Calls"].append(await world.call(owner, server))
    ids["PendingRequests"] = ids["Inbox"]
    for rpc, may in OF_MANY.items():
        of = ids.get(rpc.removeprefix("List").removeprefix("Watch"))
        seen, seen_elsewhere = await shown(here, rpc), await shown(elsewhere, rpc)
        if of is None:
            assert {name.split("/")[0] for name in seen} <= {SERVER}, rpc
            assert {name.split("/")[0] for name in seen_elsewhere} <= {ELSEWHERE}, rpc
            assert "Servers" not in rpc or (seen, seen_elsewhere) == ({SERVER}, {ELSEWHERE})
        else:
            assert seen == (set(of[:2]) if role in may else set(of[:1])), rpc
            assert seen_elsewhere == (set(of[2:]) if role in may else set()), rpc


@ROLES
async def test_anybody_with_a_credential_may_ask_who_that_is(world: World, role: Role) -> None:
    caller = await world.caller(role, "aw*", "b?", name="me")
    me = (await caller(METHODS["GetSelf"], admin_pb2.GetSelfRequest())).caller
    assert (me.name, me.credential.split(":")[0], me.may_name_others) == ("me", "token", False)
    assert [(admin_pb2.AccessRole.Name(g.role), list(g.servers)) for g in me.grants] == [
        (f"ACCESS_ROLE_{role.name}", ["aw*", "b?"])
    ]


async def test_the_local_token_is_an_admin_who_may_name_others(world: World) -> None:
    local = Caller(world.channel, (("authorization", f"Bearer {TOKEN}"), ("hubbub-as", "ada")))
    me = (await local(METHODS["GetSelf"], admin_pb2.GetSelfRequest())).caller
    assert (me.name, me.credential, me.may_name_others) == ("ada", "local", True)
