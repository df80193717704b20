"""The gate that calls pass which a rule wants approved: before they are queued, and once more when they are sent.

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
"""What is asked of people where no rule matches and the default is to ask."""

MAX_ASKED: Final = 10
"""How often people are asked about one call, whose tool keeps changing meanwhile."""

JUDGED_FOR_S: Final = 1.0
"""A call that rules let pass is not judged again at sending within so long, if neither they nor its tool change."""

MAX_PASSED: Final = 1000
"""Calls of which it is remembered that rules have let them pass; beyond that the oldest are judged again."""

CALLS_LOOKED_AT: Final = 200
"""How many of the latest calls are searched for those of the caller."""


@dataclass(frozen=True, slots=True)
class HeldQuestion:
    """A call that is to be held, with what people are asked about it; neither is stored yet."""

    call: Call
    request: PendingRequest


@dataclass(frozen=True, slots=True)
class _Passed:
    """The rules and the tool with which a new call was let pass, and when."""

    rules: CallRules
    tool: ToolDefinition
    at: float


class ApprovalGate:
    """Judges calls by the rules, asks people, and lets pass what they have approved."""

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
        self._passed: dict[str, _Passed] = {}
        self.adopt(settings)
        inbox.set_settler(Origin.HUB, remembered.changes_by_answer)

    def adopt(self, settings: ApprovalSettings) -> None:
        """Apply changed settings: calls that are not sent yet are judged by them."""
        self.settings = settings
        self._hub_rules = CallRules.from_settings(settings, {})
        self.is_on = self._hub_rules.active
        """Whether the settings of the hub ask about anything; a server's own may as well."""
        self._rules_by_server.clear()

    def rules_for(self, config: ServerConfig) -> CallRules:
        """Return the rules of the hub that concern a server, with those of its own options."""
        known = self._rules_by_server.get(config.name)
        if known is None or known[0] is not config:  # changed options are another object
            known = self._rules_by_server[config.name] = config, self._hub_rules.for_server(config)
        return known[1]

    # New calls

    async def read_unknown_tool(self, queue: ServerQueue, method: str, params: Mapping[str, Any]) -> None:
        """Fetch the definition of the tool that is to be called, if it is not known and its server is connected."""
        if queue.link is None or not is_tool_call(method):
            return
        if self.tools.find(queue.config.name, str(params.get("name"))) is UNKNOWN_TOOL:
            await self.tools.refresh(queue.config.name)

    def judge_new(self, queue: ServerQueue, call: Call, params: Mapping[str, Any]) -> HeldQuestion | Call:
        """Return a new call as it may be queued, or with its question if it is to be held.

        As long as nobody knows the tool, because its server was never connected, one that may turn out to be allowed is
        queued, and judged when it is sent. Raises PermissionDenied (APPROVAL_RULE_DENIED), InvalidArgument and
        FailedPrecondition (APPROVAL_TOO_LARGE).
        """
        self._passed.pop(call.id, None)
        verdict, tool = self._decide(queue.config, call, params)
        if verdict.action is Action.ALLOW:
            self._note_passed(queue.config, call, tool)
            return call
        if tool is UNKNOWN_TOOL and queue.link is None and self._would_allow_reading(queue.config, call, params):
            return call
        if verdict.action is Action.DENY:
            raise _rule_denied_error(call, verdict)
        approval = self._remembered_approval(call, verdict, tool, params)
        if approval is not None:
            return replaced(call, approval=approval)
        request = self._make_request(queue, call, verdict, tool, params)
        held = core.hold(
            call, CallApproval(rule=_deciding_rule(verdict).name, definition=tool.digest, request_id=request.id)
        )
        return HeldQuestion(held, request)

    async def open_question(self, request: PendingRequest, also: Callable[[], Sequence[Change[Any]]]) -> None:
        """Open the question about a held call in one commit with the call. Raises HubError."""
        await self._inbox.open([request], also)

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
        """Return the verdict by which people are to be asked before a call is sent; None if it may be sent.

        Raises PermissionDenied (APPROVAL_RULE_DENIED) and InvalidArgument.
        """
        if self._has_just_passed(queue.config, call, params):
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
        """Ask people about a call that was about to be sent; queue it at the head, and return the params to send.

        Raises UpstreamError as `wait_for_approval`, and HubError if people cannot be asked.
        """
        if self._is_asked_already(active.call):
            with queue.park(active):
                await self._wait_until_granted(queue, active)
            queue.requeue(active)
            return approved_params(active.call)
        call, tool = active.call, self.tools.find(queue.config.name, str(params.get("name")))
        asked = call.approval.asked + 1 if call.approval is not None else 1
        if asked > MAX_ASKED:
            raise _denial_error(
                "APPROVAL_DENIED", call, f"people were asked {MAX_ASKED} times, and the tool changed each time"
            )
        reason = verdict.problem or _describe_change_since(call, tool)
        request = self._make_request(queue, call, verdict, tool, params, reason=reason)
        approval = CallApproval(
            rule=_deciding_rule(verdict).name,
            definition=tool.digest,
            request_id=request.id,
            asked=asked,
            arguments=call.approval.arguments if call.approval is not None else None,
        )
        with queue.park(active, request.id, at_server=active.was_sent):
            await self._commit_question(active, approval, request)
            await self._wait_until_granted(queue, active)
        queue.requeue(active)
        return approved_params(active.call)

    async def withdraw_unresumed(self, takeover: Takeover, under_way: Iterable[Call]) -> None:
        """Withdraw the questions about calls of the servers taken over, except about the calls `under_way`."""
        wanted = {call.approval.request_id for call in under_way if call.approval is not None}
        why = f"{takeover.event_text}, and its call has ended"
        await self._inbox.abandon_all({Origin.HUB}, why, takeover.requests, but=wanted)

    def has_question(self, call: Call) -> bool:
        """Return whether the pending request of a held call is in the inbox, open or settled."""
        return call.approval is not None and self._inbox.find(call.approval.request_id) is not None

    def _is_asked_already(self, call: Call) -> bool:
        """Return whether a call that was resumed has its question already: an earlier hub asked during its rounds."""
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

    def _note_passed(self, config: ServerConfig, call: Call, tool: ToolDefinition) -> None:
        """Remember for a moment that the rules let a call pass, so that it is not judged twice (`_has_just_passed`)."""
        rules = self.rules_for(config)
        if not rules.active:
            return
        if len(self._passed) >= MAX_PASSED:
            del self._passed[next(iter(self._passed))]
        self._passed[call.id] = _Passed(rules, tool, self._clock.now())

    def _has_just_passed(self, config: ServerConfig, call: Call, params: Mapping[str, Any]) -> bool:
        """Return whether a call was let pass a moment ago, by these rules and with its tool as now; True only once."""
        passed = self._passed.pop(call.id, None)
        # By identity: rules and tools that have changed are other objects.
        return (
            passed is not None
            and call.approval is None
            and passed.rules is self.rules_for(config)
            and passed.tool is self.tools.find(config.name, str(params.get("name")))
            and 0 <= self._clock.now() - passed.at < JUDGED_FOR_S
        )

    def _is_approved(self, call: Call, rule: ApprovalRule, tool: ToolDefinition, params: Mapping[str, Any]) -> bool:
        """Return whether a call has the approvals that a rule asks for now."""
        approval = call.approval
        if approval is None or not approval.granted or approval.definition != tool.digest:
            return False
        digest = canonical_digest(tool_arguments(params))
        if approval.remembered_id:
            return self._find_remembered(call, rule, tool, params, digest) is not None
        counted = count_votes(
            approval.votes,
            caller=call.principal,
            approvers=rule.approvers,
            not_by_caller=rule.not_by_caller,
            digest=digest,
        )
        return counted >= rule.needed

    def _remembered_approval(
        self, call: Call, verdict: Judgement, tool: ToolDefinition, params: Mapping[str, Any]
    ) -> CallApproval | None:
        """Return the approval of a call by a remembered one; None if there is none, or the verdict has a problem."""
        rule = _deciding_rule(verdict)
        found = self._find_remembered(call, rule, tool, params, canonical_digest(tool_arguments(params)))
        if found is None or verdict.problem:
            return None
        return CallApproval(rule=rule.name, definition=tool.digest, remembered_id=found.id, granted=True, asked=0)

    def _find_remembered(
        self, call: Call, rule: ApprovalRule, tool: ToolDefinition, params: Mapping[str, Any], digest: str
    ) -> RememberedApproval | None:
        """Return a remembered approval that is enough for a call; None without one. `digest` is of its arguments."""
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
        latest = islice(self._calls.newest(lambda _: True), CALLS_LOOKED_AT)
        same = [each for each in latest if (each.server, each.principal) == (call.server, call.principal)]
        return [each.id for each in same if each.id != call.id]

    async def _commit_question(self, active: ActiveCall, approval: CallApproval, request: PendingRequest) -> None:
        """Commit a question together with the call, which is not sent as long as it is open. Raises HubError."""
        before = active.call
        held = replaced(before, approval=approval, started_at=before.started_at if active.was_sent else None)

        def plan_call() -> list[Change[Any]]:
            """Return the change by which the call is held, for the commit of its question."""
            return self._calls.plan_step(before.id, partial(core.merge_change, before, held))

        active.call = held
        active.is_recorded_as_sent = active.was_sent
        await self._inbox.open([request], plan_call)

    async def _wait_until_granted(self, queue: ServerQueue, active: ActiveCall) -> None:
        """Wait for the answer of a call's question, and note it in the call in one commit. Raises UpstreamError."""
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
    """Return the rule by which a verdict was found; the default's where none matches."""
    return verdict.rule or DEFAULT_RULE


def _describe_change_since(call: Call, tool: ToolDefinition) -> str:
    """Return why people are asked about a call that was about to be sent."""
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
    words = f": {rule.message}" if rule.message else ""
    return PermissionDenied(
        f"the rule {rule.name!r} does not allow this call of {call.server}{words}",
        reason="APPROVAL_RULE_DENIED",
        metadata={"rule": rule.name, "server": call.server, "message": rule.message},
    )


def _unapproved_error(call: Call, settled: PendingRequest) -> UpstreamError:
    """Return the error of a call whose question was settled without an approval."""
    match settled.state:
        case RequestState.ANSWERED:
            assert settled.answer is not None
            reason = cast("str", payload.loads(settled.answer.payload).get("reason", ""))
            words = f"{settled.answered_by} said no to this call{f': {reason}' if reason else ''}"
            return _denial_error("APPROVAL_DENIED", call, words, denied_by=settled.answered_by or "", reason=reason)
        case RequestState.EXPIRED:
            waited_s = str(round((settled.deadline or settled.created_at) - settled.created_at))
            words = f"this call was not made: {settled.reason}"
            return _denial_error("APPROVAL_EXPIRED", call, words, waited_s=waited_s)
        case _:
            return _denial_error("APPROVAL_WITHDRAWN", call, f"this call was not made: {settled.reason}")


def _denial_error(code: str, call: Call, message: str, **details: str) -> UpstreamError:
    """Return the error of a call that was not approved; `code` is that of its fault."""
    rule = call.approval.rule if call.approval is not None else ""
    fault = Fault(code=code, category=Category.APPROVAL, message=message, details={"rule": rule, **details})
    return UpstreamError(fault)
