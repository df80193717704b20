"""Approvals over the API: calls that wait, remembered approvals, and rules, with what each caller may see of them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from hubbub.v1 import approval_pb2 as pb
from hubbub.v1 import call_pb2, common_pb2, inbox_pb2
from hubbubd import payload
from hubbubd.config import HubSettings, ServerConfig
from hubbubd.config.sections.approvals import ApprovalSettings
from hubbubd.core.access import Role
from hubbubd.core.audit import AuditFilter
from hubbubd.rpc.listeners.grpc_server import serve
from hubbubd.runtime.calls import CallSpec, open_people_queue
from hubbubd.runtime.hub import Hub
from hubbubd.store.sqlite.sqlite_store import SqliteStore
from hubbubd.store.vault.file import TokenFile
from hubbubd.upstream.connector import McpConnector

from .access_world import ELSEWHERE, SERVER, World
from .conftest import LIMIT_S, gate, settled
from .test_bad_input import METHODS

RULES = ApprovalSettings.model_validate(
    {
        "rules": [
            {"name": "deletes", "servers": [SERVER], "tools": ["delete_*"], "remember": ["1h"], "message": "Careful."},
            {"name": "two", "servers": [SERVER], "tools": ["pay"], "needed": 2},
            {"name": "never", "servers": [ELSEWHERE], "tools": ["drop"], "action": "deny"},
            {"name": "odd", "servers": [SERVER], "tools": ["odd"], "when": "args.sum > 5", "action": "allow"},
        ]
    }
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A hub with rules and two servers that are never there."""
    store = await SqliteStore.open(":memory:")
    urls = {SERVER: "http://127.0.0.1:9/mcp", ELSEWHERE: "http://127.0.0.1:9/other"}
    servers = {name: ServerConfig(name=name, transport="http", url=url) for name, url in urls.items()}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await stack.enter_async_context(settled())
        connector = McpConnector(TokenFile.open(tmp_path))
        settings = HubSettings(data_dir=tmp_path, approvals=RULES)
        hub = await stack.enter_async_context(Hub.open(store, connector, servers, settings))
        address = await stack.enter_async_context(serve(hub, listen="127.0.0.1:0", gate=gate(hub), grace_s=0))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        yield World(hub, address, channel, count(1))


async def ask(caller: Any, rpc: str, request: Message) -> Any:
    return await caller(METHODS[rpc], request)


async def held(world: World, tool: str = "delete_branch", by: str = "bot", **arguments: Any) -> str:
    """The pending request of a call that waits for approval."""
    params = payload.dumps({"name": tool, "arguments": arguments})
    spec = CallSpec(server=SERVER, method="tools/call", params=params, call_id=f"call{next(world.numbers)}")
    call = await world.hub.calls.start(spec, by)
    (request_id,) = call.pending_ids
    return request_id


def answer(request_id: str, **given: Any) -> inbox_pb2.AnswerPendingRequestRequest:
    return inbox_pb2.AnswerPendingRequestRequest(id=request_id, **given)


Approve = inbox_pb2.AnswerPendingRequestRequest.Approve


async def test_a_call_is_approved_over_the_api_and_its_record_says_by_whom_it_was_made_and_approved(
    world: World,
) -> None:
    bot, ada = await world.caller(Role.CALLER, name="bot"), await world.caller(Role.APPROVER, name="ada")
    spec = call_pb2.CallSpec(
        server=SERVER, method="tools/call", params=b'{"name":"delete_branch","arguments":{"n":1}}', call_id="c"
    )
    call = (await ask(bot, "StartCall", call_pb2.StartCallRequest(spec=spec))).call
    assert (call.state, list(call.origin.roles)) == (call_pb2.CALL_STATE_WAITING_INPUT, ["caller"])
    assert (call.approval.rule, call.approval.granted) == ("deletes", False)
    (request_id,) = call.pending_request_ids
    request = (await ask(ada, "GetPendingRequest", inbox_pb2.GetPendingRequestRequest(id=request_id))).pending_request
    assert request.kind == inbox_pb2.PENDING_REQUEST_KIND_APPROVAL
    assert request.arguments_digest.startswith("sha256:")
    assert payload.loads(request.request)["caller"]["roles"] == ["caller"]
    given = Approve(digest=request.arguments_digest, arguments=b'{"n":2}', comment="as two")
    done = (await ask(ada, "AnswerPendingRequest", answer(request_id, approve=given))).pending_request
    assert (done.state, done.arguments_digest) == (inbox_pb2.PENDING_REQUEST_STATE_ANSWERED, "")
    assert [(vote.by, vote.comment) for vote in done.approvals] == [("ada", "as two")]
    with anyio.fail_after(LIMIT_S):
        while not (call := (await ask(bot, "GetCall", call_pb2.GetCallRequest(id="c"))).call).approval.granted:
            await anyio.sleep(0.001)
    assert list(call.approval.approved_by) == ["ada"]
    assert payload.loads(call.approval.changed_arguments) == {"n": 2}


async def test_the_first_of_two_approvals_leaves_it_open_and_everybody_sees_who_gave_it(world: World) -> None:
    ada, vic = await world.caller(Role.APPROVER, name="ada"), await world.caller(Role.VIEWER)
    request_id = await held(world, "pay", sum=5)
    done = (await ask(ada, "AnswerPendingRequest", answer(request_id, approve=Approve()))).pending_request
    assert done.state == inbox_pb2.PENDING_REQUEST_STATE_OPEN
    seen = (await ask(vic, "GetPendingRequest", inbox_pb2.GetPendingRequestRequest(id=request_id))).pending_request
    assert [vote.by for vote in seen.approvals] == ["ada"]
    assert seen.events[-1].type == inbox_pb2.PendingRequest.EVENT_TYPE_APPROVED
    again = await ada.refused(METHODS["AnswerPendingRequest"], answer(request_id, approve=Approve()))
    assert again.reason == "ALREADY_APPROVED"


async def test_a_worker_gets_an_approval_only_if_it_may_approve(world: World) -> None:
    responder, approver = await world.caller(Role.RESPONDER), await world.caller(Role.APPROVER)
    request_id = await held(world)
    assigned: dict[str, list[str]] = {"responder": [], "approver": []}

    async def work(name: str, caller: Any, ready: anyio.Event) -> None:
        method = METHODS["Work"]
        path = f"/{method.containing_service.full_name}/{method.name}"
        stream = caller.channel.stream_stream(path, response_deserializer=inbox_pb2.WorkResponse.FromString)(
            metadata=caller.metadata
        )
        await stream.write(inbox_pb2.WorkRequest(ready=inbox_pb2.WorkRequest.Ready()).SerializeToString())
        try:
            while step := await stream.read():
                if step.HasField("bookmark"):
                    ready.set()
                if step.HasField("assigned"):
                    assigned[name].append(step.assigned.id)
        finally:
            stream.cancel()

    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as workers:
            for name, caller in (("responder", responder), ("approver", approver)):
                ready = anyio.Event()
                workers.start_soon(work, name, caller, ready)
                await ready.wait()
            while not assigned["approver"]:
                await anyio.sleep(0.001)
            workers.cancel_scope.cancel()
    assert assigned == {"responder": [], "approver": [request_id]}


async def remember(world: World, by: str = "ada") -> pb.RememberedApproval:
    ada = await world.caller(Role.APPROVER, name=by)
    given = Approve(remember=Duration(seconds=3600), same_arguments=True)
    await ask(ada, "AnswerPendingRequest", answer(await held(world, n=1), approve=given))
    (found,) = (await ask(ada, "ListRememberedApprovals", pb.ListRememberedApprovalsRequest())).approvals
    return found


async def test_a_remembered_approval_is_listed_and_revoked(world: World) -> None:
    found = await remember(world)
    assert (found.server, found.tool, found.caller, found.rule) == (SERVER, "delete_branch", "bot", "deletes")
    assert (list(found.approved_by), payload.loads(found.arguments)) == (["ada"], {"n": 1})
    assert found.expires_at.seconds - found.created_at.seconds == 3600
    ben = await world.caller(Role.OPERATOR, SERVER, name="ben")
    gone = await ask(ben, "RevokeRememberedApproval", pb.RevokeRememberedApprovalRequest(id=found.id))
    assert gone.approval == found
    assert not (await ask(ben, "ListRememberedApprovals", pb.ListRememberedApprovalsRequest())).approvals
    again = await ben.refused(METHODS["RevokeRememberedApproval"], pb.RevokeRememberedApprovalRequest(id=found.id))
    assert again.reason == "APPROVAL_NOT_FOUND"
    entries = world.hub.audit.newest(AuditFilter(action="RevokeRememberedApproval"))
    assert {(entry.principal, entry.target) for entry in entries} >= {("ben", found.id)}


@pytest.mark.parametrize("role", list(Role))
async def test_remembered_approvals_are_seen_and_revoked_by_those_who_may(world: World, role: Role) -> None:
    found = await remember(world)
    here, there = await world.caller(role, SERVER), await world.caller(role, ELSEWHERE)
    listing = pb.ListRememberedApprovalsRequest()
    revoking = pb.RevokeRememberedApprovalRequest(id=found.id)
    if role is Role.CALLER:
        assert (await here.refused(METHODS["ListRememberedApprovals"], listing)).reason == "PERMISSION_DENIED"
    else:
        assert len((await ask(here, "ListRememberedApprovals", listing)).approvals) == 1
        assert not (await ask(there, "ListRememberedApprovals", listing)).approvals
    may = role in (Role.APPROVER, Role.OPERATOR, Role.ADMIN)
    hidden = "APPROVAL_NOT_FOUND" if may else "PERMISSION_DENIED"
    assert (await there.refused(METHODS["RevokeRememberedApproval"], revoking)).reason == hidden
    if may:
        await ask(here, "RevokeRememberedApproval", revoking)
    else:
        assert (await here.refused(METHODS["RevokeRememberedApproval"], revoking)).reason == "PERMISSION_DENIED"


async def test_pages_of_remembered_approvals_are_of_one_server_in_either_order(world: World) -> None:
    ada = await world.caller(Role.APPROVER, name="ada")
    for number in range(3):
        given = Approve(remember=Duration(seconds=3600), same_arguments=True)
        await ask(ada, "AnswerPendingRequest", answer(await held(world, n=number), approve=given))
    found: list[int] = []
    chosen, token = pb.RememberedApprovalFilter(server=SERVER), ""
    while True:
        request = pb.ListRememberedApprovalsRequest(
            filter=chosen, page_size=2, page_token=token, order=common_pb2.ORDER_ASCENDING
        )
        page = await ask(ada, "ListRememberedApprovals", request)
        found += [payload.loads(each.arguments)["n"] for each in page.approvals]
        if not (token := page.next_page_token):
            break
    assert found == [0, 1, 2]
    other = pb.ListRememberedApprovalsRequest(filter=pb.RememberedApprovalFilter(server=ELSEWHERE))
    assert not (await ask(ada, "ListRememberedApprovals", other)).approvals


async def test_rules_are_shown_whole_to_who_sees_all_servers_and_else_those_of_servers_that_one_sees(
    world: World,
) -> None:
    everything = await ask(await world.caller(Role.VIEWER), "GetApprovalRules", pb.GetApprovalRulesRequest())
    assert [rule.name for rule in everything.rules] == ["deletes", "two", "never", "odd"]
    first = everything.rules[0]
    assert (list(first.tools), first.action, first.message) == (["delete_*"], pb.APPROVAL_ACTION_ASK, "Careful.")
    assert (list(first.remember), first.edit, first.needed) == ([Duration(seconds=3600)], True, 1)
    assert everything.rules[3].when == "args.sum > 5"
    assert everything.default_action == pb.APPROVAL_ACTION_ALLOW
    some = await ask(await world.caller(Role.APPROVER, ELSEWHERE), "GetApprovalRules", pb.GetApprovalRulesRequest())
    assert [rule.name for rule in some.rules] == ["never"]
    assert not some.warnings


@pytest.mark.parametrize(
    ("tool", "arguments", "action", "rule", "says"),
    [
        ("delete_branch", b"{}", pb.APPROVAL_ACTION_ASK, "deletes", "'deletes'"),
        ("read", b"", pb.APPROVAL_ACTION_ALLOW, "", "no rule matches it"),
        ("odd", b'{"sum":9}', pb.APPROVAL_ACTION_ALLOW, "odd", "args.sum > 5"),
        ("odd", b"{}", pb.APPROVAL_ACTION_ASK, "odd", "failed"),
    ],
)
async def test_a_check_says_which_rule_counts_and_why(
    world: World, tool: str, arguments: bytes, action: Any, rule: str, says: str
) -> None:
    viewer = await world.caller(Role.VIEWER)
    request = pb.CheckApprovalRequest(server=SERVER, tool=tool, arguments=arguments, caller="bot")
    found = await ask(viewer, "CheckApproval", request)
    assert (found.action, found.rule.name, found.remembered_id) == (action, rule, "")
    assert says in found.reason
    assert "not known to offer this tool" in found.reason
    assert not list(world.hub.calls)


async def test_a_check_knows_what_is_remembered(world: World) -> None:
    remembered = await remember(world)
    viewer = await world.caller(Role.VIEWER)
    request = pb.CheckApprovalRequest(server=SERVER, tool="delete_branch", arguments=b'{"n":1}', caller="bot")
    found = await ask(viewer, "CheckApproval", request)
    assert (found.action, found.remembered_id) == (pb.APPROVAL_ACTION_ALLOW, remembered.id)
    assert remembered.id in found.reason
    request.arguments = b'{"n":2}'
    assert (await ask(viewer, "CheckApproval", request)).action == pb.APPROVAL_ACTION_ASK


async def test_a_check_without_a_caller_is_of_whoever_asks_with_their_roles(world: World) -> None:
    rule = {"name": "own", "when": "caller == 'opal' && roles == ['operator']", "servers": [SERVER]}
    world.hub.approvals.adopt(ApprovalSettings.model_validate({"rules": [rule]}))
    opal = await world.caller(Role.OPERATOR, name="opal")
    request = pb.CheckApprovalRequest(server=SERVER, tool="t")
    assert (await ask(opal, "CheckApproval", request)).action == pb.APPROVAL_ACTION_ASK
    request.roles.append("caller")
    assert (await ask(opal, "CheckApproval", request)).action == pb.APPROVAL_ACTION_ALLOW


async def test_what_a_host_may_do_itself_is_checked_as_a_tool_of_the_host(world: World) -> None:
    viewer = await world.caller(Role.VIEWER)
    request = pb.CheckApprovalRequest(server="host", tool="Bash", arguments=b'{"command":"ls"}', caller="bot")
    assert (await viewer.refused(METHODS["CheckApproval"], request)).reason == "SERVER_NOT_FOUND"
    open_people_queue(world.hub.calls)
    found = await ask(viewer, "CheckApproval", request)
    assert (found.action, found.rule.preset) == (pb.APPROVAL_ACTION_ASK, "servers.host.confirm")
    assert "not known to offer" not in found.reason


async def test_a_replay_adds_up_the_calls_that_its_caller_may_see(world: World) -> None:
    for tool, by in (("delete_branch", "bot"), ("delete_tag", "bot"), ("delete_tag", "max"), ("read", "bot")):
        params = payload.dumps({"name": tool, "arguments": {}})
        await world.hub.calls.start(CallSpec(server=SERVER, method="tools/call", params=params), by)
    await world.hub.calls.start(CallSpec(server=SERVER, method="tools/list"), "bot")
    viewer = await world.caller(Role.VIEWER, SERVER)
    found = await ask(viewer, "ReplayApprovals", pb.ReplayApprovalsRequest())
    assert (found.calls, found.asked, found.denied) == (4, 3, 0)
    rows = {(row.rule, row.tool): (row.calls, sorted(row.callers)) for row in found.rows}
    assert rows == {
        ("deletes", "delete_tag"): (2, ["bot", "max"]),
        ("deletes", "delete_branch"): (1, ["bot"]),
        ("", ""): (1, ["bot"]),
    }
    tried = "[[approvals.rules]]\nname = 'no'\ntools = ['read']\naction = 'deny'"
    found = await ask(viewer, "ReplayApprovals", pb.ReplayApprovalsRequest(rules=tried, server=SERVER))
    assert (found.calls, found.asked, found.denied) == (4, 0, 1)
    elsewhere = await world.caller(Role.VIEWER, ELSEWHERE)
    assert (await ask(elsewhere, "ReplayApprovals", pb.ReplayApprovalsRequest())).calls == 0
    assert (await ask(viewer, "ReplayApprovals", pb.ReplayApprovalsRequest(since=Duration()))).calls == 0


async def test_wrong_rules_to_replay_are_refused_by_name_and_line(world: World) -> None:
    viewer = await world.caller(Role.VIEWER)
    text = "[approvals]\ndefault = 'ask'\n\n[[approvals.rules]]\nname = 'odd'\nneeded = 99\n"
    refused = await viewer.refused(METHODS["ReplayApprovals"], pb.ReplayApprovalsRequest(rules=text))
    assert "'odd'" in refused.violations["rules"]
    assert "line 6" in refused.violations["rules"]
    refused = await viewer.refused(METHODS["ReplayApprovals"], pb.ReplayApprovalsRequest(rules="#" * (2**18 + 1)))
    assert refused.violations == {"rules": "may have at most 262144 characters"}
