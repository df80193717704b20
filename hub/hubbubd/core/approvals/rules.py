"""Which calls a person has to approve: the first rule that matches a call decides.

A rule that asks or denies also matches names that a careless server would treat as the same (Unicode, case, spaces).
One that allows matches the exact name only. A condition that fails to evaluate never allows a call
(`CallRules.decide`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from itertools import islice
from typing import Final, Self

from hubbubd.conditions import (
    MAX_COMBINED,
    WRITES,
    CallFacts,
    Condition,
    ConditionProblem,
    Conditions,
    EvaluationContext,
)
from hubbubd.config import ServerConfig
from hubbubd.config.sections.approvals import CONFIRM, Action, ApprovalRule, ApprovalSettings
from hubbubd.config.servers import confirmed
from hubbubd.core.approvals.facts import plain_name

ANY: Final = "*"
LONGEST_TOOL: Final = 1000
"""A longer name of a tool is not compared: each rule that asks or denies matches it, and none that allows."""

MIN_COMBINED: Final = 3
"""Conditions that are worth being compiled together."""

REMEMBERED_NAMES: Final = 4096
"""Tools of which it is remembered which rules match their names."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of a call. `rule` is None where the default counts; `problem` says which condition failed."""

    action: Action
    rule: ApprovalRule | None = None
    problem: str = ""


class CallRules:
    """The rules in their order, and what counts where none matches."""

    def __init__(self, rules: Iterable[ApprovalRule], default: Action = Action.ALLOW) -> None:
        """Compile the patterns of the rules. `default` counts for calls that no rule matches."""
        self.rules = tuple(rules)
        self.default = default
        self.active = default is not Action.ALLOW or any(map(_can_ask_or_deny, self.rules))
        """Whether any call can be asked about or denied."""
        self._patterns = [_Patterns(rule) for rule in self.rules]
        self._cached_for_server = lru_cache(REMEMBERED_NAMES)(self._find_for_server)
        self._cached_for_tool = lru_cache(REMEMBERED_NAMES)(self._find_for_tool)

    @classmethod
    def from_settings(cls, settings: ApprovalSettings, servers: Mapping[str, ServerConfig]) -> Self:
        """Return the rules of the file, then those that `confirm` of each server makes, then those of the hub's own."""
        presets = (rule for name, config in servers.items() for rule in _make_confirm_rules(config.confirm, name))
        return cls((*settings.rules, *presets, *_make_confirm_rules(settings.confirm)), settings.default)

    def for_server(self, config: ServerConfig) -> "CallRules":
        """Return the rules that concern a server, with the rules that its option `confirm` stands for.

        The rules of `confirm` come after the rules of the file, and before those of the hub's own `confirm`.
        """
        rules = [each.rule for each in self._cached_for_server(config.name)]
        first_preset = next((at for at, rule in enumerate(rules) if rule.preset), len(rules))
        own_rules = _make_confirm_rules(config.confirm, config.name)
        return CallRules((*rules[:first_preset], *own_rules, *rules[first_preset:]), self.default)

    def decide(self, facts: CallFacts) -> Judgement:
        """Return the verdict of the rules on a call.

        A rule whose condition fails to evaluate counts as a rule that asks. Then the rules after it are judged as well,
        and the stricter of the two verdicts counts; of two that ask, the first counts.
        """
        find = self._cached_for_tool if len(facts.tool) <= LONGEST_TOOL else self._find_for_tool
        context = EvaluationContext(facts)
        failed: Judgement | None = None
        for group in find(facts.server, facts.tool):
            for rule, problem in group.find_matching(context, is_failed=failed is not None):
                if not problem:
                    return stricter(failed, Judgement(rule.action, rule))
                failed = failed or Judgement(Action.ASK, rule, f"the condition of {rule.name!r} failed: {problem}")
        return stricter(failed, Judgement(self.default))

    def find_unmatched(self, servers: Iterable[str], tools: Mapping[str, Iterable[str]]) -> Iterator[str]:
        """Yield a warning for each rule with patterns that match nothing.

        `tools` has the names of the tools of the servers whose lists are known.
        """
        server_names = list(servers)
        for each in self._patterns:
            rule = each.rule
            if unknown := [
                pattern for pattern in rule.servers if not any(fnmatchcase(name, pattern) for name in server_names)
            ]:
                yield f"rule {rule.name!r}: no server matches {_join_quoted(unknown)}"
            matching_servers = [name for name in server_names if each.has_server(name)]
            # Whether a pattern of tools matches nothing is certain only if the tools of all these servers are known.
            if not matching_servers or not all(name in tools for name in matching_servers):
                continue
            offered_tools = [tool for name in matching_servers for tool in tools[name]]
            if unknown := [pattern for pattern in rule.tools if not _Patterns(rule, (pattern,)).has_any(offered_tools)]:
                yield f"rule {rule.name!r}: no tool of {_join_quoted(matching_servers)} matches {_join_quoted(unknown)}"

    def _find_for_server(self, server: str) -> "tuple[_Patterns, ...]":
        """Return the patterns of the rules that concern a server, in order."""
        return tuple(each for each in self._patterns if each.has_server(server))

    def _find_for_tool(self, server: str, tool: str) -> "tuple[_RuleGroup, ...]":
        """Return the rules for a tool, in order, up to the first without a condition.

        They are in groups of MAX_COMBINED, whose conditions are evaluated in one go.
        """
        plain_tool = plain_name(tool) if len(tool) <= LONGEST_TOOL else ""
        rules: list[ApprovalRule] = []
        for each in self._cached_for_server(server):
            if each.has_tool(tool, plain_tool):
                rules.append(each.rule)
                if each.rule.when is None:
                    break  # nothing gets past it
        return tuple(_RuleGroup(tuple(rules[at : at + MAX_COMBINED])) for at in range(0, len(rules), MAX_COMBINED))


def stricter(first: Judgement | None, second: Judgement) -> Judgement:
    """Return the verdict with the stricter action; the first of two that are equal."""
    return second if first is None or second.action > first.action else first


def describe_verdict(verdict: Judgement) -> str:
    """Return a text for people: what becomes of a call, and why."""
    outcome = {Action.ALLOW: "is sent", Action.ASK: "waits for approval", Action.DENY: "is refused"}[verdict.action]
    rule = verdict.rule
    if rule is None:
        return f"The call {outcome}: no rule matches it, and the default is {verdict.action.name.lower()!r}."
    if verdict.problem:
        return f"The call {outcome}: {verdict.problem}.{_describe_approvers(rule)}"
    reason = f"the rule {rule.name!r} is the first that matches"
    if rule.when is not None:
        reason += f", and its condition holds ({rule.when.text})"
    return f"The call {outcome}: {reason}.{_describe_approvers(rule) if verdict.action is Action.ASK else ''}"


def _describe_approvers(rule: ApprovalRule) -> str:
    """Return a sentence for people, after a space, that says how many have to approve a call, and who may."""
    names = f" of {_join_quoted(rule.approvers)}" if rule.approvers else ""
    people = (
        f"One person{names} has to approve it"
        if rule.needed == 1
        else f"{rule.needed} people{names} have to approve it"
    )
    return f" {people}{', and not who makes it' if rule.not_by_caller else ''}."


class _RuleGroup:
    """Some of the rules that match a tool, in their order; their conditions are evaluated in one go.

    Only the last one can be without a condition, as none counts after it. So a condition has the index of its rule.
    """

    def __init__(self, rules: tuple[ApprovalRule, ...]) -> None:
        """Compile the conditions of the rules into one, if that is possible and worth the work."""
        self._rules = rules
        self._unconditional = tuple(rule for rule in rules if rule.when is None)
        self._combined = _compile_combined(tuple(rule.when for rule in rules if rule.when is not None))

    def find_matching(self, context: EvaluationContext, *, is_failed: bool) -> Iterator[tuple[ApprovalRule, str]]:
        """Yield the rules whose condition holds (with "") or fails (with why), in order; the first that holds decides.

        `is_failed` says whether a condition of an earlier group has failed. Of all groups only the first failure
        counts: others may be left out.
        """
        rules: Sequence[ApprovalRule] = self._rules
        if self._combined is not None:
            try:
                first_index = self._combined.find_first(context)
            except ConditionProblem:
                # Unless no condition can hold, all rules are evaluated one by one below.
                if self._combined.none_can_hold(context):
                    first_failure = () if is_failed else islice(_evaluate_each(rules, context), 1)
                    yield from first_failure
                    rules = self._unconditional
            else:
                rules = self._unconditional
                if first_index is not None:
                    yield self._rules[first_index], ""
                    return
        yield from _evaluate_each(rules, context)


def _evaluate_each(rules: Iterable[ApprovalRule], context: EvaluationContext) -> Iterator[tuple[ApprovalRule, str]]:
    """Yield the rules whose condition holds, each with "", and those whose condition fails, each with the failure."""
    for rule in rules:
        try:
            if rule.when is None or rule.when.holds(context):
                yield rule, ""
        except ConditionProblem as exc:
            yield rule, str(exc)


@lru_cache(256)
def _compile_combined(conditions: tuple[Condition, ...]) -> Conditions | None:
    """Return the conditions compiled as one; None if they are too few to be worth the work, or do not fit into one."""
    if len(conditions) < MIN_COMBINED:
        return None
    try:
        return Conditions(conditions)
    except ConditionProblem:
        return None


class _Patterns:
    """The patterns of a rule, compiled. `tools`, if given, take the place of the rule's own patterns of tools."""

    def __init__(self, rule: ApprovalRule, tools: Sequence[str] | None = None) -> None:
        """Compile the patterns of a rule, with `tools` in place of its own patterns of tools if they are given."""
        self.rule = rule
        patterns = rule.tools if tools is None else tools
        self._servers = _compile(rule.servers)
        self._tools = _compile(patterns)
        # None: a rule that allows matches exact names only.
        self._plain_tools = None if rule.action is Action.ALLOW else _compile([plain_name(each) for each in patterns])

    def has_server(self, name: str) -> bool:
        """Return whether a server of this name matches."""
        return self._servers.match(name) is not None

    def has_tool(self, tool: str, plain: str) -> bool:
        """Return whether a tool matches; `plain` is its name as a careless server may read it (`plain_name`).

        A name longer than LONGEST_TOOL matches each rule that asks or denies, and none that allows.
        """
        if len(tool) > LONGEST_TOOL:
            return self._plain_tools is not None
        if self._tools.match(tool) is not None:
            return True
        return self._plain_tools is not None and self._plain_tools.match(plain) is not None

    def has_any(self, tools: Iterable[str]) -> bool:
        """Return whether one of these tools matches."""
        return any(self.has_tool(tool, plain_name(tool)) for tool in tools)


@lru_cache(4 * REMEMBERED_NAMES)
def _compile_all(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return a regular expression that matches what any of the wildcard patterns does."""
    return re.compile("|".join(map(translate, patterns)))


def _compile(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a regular expression that matches what any of the wildcard patterns does; compiled once for equal ones."""
    return _compile_all(tuple(patterns))


def _make_confirm_rules(confirm: Sequence[str], server: str = "") -> Iterator[ApprovalRule]:
    """Yield the rules that an option `confirm` stands for: that of a server, or the hub's own if `server` is empty."""
    # Not validated below: rules of a file may not have these names.
    name, servers = (f"{CONFIRM} of {server}", (server,)) if server else (CONFIRM, (ANY,))
    if confirmed.WRITES in confirm:
        yield ApprovalRule.model_construct(name=name, servers=servers, when=_WRITES)
    if tools := tuple(each for each in confirm if each != confirmed.WRITES):
        yield ApprovalRule.model_construct(name=name, servers=servers, tools=tools)


_WRITES: Final = Condition(WRITES)


def _can_ask_or_deny(rule: ApprovalRule) -> bool:
    """Return whether a rule can ask or deny. A rule that allows counts as one that asks if its condition fails."""
    return rule.action is not Action.ALLOW or rule.when is not None


def _join_quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
