"""The gate for calls that a rule wants approved: calls pass it before they are queued, and again when they are sent.

new call ──> judged ──allow──> queue ──> its turn ──> judged again ──allow──> sent
               │ ask                                      │ ask: the rule or the tool's definition has changed
               v                                          v
             held, with its question durable        parked, with its question durable
               └──approved──> queue                       └──approved──> head of the queue
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from secrets import token_hex
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.config import ServerConfig
from hubbubd.config.sections.approvals import Action, ApprovalRule, ApprovalSettings
from hubbubd.core.approvals.facts import collect_facts, is_tool_call, require_unambiguous_params
from hubbubd.core.approvals.remembered import RememberedApproval
from hubbubd.core.approvals.requests import (
    UNKNOWN_TOOL,
    ToolDefinition,
    approved_params,
    canonical_digest,
    make_document,
    read_folder,
    tool_arguments,
)
from hubbubd.core.approvals.rules import CallRules, Judgement
from hubbubd.core.approvals.votes import count_votes, is_approval
from hubbubd.core.calls import call_states as core
from hubbubd.core.calls.call_states import Call, CallApproval
from hubbubd.core.inbox.request_states import CauseSource, Origin, PendingRequest, RequestKind, RequestState
from hubbubd.errors import Category, Fault, NotFound, PermissionDenied, UpstreamError
from hubbubd.frozen import replaced
from hubbubd.runtime.calls.approvals.remembered import RememberedApprovals
from hubbubd.runtime.calls.approvals.tool_definitions import ToolDefinitions
from hubbubd.runtime.calls.queue import ActiveCall, ServerQueue
from hubbubd.runtime.catalog import Catalog
from hubbubd.runtime.inbox import Inbox
from hubbubd.runtime.ownership import Takeover
from hubbubd.runtime.records import Change, Table
from hubbubd.timing.clock import Clock

DEFAULT_RULE: Final = ApprovalRule(name="default")
"""The rule that applies where no other matches and the default is to ask people."""

MAX_QUESTIONS: Final = 10
"""The most questions to people about one call, whose tool keeps changing meanwhile."""

VERDICT_VALID_S: Final = 1.0
"""Seconds for which a call that rules allowed is not judged again at sending, if rules and tool stay the same."""

MAX_JUST_ALLOWED: Final = 1000
"""The most calls that are remembered as just allowed; beyond that the oldest are judged again."""

MAX_CALLS_SEARCHED: Final = 200
"""How many of the latest calls of all callers are searched for those of one caller."""


@dataclass(frozen=True, slots=True)
class HeldQuestion:
    """A call that is to be held, with what people are asked about it; neither is stored yet."""

    call: Call
    request: PendingRequest


@dataclass(frozen=True, slots=True)
class _AllowedCall:
    """The rules and the tool with which a new call was allowed, and when (seconds since the epoch)."""

    rules: CallRules
    tool: ToolDefinition
    at: float


class ApprovalGate:
    """Judges calls by the rules, holds those that need approval, and asks people about them."""

    def __init__(
        self,
        *,
        settings: ApprovalSettings,
        inbox: Inbox,
        calls: Table[Call],
        catalog: Catalog,
        remembered: RememberedApprovals,
        clock: Clock,
    ) -> None:
        self.remembered = remembered
        self.tools = ToolDefinitions(catalog)
        self._inbox = inbox
        self._calls = calls
        self._clock = clock
        self._rules_by_server: dict[str, tuple[ServerConfig, CallRules]] = {}
        self._just_allowed: dict[str, _AllowedCall] = {}
        self.adopt(settings)
        inbox.set_settler(Origin.HUB, remembered.changes_by_answer)

    def adopt(self, settings: ApprovalSettings) -> None:
        """Apply changed settings: calls that are not sent yet are judged by them."""
        self.settings = settings
        self._hub_rules = CallRules.from_settings(settings, {})
        self.is_on = self._hub_rules.active
        """Whether the hub's settings have rules that apply; the options of a server may have rules of their own."""
        self._rules_by_server.clear()

    def rules_for(self, config: ServerConfig) -> CallRules:
        """Return the rules of the hub that concern a server, with those of its own options."""
        cached = self._rules_by_server.get(config.name)
        if cached is None or cached[0] is not config:  # changed options are another object
            cached = self._rules_by_server[config.name] = config, self._hub_rules.for_server(config)
        return cached[1]

    # New calls

    async def fetch_unknown_tool(self, queue: ServerQueue, method: str, params: Mapping[str, Any]) -> None:
        """Fetch the definition of the tool that is to be called, if the tool is unknown and its server is connected."""
        if queue.link is None or not is_tool_call(method):
            return
        if self.tools.find(queue.config.name, str(params.get("name"))) is UNKNOWN_TOOL:
            await self.tools.refresh(queue.config.name)

    def judge_new(self, queue: ServerQueue, call: Call, params: Mapping[str, Any]) -> HeldQuestion | Call:
        """Return a new call that may be queued, or one that is to be held, with its question.

        If the tool is unknown, because its server was never connected, a call that may turn out to be allowed is
        queued, and judged when it is sent. Raises PermissionDenied (APPROVAL_RULE_DENIED), InvalidArgument and
        FailedPrecondition (APPROVAL_TOO_LARGE).
        """
        self._just_allowed.pop(call.id, None)
        verdict, tool = self._decide(queue.config, call, params)
        if verdict.action is Action.ALLOW:
            self._note_allowed(queue.config, call, tool)
            return call
        if tool is UNKNOWN_TOOL and queue.link is None and self._would_allow_reading(queue.config, call, params):
            return call
        if verdict.action is Action.DENY:
            raise _rule_denied_error(call, verdict)
        approval = self._remembered_approval(call, verdict, tool, params)
        if approval is not None:
            return replaced(call, approval=approval)
        request = self._make_request(queue, call, verdict, tool, params)
        held_call = core.hold(
            call, CallApproval(rule=_deciding_rule(verdict).name, definition=tool.digest, request_id=request.id)
        )
        return HeldQuestion(held_call, request)

    async def open_question(self, request: PendingRequest, plan_more: Callable[[], Sequence[Change[Any]]]) -> None:
        """Open the question about a held call, in one commit with the changes of `plan_more`. Raises HubError."""
        await self._inbox.open([request], plan_more)

    async def wait_for_approval(self, queue: ServerQueue, active: ActiveCall) -> dict[str, Any]:
        """Wait until people have approved a held call, queue it, and return the params to send.

        Raises UpstreamError: APPROVAL_DENIED, APPROVAL_EXPIRED, APPROVAL_WITHDRAWN.
        """
        with queue.hold([active]):
            await self._wait_until_granted(queue, active)
        queue.enqueue_approved(active)
        return approved_params(active.call)

    # At sending

    async def refresh_tool(self, queue: ServerQueue, call: Call) -> None:
        """Fetch the definition of the tool of a call that is about to be sent, unless it is current."""
        if is_tool_call(call.method) and self.rules_for(queue.config).active:
            await self.tools.refresh(queue.config.name)

    def find_objection(self, queue: ServerQueue, call: Call, params: Mapping[str, Any]) -> Judgement | None:
        """Return the verdict for which people must be asked before a call is sent; None if it may be sent.

        Raises PermissionDenied (APPROVAL_RULE_DENIED) and InvalidArgument.
        """
        if self._was_just_allowed(queue.config, call, params):
            return None
        verdict, tool = self._decide(queue.config, call, params)
        if verdict.action is Action.ALLOW:
            return None
        if verdict.action is Action.DENY:
            raise _rule_denied_error(call, verdict)
        return None if self._is_approved(call, _deciding_rule(verdict), tool, params) else verdict

    async def ask_again(
        self, queue: ServerQueue, active: ActiveCall, params: Mapping[str, Any], verdict: Judgement
    ) -> dict[str, Any]:
        """Ask people about a call that was about to be sent. Then queue it at the head, and return the params to send.

        Raises UpstreamError as `wait_for_approval`, and HubError if people cannot be asked.
        """
        if self._has_stored_question(active.call):
            with queue.park(active):
                await self._wait_until_granted(queue, active)
            queue.requeue(active)
            return approved_params(active.call)
        call, tool = active.call, self.tools.find(queue.config.name, str(params.get("name")))
        question_count = call.approval.asked + 1 if call.approval is not None else 1
        if question_count > MAX_QUESTIONS:
            raise _denial_error(
                "APPROVAL_DENIED", call, f"people were asked {MAX_QUESTIONS} times, and the tool changed each time"
            )
        reason = verdict.problem or _describe_change_since(call, tool)
        request = self._make_request(queue, call, verdict, tool, params, reason=reason)
        approval = CallApproval(
            rule=_deciding_rule(verdict).name,
            definition=tool.digest,
            request_id=request.id,
            asked=question_count,
            arguments=call.approval.arguments if call.approval is not None else None,
        )
        with queue.park(active, request.id, at_server=active.was_sent):
            await self._commit_question(active, approval, request)
            await self._wait_until_granted(queue, active)
        queue.requeue(active)
        return approved_params(active.call)

    async def withdraw_unresumed(self, takeover: Takeover, under_way: Iterable[Call]) -> None:
        """Withdraw the questions about calls of the servers taken over, except about the calls `under_way`."""
        needed_ids = {call.approval.request_id for call in under_way if call.approval is not None}
        reason = f"{takeover.event_text}, and its call has ended"
        await self._inbox.abandon_all({Origin.HUB}, reason, takeover.requests, except_ids=needed_ids)

    def has_question(self, call: Call) -> bool:
        """Return whether the pending request of a held call is in the inbox, open or settled."""
        return call.approval is not None and self._inbox.find(call.approval.request_id) is not None

    def _has_stored_question(self, call: Call) -> bool:
        """Return whether an earlier hub asked people about a call that was being sent, and no approval is noted yet."""
        return call.approval is not None and not call.approval.granted and self.has_question(call)

    # Deciding

    def _decide(self, config: ServerConfig, call: Call, params: Mapping[str, Any]) -> tuple[Judgement, ToolDefinition]:
        """Return the verdict of the rules on a call, and its tool as the server lists it. Raises InvalidArgument."""
        rules = self.rules_for(config)
        if not rules.active or not is_tool_call(call.method):
            return Judgement(Action.ALLOW), UNKNOWN_TOOL
        require_unambiguous_params(params)
        tool_name = str(params.get("name"))
        tool = self.tools.find(config.name, tool_name)
        facts = collect_facts(call, params, tool.hints, self._clock.now())
        return rules.decide(facts), tool

    def _would_allow_reading(self, config: ServerConfig, call: Call, params: Mapping[str, Any]) -> bool:
        """Return whether the rules allow a call if its tool is one that only reads."""
        facts = collect_facts(call, params, {"readOnlyHint": True}, self._clock.now())
        return self.rules_for(config).decide(facts).action is Action.ALLOW

    def _note_allowed(self, config: ServerConfig, call: Call, tool: ToolDefinition) -> None:
        """Remember for a moment that the rules allow a call, so that it is not judged twice (`_was_just_allowed`)."""
        rules = self.rules_for(config)
        if not rules.active:
            return
        if len(self._just_allowed) >= MAX_JUST_ALLOWED:
            del self._just_allowed[next(iter(self._just_allowed))]
        self._just_allowed[call.id] = _AllowedCall(rules, tool, self._clock.now())

    def _was_just_allowed(self, config: ServerConfig, call: Call, params: Mapping[str, Any]) -> bool:
        """Return whether these rules allowed a call a moment ago, with its tool as it is now; True only once."""
        allowed = self._just_allowed.pop(call.id, None)
        # By identity: rules and tools that have changed are other objects.
        return (
            allowed is not None
            and call.approval is None
            and allowed.rules is self.rules_for(config)
            and allowed.tool is self.tools.find(config.name, str(params.get("name")))
            and 0 <= self._clock.now() - allowed.at < VERDICT_VALID_S
        )

    def _is_approved(self, call: Call, rule: ApprovalRule, tool: ToolDefinition, params: Mapping[str, Any]) -> bool:
        """Return whether a call has the approvals that a rule requires, for its tool and arguments as they are now."""
        approval = call.approval
        if approval is None or not approval.granted or approval.definition != tool.digest:
            return False
        digest = canonical_digest(tool_arguments(params))
        if approval.remembered_id:
            return self._find_remembered(call, rule, tool, params, digest) is not None
        vote_count = count_votes(
            approval.votes,
            caller=call.principal,
            approvers=rule.approvers,
            not_by_caller=rule.not_by_caller,
            digest=digest,
        )
        return vote_count >= rule.needed

    def _remembered_approval(
        self, call: Call, verdict: Judgement, tool: ToolDefinition, params: Mapping[str, Any]
    ) -> CallApproval | None:
        """Return the approval of a call by a remembered one; None without one, or if a condition failed (`problem`)."""
        rule = _deciding_rule(verdict)
        remembered = self._find_remembered(call, rule, tool, params, canonical_digest(tool_arguments(params)))
        if remembered is None or verdict.problem:
            return None
        return CallApproval(rule=rule.name, definition=tool.digest, remembered_id=remembered.id, granted=True, asked=0)

    def _find_remembered(
        self, call: Call, rule: ApprovalRule, tool: ToolDefinition, params: Mapping[str, Any], digest: str
    ) -> RememberedApproval | None:
        """Return a remembered approval that suffices for a call; None without one. `digest` is of the arguments."""
        name, folder = str(params.get("name")), read_folder(call.server, params)
        return self.remembered.find_for(call.server, name, call.principal, rule, tool.digest, digest, folder=folder)

    # Asking

    def _make_request(
        self,
        queue: ServerQueue,
        call: Call,
        verdict: Judgement,
        tool: ToolDefinition,
        params: Mapping[str, Any],
        *,
        reason: str = "",
    ) -> PendingRequest:
        """Return the question about a call, not stored yet; its span begins here. Raises as `make_document`."""
        now = self._clock.now()
        document = make_document(
            call,
            _deciding_rule(verdict),
            tool,
            params,
            reason=reason or verdict.problem,
            earlier_call_ids=self._calls_before(call),
        )
        return PendingRequest(
            id=f"req_{token_hex(8)}",
            server=call.server,
            kind=RequestKind.APPROVAL,
            origin=Origin.HUB,
            request=document,
            created_at=now,
            deadline=now + self.settings.expires_after_s,
            call_id=call.id,
            cause_source=CauseSource.WIRE,
            principal=call.principal,
            trace=queue.tracer.begin(call.trace, "ask approval"),
        )

    def _calls_before(self, call: Call) -> list[str]:
        """Return the ids of the caller's latest calls of the server, newest first."""
        latest = islice(self._calls.newest(lambda _: True), MAX_CALLS_SEARCHED)
        of_caller = [each for each in latest if (each.server, each.principal) == (call.server, call.principal)]
        return [each.id for each in of_caller if each.id != call.id]

    async def _commit_question(self, active: ActiveCall, approval: CallApproval, request: PendingRequest) -> None:
        """Commit a question together with its call, which is not sent while the question is open. Raises HubError."""
        before = active.call
        held_call = replaced(before, approval=approval, started_at=before.started_at if active.was_sent else None)

        def plan_call() -> list[Change[Any]]:
            """Return the change that holds the call, for the commit of its question."""
            return self._calls.plan_step(before.id, partial(core.merge_change, before, held_call))

        active.call = held_call
        active.is_recorded_as_sent = active.was_sent
        await self._inbox.open([request], plan_call)

    async def _wait_until_granted(self, queue: ServerQueue, active: ActiveCall) -> None:
        """Wait for the answer to a call's question, and commit it with the call. Raises UpstreamError if refused."""
        approval = active.call.approval
        assert approval is not None, "it is held"
        try:
            settled = await self._inbox.wait(approval.request_id)
        except NotFound:
            raise _denial_error("APPROVAL_WITHDRAWN", active.call, "its question has been deleted") from None
        granted = settled.state is RequestState.ANSWERED and is_approval(settled.answer)
        if granted:
            arguments = approval.arguments if settled.changed is None else settled.changed
            approval = replaced(approval, granted=True, votes=settled.votes, arguments=arguments)
            queue.change(active, replaced(active.call, approval=approval))
        await self._inbox.mark_all_delivered([settled.id], lambda: self._calls.waiting_changes(active.call.id))
        if not granted:
            raise _unapproved_error(active.call, settled)


def _deciding_rule(verdict: Judgement) -> ApprovalRule:
    """Return the rule that decided a verdict; DEFAULT_RULE where no rule matches."""
    return verdict.rule or DEFAULT_RULE


def _describe_change_since(call: Call, tool: ToolDefinition) -> str:
    """Return the reason, for people, why they are asked about a call that was about to be sent."""
    if call.approval is not None and call.approval.definition == UNKNOWN_TOOL.digest != tool.digest:
        return "this tool was not known when its call was approved, as its server had not been connected"
    if call.approval is not None and call.approval.definition != tool.digest:
        return "the server has changed the definition of this tool since it was approved"
    if call.approval is not None:
        return "the rule asks for more now"
    return "the rules, or what is known of this tool, have changed since this call was made"


def _rule_denied_error(call: Call, verdict: Judgement) -> PermissionDenied:
    """Return the refusal of a call that a rule denies (APPROVAL_RULE_DENIED)."""
    rule = _deciding_rule(verdict)
    text = f": {rule.message}" if rule.message else ""
    return PermissionDenied(
        f"the rule {rule.name!r} does not allow this call of {call.server}{text}",
        reason="APPROVAL_RULE_DENIED",
        metadata={"rule": rule.name, "server": call.server, "message": rule.message},
    )


def _unapproved_error(call: Call, settled: PendingRequest) -> UpstreamError:
    """Return the error of a call whose question was settled without an approval."""
    match settled.state:
        case RequestState.ANSWERED:
            assert settled.answer is not None
            reason = cast("str", payload.loads(settled.answer.payload).get("reason", ""))
            text = f"{settled.answered_by} said no to this call{f': {reason}' if reason else ''}"
            return _denial_error("APPROVAL_DENIED", call, text, denied_by=settled.answered_by or "", reason=reason)
        case RequestState.EXPIRED:
            waited_s = str(round((settled.deadline or settled.created_at) - settled.created_at))
            text = f"this call was not made: {settled.reason}"
            return _denial_error("APPROVAL_EXPIRED", call, text, waited_s=waited_s)
        case _:
            return _denial_error("APPROVAL_WITHDRAWN", call, f"this call was not made: {settled.reason}")


def _denial_error(code: str, call: Call, message: str, **details: str) -> UpstreamError:
    """Return the error of a call that was not approved; `code` and `details` are those of its fault."""
    rule = call.approval.rule if call.approval is not None else ""
    fault = Fault(code=code, category=Category.APPROVAL, message=message, details={"rule": rule, **details})
    return UpstreamError(fault)
