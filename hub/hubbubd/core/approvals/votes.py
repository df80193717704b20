"""Who approves a call, and when it has been approved by enough: on pending requests of kind approval.

open ──approve──> open, one more vote ──approve──> answered     changed arguments: earlier votes no longer count
  └───deny──> answered
"""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.approvals.requests import MAX_SHOWN_BYTES, arguments_digest, canonical_digest
from hubbubd.core.approvals.suggestions import common_suggestions
from hubbubd.core.approvals.vote import Vote
from hubbubd.core.inbox import request_states as core
from hubbubd.core.inbox.forms import Approve, check_arguments
from hubbubd.core.inbox.request_states import Answer, PendingRequest, RequestEventType, RequestState
from hubbubd.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from hubbubd.frozen import replaced
from hubbubd.telemetry.trace import Trace

GROUP: Final = "oidc-role:"
"""The prefix of an approver that stands for everybody with a role at the identity provider."""


def is_approver(approvers: Collection[str], principal: str, groups: Collection[str]) -> bool:
    """Return whether a principal, by its name or its `groups`, is among the approvers of a rule.

    `groups` are its roles at the identity provider. Everybody is an approver of a rule that names none.
    """
    # Some principals choose their names: one that calls itself `oidc-role:...` must not pass for that role.
    own_names = () if principal.startswith(GROUP) else (principal,)
    names = {*own_names, *(f"{GROUP}{group}" for group in groups)}
    return not approvers or any(_matches_approver(approver, name) for approver in approvers for name in names)


def _matches_approver(approver: str, name: str) -> bool:
    """Return whether an approver of a rule equals this name of a principal or role, or is a pattern that matches it.

    Only an approver with an authority (`oidc:...`) can be a pattern.
    """
    return approver == name or (":" in approver and fnmatchcase(name, approver))


def count_votes(
    votes: Sequence[Vote], *, caller: str, approvers: Collection[str], not_by_caller: bool, digest: str
) -> int:
    """Return how many different people whom a rule counts have approved the arguments with this digest."""
    return len(
        {
            vote.by
            for vote in votes
            if vote.digest == digest
            and is_approver(approvers, vote.by, vote.groups)
            and not (not_by_caller and vote.by == caller)
        }
    )


def approve(
    request: PendingRequest,
    approval: Approve,
    by: str,
    now: float,
    *,
    answer_id: str | None,
    claim_id: str | None,
    trace: Trace | None = None,
    via: str | None = None,
) -> PendingRequest:
    """Return the request with one more vote by `by`; answered if the votes are enough now. Idempotent by `answer_id`.

    Raises FailedPrecondition if the request is closed or claimed by others (see `request_states.answer`), and for
    ALREADY_APPROVED and ARGUMENTS_CHANGED; PermissionDenied (NOT_AN_APPROVER); and InvalidArgument for a digest of
    other arguments, and for arguments, suggestions or a time to remember that are not allowed.
    """
    if answer_id and any((vote.answer_id, vote.by) == (answer_id, by) for vote in request.votes):
        return request
    current_claim = core.require_answerable(request, by, claim_id, now)
    document = payload.loads(request.request)
    rule: Mapping[str, Any] = document["rule"]
    _require_approver(request, rule, by, approval.groups)
    if (approval.digest or document["digest"]) != arguments_digest(request):
        raise _other_arguments_error(request)
    changed = _changed_arguments(request, document, approval)
    if changed is None and any(vote.by == by for vote in request.votes):
        raise FailedPrecondition(
            "you have approved this already; others have to approve it, too", reason="ALREADY_APPROVED"
        )
    vote = Vote(
        by=by,
        at=now,
        digest=arguments_digest(request) if changed is None else canonical_digest(payload.loads(changed)),
        groups=tuple(sorted(approval.groups)),
        comment=approval.comment,
        remember_s=_check_remember_s(rule, approval.remember_s),
        same_arguments=approval.same_arguments,
        suggestions=_check_suggestions(document, approval.suggestions),
        answer_id=answer_id,
    )
    votes = (vote,) if changed is not None else (*request.votes, vote)  # earlier votes are of other arguments
    voted = replaced(request, votes=votes, changed=request.changed if changed is None else changed)
    if len(votes) >= rule["needed"]:
        answer = Answer(payload=payload.dumps(_make_approval_answer(voted)))
        return core.as_answered(voted, answer, by, now, current_claim, answer_id=answer_id, trace=trace, via=via)
    is_agent = current_claim is not None and current_claim.worker
    updated = core.with_event(voted, RequestEventType.APPROVED, now, by, agent=is_agent, trace=trace, via=via)
    return replaced(updated, claim=None)  # others have to approve now


def _other_arguments_error(request: PendingRequest) -> FailedPrecondition | InvalidArgument:
    """Return the refusal of an approval whose digest is not that of the current arguments."""
    if not request.votes:  # so nobody has changed them
        return InvalidArgument.field("approve.digest", "is not the digest of the arguments of this call")
    changed_by = request.votes[-1].by
    return FailedPrecondition(
        f"{changed_by} has changed the arguments meanwhile; look at them again",
        reason="ARGUMENTS_CHANGED",
        metadata={"changed_by": changed_by},
    )


def require_denier(request: PendingRequest, by: str, groups: Collection[str]) -> None:
    """Raise PermissionDenied (NOT_AN_APPROVER) unless a principal may deny the call: an approver, or its caller."""
    approvers = payload.loads(request.request)["rule"]["approvers"]
    if by != request.principal and not is_approver(approvers, by, groups):
        raise _not_an_approver_error(request, f"only {', '.join(approvers)} may approve or deny this call")


def deny_after_deadline(request: PendingRequest) -> tuple[Answer, str]:
    """Return the denial of a call that nobody approved before its deadline, and the reason as a text."""
    seconds = round((request.deadline or request.created_at) - request.created_at)
    reason = f"nobody approved it within {seconds} s"
    return Answer(payload=payload.dumps({"action": "deny", "reason": reason})), reason


def is_approval(answer: Answer | None) -> bool:
    """Return whether an answer of an approval says yes."""
    return answer is not None and payload.loads(answer.payload).get("action") == "approve"


def approval_outcome(request: PendingRequest) -> str:
    """Return how the question about a call ended: approved, denied, expired or withdrawn."""
    if request.state is RequestState.ANSWERED:
        return "approved" if is_approval(request.answer) else "denied"
    return request.state.value


def _make_approval_answer(request: PendingRequest) -> dict[str, Any]:
    """Return the answer of a request with enough votes. Beyond this call the answer allows what every vote allows."""
    answer: dict[str, Any] = {"action": "approve", "by": [vote.by for vote in request.votes]}
    if request.changed is not None:
        answer["arguments"] = payload.loads(request.changed)
    remember_s = min(vote.remember_s for vote in request.votes)
    if remember_s:
        answer["remember_s"] = remember_s
        answer["same_arguments"] = any(vote.same_arguments for vote in request.votes)
    suggestions = common_suggestions([vote.suggestions for vote in request.votes])
    if suggestions:
        answer["suggestions"] = suggestions
    comments = [vote.comment for vote in request.votes if vote.comment]
    if comments:
        answer["comment"] = "\n".join(comments)
    return answer


def _require_approver(request: PendingRequest, rule: Mapping[str, Any], by: str, groups: Collection[str]) -> None:
    """Raise PermissionDenied (NOT_AN_APPROVER) unless the rule lets a principal approve this call."""
    if not is_approver(rule["approvers"], by, groups):
        names = ", ".join(rule["approvers"])
        raise _not_an_approver_error(request, f"the rule {rule['name']!r} lets only {names} approve this call")
    if rule["not_by_caller"] and by == request.principal:
        message = f"the rule {rule['name']!r} wants somebody else than its caller to approve it"
        raise _not_an_approver_error(request, message)


def _not_an_approver_error(request: PendingRequest, message: str) -> PermissionDenied:
    return PermissionDenied(message, reason="NOT_AN_APPROVER", metadata={"server": request.server})


def _changed_arguments(request: PendingRequest, document: Mapping[str, Any], approval: Approve) -> bytes | None:
    """Return the changed arguments of an approval as JSON, validated; None if it changes nothing.

    Raises InvalidArgument if the rule does not allow changes, or the arguments do not fit the tool.
    """
    if approval.arguments is None or canonical_digest(approval.arguments) == arguments_digest(request):
        return None
    if not document["rule"]["edit"]:
        raise InvalidArgument.field("approve.arguments", "may not be changed; approve them as they are, or deny")
    changed = payload.dumps(approval.arguments)
    if len(changed) > MAX_SHOWN_BYTES:
        raise InvalidArgument.field(
            "approve.arguments", f"are {len(changed)} bytes; at most {MAX_SHOWN_BYTES} are shown"
        )
    # Refuses what nests too deeply.
    payload.loads_object(payload.dumps({"arguments": approval.arguments}), "approve.arguments")
    schema = document["tool"].get("inputSchema")
    if isinstance(schema, Mapping):
        check_arguments(cast("Mapping[str, Any]", schema), approval.arguments)
    return changed


def _check_remember_s(rule: Mapping[str, Any], remember_s: float) -> float:
    """Return `remember_s`, for how long an approval is remembered. Raises InvalidArgument if the rule forbids that."""
    choices: list[float] = rule["remember_s"]
    if remember_s and remember_s not in choices:
        allowed = ", ".join(f"{choice:g} s" for choice in choices)
        hint = f"must be one of {allowed}" if choices else "is not allowed by the rule; approve this call only"
        raise InvalidArgument.field("approve.remember", hint)
    return remember_s


def _check_suggestions(document: Mapping[str, Any], indices: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of the suggestions taken, sorted. Raises InvalidArgument for an index of no suggestion."""
    offered = len(document.get("suggestions", ()))
    if any(not 0 <= index < offered for index in indices):
        hint = f"must be indices of its suggestions, 0 to {offered - 1}" if offered else "has none to choose from"
        raise InvalidArgument.field("approve.suggestions", hint)
    return tuple(sorted(set(indices)))
