"""ApprovalService: remembered approvals; the rules: which there are, what they say and would have said."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

import anyio.lowlevel
from anyio import to_thread

from hubbub.v1 import approval_pb2 as pb
from hubbubd import bounds, payload
from hubbubd.conditions import CallFacts
from hubbubd.config.sections.approvals import Action, ApprovalSettings, parse_approvals
from hubbubd.core.access import EVERYTHING, Permission, call_origin, matches
from hubbubd.core.approvals.facts import collect_facts, is_tool_call
from hubbubd.core.approvals.remembered import RememberedApproval
from hubbubd.core.approvals.replay import Replay
from hubbubd.core.approvals.requests import UNKNOWN_TOOL, canonical_digest
from hubbubd.core.approvals.rules import CallRules, Judgement, describe_verdict
from hubbubd.core.calls.call_states import Call
from hubbubd.core.filters import CallFilter
from hubbubd.errors import ConfigError, InvalidArgument, NotFound
from hubbubd.rpc.auth import access
from hubbubd.rpc.context import principal
from hubbubd.rpc.messages import approval_records, pages, requests
from hubbubd.runtime.calls import DEFAULT_RULE, HOST
from hubbubd.runtime.diagnostics import rule_checks
from hubbubd.runtime.hub import Hub

UNKNOWN = "The server is not known to offer this tool, so its hints count as not given."
"""A note for a verdict that may change once the tools of the server are known."""


MAX_RULES_CHARS: Final = 256 * 1024
"""The longest document with rules to try: a thousand of them."""


class ApprovalService:
    """Implements hubbub.v1.ApprovalService."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._gate = hub.approvals

    async def list_remembered_approvals(
        self, request: pb.ListRememberedApprovalsRequest
    ) -> pb.ListRememberedApprovalsResponse:
        """Return a page of the remembered approvals that hold, newest first."""
        scope, server = access.approval_servers(), requests.optional_identifier(request.filter.server, "filter.server")
        valid = self._gate.remembered.list_valid()
        approvals, token = pages.page_records(
            [each for each in valid if scope.has_server(each.server) and server in (None, each.server)],
            request,
            pages.newest_position,
            approval_records.remembered,
            list_filter=request.filter,
            scope=scope,
            backwards=pages.is_oldest_first(request),
        )
        return pb.ListRememberedApprovalsResponse(approvals=approvals, next_page_token=token)

    async def revoke_remembered_approval(
        self, request: pb.RevokeRememberedApprovalRequest
    ) -> pb.RevokeRememberedApprovalResponse:
        """Forget a remembered approval; durable when this returns."""
        record = self._find_remembered(requests.identifier(request.id, "id"))
        access.check_server(record.server, Permission.APPROVE)
        revoked = await self._gate.remembered.revoke(record.id)
        return pb.RevokeRememberedApprovalResponse(approval=approval_records.remembered(revoked))

    async def get_approval_rules(self, _request: pb.GetApprovalRulesRequest) -> pb.GetApprovalRulesResponse:
        """Return the rules about servers that the caller may see; a caller that sees all servers also gets warnings."""
        scope, configs = access.approval_servers(), rule_checks.servers_under_rules(self._hub)
        rules = CallRules.from_settings(self._gate.settings, configs)
        visible = [name for name in configs if scope.has_server(name)]
        visible_rules = [each for each in rules.rules if any(matches(each.servers, name) for name in visible)]
        return pb.GetApprovalRulesResponse(
            rules=map(approval_records.rule, rules.rules if scope == EVERYTHING else visible_rules),
            default_action=approval_records.ACTIONS[rules.default],
            warnings=self._find_warnings(rules),
        )

    async def check_approval(self, request: pb.CheckApprovalRequest) -> pb.CheckApprovalResponse:
        """Return the rules' verdict on a call, not made. Raises InvalidArgument, NotFound, PermissionDenied."""
        facts = self._parse_facts(request)
        config = rule_checks.servers_under_rules(self._hub).get(access.check_server(facts.server, Permission.SEE))
        if config is None:
            raise NotFound("server", facts.server)
        tool = self._gate.tools.find(facts.server, facts.tool)
        facts = replace(facts, hints=tool.hints)
        verdict = self._gate.rules_for(config).decide(facts)
        note = f" {UNKNOWN}" if tool is UNKNOWN_TOOL and facts.server != HOST else ""
        remembered = self._find_remembered_for(verdict, facts, tool.digest)
        if remembered is None:
            return _make_check_response(verdict, f"{describe_verdict(verdict)}{note}")
        reason = f"{describe_verdict(verdict)} The approval {remembered.id} is remembered, with which it is sent.{note}"
        return _make_check_response(Judgement(Action.ALLOW, verdict.rule), reason, remembered.id)

    async def replay_approvals(self, request: pb.ReplayApprovalsRequest) -> pb.ReplayApprovalsResponse:
        """Run rules over the calls in the history that the caller may see."""
        server = requests.optional_identifier(request.server, "server") or ""
        since_s = requests.span_s(request.since, "since") if request.HasField("since") else bounds.LONGEST_S
        settings, configs = self._gate.settings, rule_checks.servers_under_rules(self._hub)
        if request.rules:
            settings = await to_thread.run_sync(_parse_rules, request.rules)  # to compile conditions takes a while
        rules = CallRules.from_settings(settings, configs)
        replay, calls = Replay(rules), self._calls_since(server, self._hub.clock.now() - since_s)
        for _ in replay.judge_in_steps(self._iterate_with_facts(calls)):
            await anyio.lowlevel.checkpoint()
        summary = replay.summarize()
        return pb.ReplayApprovalsResponse(
            rows=map(approval_records.replay_row, summary.rows),
            calls=summary.calls,
            asked=summary.asked,
            denied=summary.denied,
            warnings=self._find_warnings(rules),
        )

    def _parse_facts(self, request: pb.CheckApprovalRequest) -> CallFacts:
        """Return what rules would know of the call, except the hints of its tool. Raises InvalidArgument."""
        server = requests.identifier(request.server, "server")
        requester, caller = principal(), requests.optional_identifier(request.caller, "caller")
        roles = requests.names(request.roles, "roles")
        if caller is None and not roles:
            roles = call_origin(requester.grants, requester.groups, server).roles
        return CallFacts(
            server=server,
            tool=requests.identifier(request.tool, "tool", longest=requests.MAX_METHOD),
            args=payload.loads_object(request.arguments, "arguments") if request.arguments else {},
            argument_bytes=len(request.arguments),
            hints={},
            caller=caller or requester.name,
            roles=roles,
            host=requests.optional_identifier(request.host, "host") or "",
            profile=requests.optional_identifier(request.profile, "profile") or "",
            now=datetime.fromtimestamp(self._hub.clock.now(), UTC),
        )

    def _find_remembered(self, approval_id: str) -> RememberedApproval:
        """Return a remembered approval that the caller may see. Raises NotFound."""
        record = self._gate.remembered.find(approval_id)
        if record is None or not access.approval_servers().has_server(record.server):
            raise NotFound("approval", approval_id)
        return record

    def _find_remembered_for(self, verdict: Judgement, facts: CallFacts, definition: str) -> RememberedApproval | None:
        """Return the remembered approval with which a call would be sent, by the rules' verdict on the call.

        None without one, if the verdict is not to ask, or if a condition failed (`problem`): then people are asked.
        `definition` is the digest of the tool's definition.
        """
        if verdict.action is not Action.ASK or verdict.problem:
            return None
        rule, digest = verdict.rule or DEFAULT_RULE, canonical_digest(facts.args)
        return self._gate.remembered.find_for(facts.server, facts.tool, facts.caller, rule, definition, digest)

    def _calls_since(self, server: str, earliest: float) -> list[Call]:
        """Return the calls of tools that the caller may see, newest first."""
        call_filter = CallFilter(server=server, scope=access.observable_servers())
        recent_calls = takewhile(lambda call: call.created_at >= earliest, self._hub.calls.newest(call_filter))
        return [call for call in recent_calls if is_tool_call(call.method)]

    def _iterate_with_facts(self, calls: Iterable[Call]) -> Iterator[tuple[Call, CallFacts]]:
        """Yield the calls whose params can be read, with what rules know of each."""
        for call in calls:
            with suppress(InvalidArgument):
                params = payload.loads_message(call.params, "params")
                hints = self._gate.tools.find(call.server, str(params.get("name"))).hints
                yield call, collect_facts(call, params, hints, call.created_at)

    def _find_warnings(self, rules: CallRules) -> Iterable[str]:
        """Return warnings about usable rules; none for callers who do not see all servers."""
        if access.approval_servers() != EVERYTHING:
            return ()
        return rule_checks.find_unmatched(self._hub, rules)


def _parse_rules(text: str) -> ApprovalSettings:
    """Return the rules of a caller. Raises InvalidArgument, which names the rule and the line."""
    if len(text) > MAX_RULES_CHARS:
        raise InvalidArgument.field("rules", f"may have at most {MAX_RULES_CHARS} characters")
    try:
        return parse_approvals(text, "rules")
    except ConfigError as exc:
        raise InvalidArgument.field("rules", f"{exc.key}: {exc.problem}".removeprefix("rules: ")) from None


def _make_check_response(verdict: Judgement, reason: str, remembered_id: str = "") -> pb.CheckApprovalResponse:
    """Return what would happen to a call, by which rule and why; an empty id means that no approval is remembered."""
    return pb.CheckApprovalResponse(
        action=approval_records.ACTIONS[verdict.action],
        rule=approval_records.rule(verdict.rule) if verdict.rule is not None else None,
        reason=reason,
        remembered_id=remembered_id,
    )
