"""Rules over calls that were made: what they would have asked about and denied, added up."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hubbubd.conditions import CallFacts
from hubbubd.config.sections.approvals import Action
from hubbubd.core.approvals.rules import CallRules, Judgement
from hubbubd.core.calls.call_states import Call

CALLS_AT_A_TIME: Final = 100
"""Calls that are judged before others get their turn."""

MAX_CALLERS: Final = 20
"""How many of the callers of a row are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow:
    """Calls that are alike. `server` and `tool` are empty in rows of calls that are allowed: these are one per rule.

    `rule` is empty for the default, `approvers` for everybody with the permission to approve. `problems` are the calls
    for which a condition had no result.
    """

    rule: str
    action: Action
    server: str
    tool: str
    calls: int
    callers: tuple[str, ...]
    problems: int
    approvers: tuple[str, ...]
    newest_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """What rules would have done with calls: how many (`calls`), asked about or denied. The largest rows come first."""

    rows: tuple[ReplayRow, ...]
    calls: int
    asked: int
    denied: int


class Replay:
    """Adds up what rules would have done with calls. `summarize` has all of them once `judge_in_steps` is exhausted."""

    def __init__(self, rules: CallRules) -> None:
        self._rules = rules
        self._tallies: dict[tuple[str, Action, str, str], _Tally] = {}
        """By rule, action, server and tool, as in `ReplayRow`."""

    def judge_in_steps(self, calls: Iterable[tuple[Call, CallFacts]]) -> Iterator[int]:
        """Judge calls of tools, newest first.

        Yield how many are judged so far: after each CALLS_AT_A_TIME, so that others get their turn, and at the end.
        """
        count = 0
        for count, (call, facts) in enumerate(calls, start=1):
            self._add(call, facts, self._rules.decide(facts))
            if count % CALLS_AT_A_TIME == 0:
                yield count
        yield count

    def summarize(self) -> ReplaySummary:
        """Return the rows of the calls judged so far, and their number."""
        counts: Counter[Action] = Counter()
        for (_, action, _, _), tally in self._tallies.items():
            counts[action] += tally.calls
        ordered = sorted(self._tallies.items(), key=lambda each: (-each[1].calls, each[0]))
        return ReplaySummary(
            rows=tuple(tally.as_row(*key) for key, tally in ordered),
            calls=counts.total(),
            asked=counts[Action.ASK],
            denied=counts[Action.DENY],
        )

    def _add(self, call: Call, facts: CallFacts, judgement: Judgement) -> None:
        """Count a call in the row of its rule, and of its tool if the call is asked about or denied."""
        rule = judgement.rule.name if judgement.rule is not None else ""
        server, tool = ("", "") if judgement.action is Action.ALLOW else (facts.server, facts.tool)
        key = rule, judgement.action, server, tool
        tally = self._tallies.get(key)
        if tally is None:
            approvers = judgement.rule.approvers if judgement.rule is not None else ()
            tally = self._tallies[key] = _Tally(newest_call_id=call.id, approvers=approvers)
        tally.calls += 1
        tally.problems += bool(judgement.problem)
        if len(tally.callers) < MAX_CALLERS:
            tally.callers.setdefault(facts.caller)


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What is added up of the calls of one row."""

    newest_call_id: str
    approvers: tuple[str, ...]
    calls: int = 0
    problems: int = 0
    callers: dict[str, None] = field(default_factory=dict[str, None])

    def as_row(self, rule: str, action: Action, server: str, tool: str) -> ReplayRow:
        """Return the row of these calls; the arguments are the key of the row in `Replay`."""
        return ReplayRow(
            rule=rule,
            action=action,
            server=server,
            tool=tool,
            calls=self.calls,
            callers=tuple(self.callers),
            problems=self.problems,
            approvers=self.approvers if action is Action.ASK else (),
            newest_call_id=self.newest_call_id,
        )
