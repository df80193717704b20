"""Which calls a person has to approve."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd.conditions import WRITES, CallFacts, Condition, ConditionProblem
from hubbubd.config.sections.approvals import Action, ApprovalRule
from hubbubd.core.approvals.rules import Rules, Verdict, stricter

pytestmark = pytest.mark.quick

ALLOW, ASK, DENY = Action.ALLOW, Action.ASK, Action.DENY


def facts(
    server: str = "github",
    tool: str = "delete_branch",
    *,
    args: dict[str, Any] | None = None,
    hints: dict[str, Any] | None = None,
    caller: str = "ada",
    roles: tuple[str, ...] = (),
    argument_bytes: int = 100,
    hour: int = 12,
) -> CallFacts:
    return CallFacts(
        server=server,
        tool=tool,
        args=args or {},
        argument_bytes=argument_bytes,
        hints=hints or {},
        caller=caller,
        roles=roles,
        host="claude-code",
        profile="default",
        now=datetime(2026, 11, 29, hour, tzinfo=UTC),
    )


def rule(name: str, action: Action, when: str | None = None, **patterns: Any) -> ApprovalRule:
    return ApprovalRule(name=name, action=action, when=None if when is None else Condition(when), **patterns)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("true", True),
        ("false", False),
        ("server == 'github' && tool.startsWith('delete_')", True),
        ("args.repo != 'sandbox' && caller != 'local'", True),
        ("args.repo == 'sandbox'", False),
        ("args.amount > 100", True),
        ("args.amount > 1000.5", False),
        ("args.path.matches('^/srv/')", True),
        ("has(args.force) && args.force", False),
        ("has(hints.destructiveHint) && hints.destructiveHint", True),
        ("'release' in roles", True),
        ("'admin' in roles", False),
        ("now.getHours() < 7 || now.getHours() > 19", False),
        ("host == 'claude-code' && profile == 'default'", True),
        ("args.to.exists(each, each.endsWith('@example.org'))", True),
        ("args.nothing == null", True),
        ("size(args.to) == 2", True),
    ],
)
def test_a_condition_knows_the_call(when: str, holds: bool) -> None:
    args = {"repo": "shop", "amount": 250, "path": "/srv/a", "to": ["a@example.org", "b@c.de"], "nothing": None}
    call = facts(args=args, hints={"destructiveHint": True}, roles=("release",))
    assert Rules([rule("r", ASK, when)]).decide(call).action is (ASK if holds else ALLOW)


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("args.repo ==", "Syntax error"),
        ("repo == 'x'", "undeclared reference to 'repo'"),
        ("tool + 1 == 2", "no matching overload"),
        ("tool", "is of type string"),
        ("(" * 40 + "true" + ")" * 40, "recursion limit"),
        ("x" * 10_001, "longer than 10000 characters"),
        ("", "Syntax error"),
    ],
)
def test_a_condition_that_is_wrong_is_refused(when: str, why: str) -> None:
    with pytest.raises(ConditionProblem, match=why):
        Condition(when)


LOOP = "args.l.all(a, args.l.all(b, args.l.all(c, a + b + c >= 0)))"


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize(
    ("when", "call"),
    [
        ("args.missing == 1", facts()),
        ("1 / args.zero == 1", facts(args={"zero": 0})),
        ("args.big > 1", facts(args={"big": 2**70})),
        ("args.repo", facts(args={"repo": "no boolean"})),
        ("args.repo.matches(args.pattern)", facts(args={"repo": "x", "pattern": "["})),
        (LOOP, facts(args={"l": list(range(100))})),
        ("args.a == 1", facts(args={"a": 1}, argument_bytes=2**20 + 1)),
    ],
)
def test_a_condition_that_fails_asks(when: str, call: CallFacts, action: Action) -> None:
    verdict = Rules([rule("odd", action, when, needed=2)]).decide(call)
    assert verdict.action is ASK
    assert verdict.rule is not None
    assert verdict.rule.needed == 2
    assert "the condition of 'odd' failed" in verdict.problem


@pytest.mark.parametrize(("after", "expected"), [(ALLOW, ASK), (ASK, ASK), (DENY, DENY)])
def test_what_comes_after_a_condition_that_fails_may_be_stricter(after: Action, expected: Action) -> None:
    verdict = Rules([rule("odd", ALLOW, "args.missing"), rule("next", after)]).decide(facts())
    assert verdict.action is expected
    assert verdict.rule is not None
    assert verdict.rule.name == ("next" if after is DENY else "odd")


@pytest.mark.parametrize(
    ("hints", "action"),
    [
        ({}, ASK),
        ({"readOnlyHint": True}, ALLOW),
        ({"readOnlyHint": False}, ASK),
        ({"readOnlyHint": "true"}, ASK),
        ({"readOnlyHint": None}, ASK),
        ({"destructiveHint": False}, ASK),
    ],
)
def test_only_a_tool_that_is_marked_as_reading_does_not_write(hints: dict[str, Any], action: Action) -> None:
    assert Rules([rule("writes", ASK, WRITES)]).decide(facts(hints=hints)).action is action


@pytest.mark.parametrize(
    ("action", "tool", "matches"),
    [
        (ASK, "delete_branch", True),
        (ASK, "Delete_Branch", True),
        (ASK, " delete_branch ", True),
        (DENY, "\uff44elete_branch", True),
        (ASK, "undelete_branch", False),
        (ALLOW, "delete_branch", True),
        (ALLOW, "Delete_Branch", False),
    ],
)
def test_a_rule_matches_tools(action: Action, tool: str, matches: bool) -> None:
    other = DENY if action is ALLOW else ALLOW
    rules = Rules([rule("deletes", action, servers=("git*",), tools=("delete_*",))], default=other)
    assert rules.decide(facts(tool=tool)).action is (action if matches else other)
    assert rules.decide(facts(server="jira", tool=tool)).action is other


def test_patterns_that_match_nothing_are_named() -> None:
    rules = Rules(
        [
            rule("a", ASK, servers=("git*",), tools=("delete_*", "Remove")),
            rule("b", ASK, servers=("jra", "jira")),
            rule("c", DENY),
        ]
    )
    assert list(rules.find_unmatched(["github", "jira"], {})) == ["rule 'b': no server matches 'jra'"]
    assert list(rules.find_unmatched(["github", "jira"], {"github": ["delete_branch", "merge"]})) == [
        "rule 'a': no tool of 'github' matches 'Remove'",
        "rule 'b': no server matches 'jra'",
    ]
    assert list(rules.find_unmatched(["github"], {"github": ["delete_branch", "remove"]})) == [
        "rule 'b': no server matches 'jra', 'jira'"
    ]


ACTIONS = st.sampled_from(Action)


@given(st.lists(st.tuples(ACTIONS, st.booleans()), max_size=20), ACTIONS)
def test_the_first_rule_that_matches_decides(rows: list[tuple[Action, bool]], default: Action) -> None:
    made = [rule(str(at), action, str(matches).lower()) for at, (action, matches) in enumerate(rows)]
    first = next((each for each, (_, matches) in zip(made, rows, strict=True) if matches), None)
    expected = Verdict(default) if first is None else Verdict(first.action, first)
    assert Rules(made, default).decide(facts()) == expected


@given(st.lists(st.tuples(ACTIONS, st.sampled_from(["true", "false", "args.missing"])), max_size=12), ACTIONS)
def test_a_condition_that_fails_never_makes_a_verdict_milder(rows: list[tuple[Action, str]], default: Action) -> None:
    made = [rule(str(at), action, when) for at, (action, when) in enumerate(rows)]
    verdict = Rules(made, default).decide(facts())
    without = Rules([each for each, (_, when) in zip(made, rows, strict=True) if when != "args.missing"], default)
    assert verdict.action >= without.decide(facts()).action
    first = next((when for _, when in rows if when != "false"), None)
    if first == "args.missing":
        assert verdict.action >= ASK


@given(ACTIONS, ACTIONS)
def test_of_two_verdicts_the_stricter_counts(first: Action, second: Action) -> None:
    one, other = Verdict(first, problem="one"), Verdict(second, problem="other")
    assert stricter(one, other).action is max(first, second)
    assert stricter(one, other) is (other if second > first else one)
