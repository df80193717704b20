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
    """Return a remembered approval."""
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


def rule(record: ApprovalRule) -> approval_pb2.ApprovalRule:
    """Return a rule; `preset` names the option that it was made from, if it was."""
    return approval_pb2.ApprovalRule(
        name=record.name,
        servers=record.servers,
        tools=record.tools,
        when=record.when.text if record.when is not None else "",
        action=ACTIONS[record.action],
        needed=record.needed,
        not_by_caller=record.not_by_caller,
        approvers=record.approvers,
        edit=record.edit,
        remember=[duration(seconds) for seconds in record.remember],
        message=record.message,
        preset=record.preset,
    )


def replay_row(row: ReplayRow) -> approval_pb2.ReplayApprovalsResponse.Row:
    """Return what the rules would have said of some calls in the history."""
    return approval_pb2.ReplayApprovalsResponse.Row(
        rule=row.rule,
        action=ACTIONS[row.action],
        server=row.server,
        tool=text(row.tool),
        calls=row.calls,
        callers=map(text, row.callers),
        problems=row.problems,
        approvers=row.approvers,
        newest_call_id=row.newest_call_id,
    )


def votes(given: tuple[Vote, ...]) -> list[inbox_pb2.PendingRequest.Approval]:
    """Return the approvals that people have given to a call."""
    return [
        inbox_pb2.PendingRequest.Approval(by=text(vote.by), approved_at=timestamp(vote.at), comment=text(vote.comment))
        for vote in given
    ]


def digest_to_approve(record: PendingRequest) -> str:
    """Return the digest of the arguments that are to be approved now; empty unless the request is an open approval."""
    is_open = record.kind is RequestKind.APPROVAL and record.state is RequestState.OPEN
    return text(arguments_digest(record)) if is_open else ""


def approval(record: CallApproval | None) -> call_pb2.CallApproval | None:
    """Return the approval of a call; None for a call that needs none."""
    return record and call_pb2.CallApproval(
        rule=text(record.rule),
        pending_request_id=record.request_id,
        remembered_id=record.remembered_id,
        approved_by=[text(vote.by) for vote in record.votes],
        granted=record.granted,
        changed_arguments=record.arguments or b"",
    )


def origin(record: CallOrigin) -> call_pb2.CallOrigin | None:
    """Return where a call came from; None if nothing of that is known."""
    if record == NO_ORIGIN:
        return None
    return call_pb2.CallOrigin(
        host=text(record.host), profile=text(record.profile), roles=map(text, record.roles), app=record.app
    )
