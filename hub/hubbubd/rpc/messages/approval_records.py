"""Converts rules, remembered approvals, and the approvals of calls to messages of the API, as `api_records`."""

from hubbub.v1 import approval_pb2, call_pb2, inbox_pb2
from hubbubd.config.sections.approvals import Action, ApprovalRule
from hubbubd.core.approvals.remembered import RememberedApproval
from hubbubd.core.approvals.replay import ReplayRow
from hubbubd.core.approvals.requests import arguments_digest
from hubbubd.core.approvals.vote import Vote
from hubbubd.core.calls.call_states import NO_ORIGIN, CallApproval, CallOrigin
from hubbubd.core.inbox.request_states import PendingRequest, RequestKind, RequestState
from hubbubd.rpc.messages.fallback import never_failing
from hubbubd.rpc.messages.values import duration, text, timestamp

ACTIONS = {action: approval_pb2.ApprovalAction.Value(f"APPROVAL_ACTION_{action.name}") for action in Action}


@never_failing
def remembered(record: RememberedApproval) -> approval_pb2.RememberedApproval:
    return approval_pb2.RememberedApproval(
        id=record.id,
        server=record.server,
        tool=text(record.tool),
        caller=text(record.caller),
        rule=text(record.rule),
        approved_by=map(text, record.approved_by),
        created_at=timestamp(record.created_at),
        expires_at=timestamp(record.expires_at),
        arguments=record.arguments or b"",
        pending_request_id=record.request_id,
    )


def rule(of: ApprovalRule) -> approval_pb2.ApprovalRule:
    """Return a rule, with the option that it was made from, if it was."""
    return approval_pb2.ApprovalRule(
        name=of.name,
        servers=of.servers,
        tools=of.tools,
        when=of.when.text if of.when is not None else "",
        action=ACTIONS[of.action],
        needed=of.needed,
        not_by_caller=of.not_by_caller,
        approvers=of.approvers,
        edit=of.edit,
        remember=[duration(seconds) for seconds in of.remember],
        message=of.message,
        preset=of.preset,
    )


def replayed(of: ReplayRow) -> approval_pb2.ReplayApprovalsResponse.Row:
    return approval_pb2.ReplayApprovalsResponse.Row(
        rule=of.rule,
        action=ACTIONS[of.action],
        server=of.server,
        tool=text(of.tool),
        calls=of.calls,
        callers=map(text, of.callers),
        problems=of.problems,
        approvers=of.approvers,
        newest_call_id=of.newest_call_id,
    )


def votes(of: tuple[Vote, ...]) -> list[inbox_pb2.PendingRequest.Approval]:
    return [
        inbox_pb2.PendingRequest.Approval(by=text(vote.by), approved_at=timestamp(vote.at), comment=text(vote.comment))
        for vote in of
    ]


def digest_to_approve(of: PendingRequest) -> str:
    """Return the digest of the arguments that are to be approved now; empty unless it is an open approval."""
    is_open = of.kind is RequestKind.APPROVAL and of.state is RequestState.OPEN
    return text(arguments_digest(of)) if is_open else ""


def approval(of: CallApproval | None) -> call_pb2.CallApproval | None:
    return of and call_pb2.CallApproval(
        rule=text(of.rule),
        pending_request_id=of.request_id,
        remembered_id=of.remembered_id,
        approved_by=[text(vote.by) for vote in of.votes],
        granted=of.granted,
        changed_arguments=of.arguments or b"",
    )


def origin(of: CallOrigin) -> call_pb2.CallOrigin | None:
    if of == NO_ORIGIN:
        return None
    return call_pb2.CallOrigin(host=text(of.host), profile=text(of.profile), roles=map(text, of.roles), app=of.app)
