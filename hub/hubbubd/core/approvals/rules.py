"""Which calls a person has to approve: the first rule that matches a call decides.

A rule that asks or denies also matches names that a careless server would treat as the same (Unicode, case, spaces).
One that allows matches the exact name only. A condition that fails to evaluate never allows a call: see `Rules.decide`.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final

from hubbubd.conditions import CallFacts, Condition, ConditionProblem, EvaluationContext

ANY: Final = ("*",)

WRITES: Final = "!has(hints.readOnlyHint) || hints.readOnlyHint != true"
"""The condition of `confirm = "writes"`. A tool without the hint counts as one that writes."""


class Action(IntEnum):
    """What becomes of a call; of two actions the greater is the stricter."""

    ALLOW = 0
    ASK = 1
    DENY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """A rule. `remember_s` are the seconds for which an approval may be remembered, besides for this call only.

    Without `approvers`, each principal counts that has the permission to approve calls of the server.
    """

    name: str
    action: Action
    servers: tuple[str, ...] = ANY
    tools: tuple[str, ...] = ANY
    condition: Condition | None = None
    needed: int = 1
    not_by_caller: bool = False
    approvers: tuple[str, ...] = ()
    edit: bool = True
    remember_s: tuple[float, ...] = ()
    message: str = ""

    def has_tool(self, server: str, tool: str) -> bool:
        """Return whether the patterns match a tool of a server."""
        if not _matches(self.servers, server):
            return False
        if _matches(self.tools, tool):
            return True
        return self.action is not Action.ALLOW and _matches(map(_plain, self.tools), _plain(tool))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say of a call. `rule` is None where the default counts; `problem` says which condition failed."""

    action: Action
    rule: ApprovalRule | None = None
    problem: str = ""


class Rules:
    """The rules in their order, and what counts where none matches."""

    def __init__(self, rules: Sequence[ApprovalRule], default: Action = Action.ALLOW) -> None:
        self.rules = tuple(rules)
        self.default = default

    def decide(self, facts: CallFacts) -> Verdict:
        """Return what becomes of a call.

        A rule whose condition fails to evaluate counts as one that asks, and the rules after it are looked at as well:
        the stricter of the two verdicts counts, and of two that ask the first.
        """
        context = EvaluationContext(facts)
        failed: Verdict | None = None
        for rule in self.rules:
            if not rule.has_tool(facts.server, facts.tool):
                continue
            try:
                if rule.condition is not None and not rule.condition.holds(context):
                    continue
            except ConditionProblem as exc:
                failed = failed or Verdict(Action.ASK, rule, f"the condition of {rule.name!r} failed: {exc}")
                continue
            return stricter(failed, Verdict(rule.action, rule))
        return stricter(failed, Verdict(self.default))

    def unmatched(self, servers: Iterable[str]) -> list[str]:
        """Return the names of the rules whose patterns match none of these servers."""
        names = list(servers)
        return [rule.name for rule in self.rules if not any(_matches(rule.servers, name) for name in names)]


def stricter(first: Verdict | None, second: Verdict) -> Verdict:
    """Return the verdict with the stricter action; the first of two that are equal."""
    return second if first is None or second.action > first.action else first


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().strip()
