"""Which calls a person has to approve."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd import payload
from hubbubd.conditions import WRITES, CallFacts, Condition, ConditionProblem
from hubbubd.config import ServerConfig
from hubbubd.config.sections.approvals import Action, ApprovalRule, ApprovalSettings, parse_approvals
from hubbubd.core.approvals.rules import CallRules, Judgement, describe_verdict, stricter

pytestmark = pytest.mark.quick

ALLOW, ASK, DENY = Action.ALLOW, Action.ASK, Action.DENY


def facts(
    server: str = "github",
    tool: str = "delete_branch",
    *,
    args: object = None,
    hints: dict[str, Any] | None = None,
    caller: str = "ada",
    roles: tuple[str, ...] = (),
    host: str = "claude-code 2.1",
    argument_bytes: int = 100,
    now: datetime = datetime(2026, 11, 29, 12, tzinfo=UTC),
) -> CallFacts:
    return CallFacts(
        server=server,
        tool=tool,
        args={} if args is None else args,
        argument_bytes=argument_bytes,
        hints=hints or {},
        caller=caller,
        roles=roles,
        host=host,
        profile="default",
        now=now,
    )


def rule(name: str, action: Action, when: str | None = None, **patterns: Any) -> ApprovalRule:
    return ApprovalRule(name=name, action=action, when=None if when is None else Condition(when), **patterns)


def asks(when: str, **more: Any) -> dict[str, Any]:
    """The settings of one rule with a condition."""
    return {"rules": [{"name": "r", "when": when, **more}]}


READS, WRITING = {"readOnlyHint": True}, {"readOnlyHint": False}
PAYMENT = {"amount": 250, "currency": "EUR", "to": ["a@example.org", "b@c.de"], "note": None, "repo": "shop"}
NESTED = payload.loads(b'{"a":' * 150 + b"{}" + b"}" * 150)
NIGHT = 'now.getHours("Europe/Berlin") < 7 || now.getHours("Europe/Berlin") >= 22'
LOOP = "args.l.all(a, args.l.all(b, args.l.all(c, a + b + c >= 0)))"
NUMBERS = {"l": list(range(100))}
DELETES = {"rules": [{"name": "r", "servers": ["git*"], "tools": ["delete_*", "*_remove"]}]}
EXACT = {"rules": [{"name": "r", "tools": ["delete_branch"], "action": "allow"}], "default": "deny"}
ORDER = {"rules": [{"name": "sandbox", "when": "args.repo == 'sandbox'", "action": "allow"}, {"name": "r"}]}

# settings, the call, what becomes of it, the rule that counts, and what its condition says if it fails
TABLE: list[tuple[dict[str, Any], CallFacts, Action, str, str]] = [
    # What counts where no rule matches
    ({}, facts(), ALLOW, "", ""),
    ({"default": "ask"}, facts(), ASK, "", ""),
    ({"default": "deny"}, facts(hints=READS), DENY, "", ""),
    ({"default": "deny", "rules": [{"name": "r", "action": "allow"}]}, facts(), ALLOW, "r", ""),
    # Names of servers and tools
    (DELETES, facts(), ASK, "r", ""),
    (DELETES, facts("gitlab", "tag_remove"), ASK, "r", ""),
    (DELETES, facts("jira"), ALLOW, "", ""),
    (DELETES, facts("Github"), ALLOW, "", ""),
    (DELETES, facts(tool="undelete_branch"), ALLOW, "", ""),
    # Names that a careless server takes for the same: asked about as well, and never allowed
    (DELETES, facts(tool="Delete_Branch"), ASK, "r", ""),
    (DELETES, facts(tool=" delete_branch\n"), ASK, "r", ""),
    (DELETES, facts(tool="\uff44elete_branch"), ASK, "r", ""),
    (DELETES, facts(tool="delete_stra\xdfe"), ASK, "r", ""),
    (DELETES, facts(tool="delete\u200b_branch"), ASK, "r", ""),
    (DELETES, facts(tool="x" * 1001), ASK, "r", ""),
    (EXACT, facts(), ALLOW, "r", ""),
    (EXACT, facts(tool="Delete_Branch"), DENY, "", ""),
    (EXACT, facts(tool="\uff44elete_branch"), DENY, "", ""),
    # The first that matches
    (ORDER, facts(args={"repo": "sandbox"}), ALLOW, "sandbox", ""),
    (ORDER, facts(args={"repo": "shop"}), ASK, "r", ""),
    ({"rules": [{"name": "r", "action": "deny"}, {"action": "allow"}]}, facts(), DENY, "r", ""),
    # Presets
    ({"confirm": "writes"}, facts(), ASK, "confirm", ""),
    ({"confirm": "writes"}, facts(hints=READS), ALLOW, "", ""),
    ({"confirm": "writes"}, facts(hints=WRITING), ASK, "confirm", ""),
    ({"confirm": "writes"}, facts(hints={"readOnlyHint": "true"}), ASK, "confirm", ""),
    ({"confirm": "writes"}, facts(hints={"readOnlyHint": 1}), ASK, "confirm", ""),
    ({"confirm": "writes"}, facts(hints=READS, argument_bytes=2**24), ALLOW, "", ""),
    ({"confirm": ["Bash", "Write"]}, facts(tool="bash"), ASK, "confirm", ""),
    ({"confirm": ["Bash", "Write"]}, facts(tool="Read"), ALLOW, "", ""),
    ({"confirm": ["writes", "read_secret*"]}, facts(tool="read_secrets", hints=READS), ASK, "confirm", ""),
    ({"confirm": "writes", "rules": [{"name": "r", "action": "allow"}]}, facts(), ALLOW, "r", ""),
    # What conditions know of a call
    (asks("server == 'github' && tool.startsWith('delete_')"), facts(), ASK, "r", ""),
    (asks("args.amount > 100 && args.currency == 'EUR'"), facts(args=PAYMENT), ASK, "r", ""),
    (asks("args.amount > 1000.5"), facts(args=PAYMENT), ALLOW, "", ""),
    (asks("args.to.exists(each, !each.endsWith('@example.org'))"), facts(args=PAYMENT), ASK, "r", ""),
    (asks("has(args.force) && args.force"), facts(args=PAYMENT), ALLOW, "", ""),
    (asks("args.note == null && size(args.to) == 2"), facts(args=PAYMENT), ASK, "r", ""),
    (asks("args.path.matches('^/(srv|etc)/')"), facts(args={"path": "/etc/passwd"}), ASK, "r", ""),
    (asks("args.s.matches('(a+)+$')"), facts(args={"s": "a" * 100_000 + "b"}), ALLOW, "", ""),
    (asks("has(hints.destructiveHint) && hints.destructiveHint"), facts(hints={"destructiveHint": True}), ASK, "r", ""),
    (asks("'release' in roles && caller == 'ada'"), facts(roles=("release",)), ASK, "r", ""),
    (asks("host.startsWith('claude-code') && profile == 'default'"), facts(), ASK, "r", ""),
    (asks(NIGHT), facts(now=datetime(2026, 7, 1, 4, 59, tzinfo=UTC)), ASK, "r", ""),
    (asks(NIGHT), facts(now=datetime(2026, 7, 1, 5, 0, tzinfo=UTC)), ALLOW, "", ""),
    (asks(NIGHT), facts(now=datetime(2026, 12, 1, 5, 59, tzinfo=UTC)), ASK, "r", ""),
    (asks("now < timestamp('2027-01-01T00:00:00Z')"), facts(), ASK, "r", ""),
    (asks("args == {}"), facts(args=NESTED), ALLOW, "", ""),
    # Conditions that have no result: asked, whatever the rule does
    (asks("args.missing == 1", action="allow"), facts(), ASK, "r", "no such key|not found"),
    (asks("args.missing == 1 && tool == 'merge'", action="deny"), facts(), ALLOW, "", ""),
    (asks("args.repo", action="deny"), facts(args=PAYMENT), ASK, "r", "shop"),
    (asks("1 / args.zero == 1", action="allow"), facts(args={"zero": 0}), ASK, "r", "(?i)divi"),
    (asks("args.id == 1", action="allow"), facts(args={"id": 2**64}), ASK, "r", "out of range"),
    (asks("args.amount > 100", action="allow"), facts(args={"amount": "250"}), ASK, "r", "No matching overload"),
    (asks("args.s.matches(args.p)", action="allow"), facts(args={"s": "x", "p": "["}), ASK, "r", "missing ]"),
    (asks("now.getHours('Mars/Base') > 1", action="deny"), facts(), ASK, "r", "Invalid timezone"),
    (asks("args.s == 'x'", action="allow"), facts(args={"s": "\ud800"}), ASK, "r", "."),
    (asks(LOOP, action="allow"), facts(args=NUMBERS), ASK, "r", "(?i)iteration budget"),
    (
        asks("args.a == 1", action="allow"),
        facts(args={"a": 1}, argument_bytes=10 * 2**20),
        ASK,
        "r",
        "larger than 1048576",
    ),
    (asks("args.a == 1", action="allow"), facts(args=["a"]), ASK, "r", "not an object"),
    (asks("args.a == 1", action="allow"), facts(args="a"), ASK, "r", "not an object"),
]


@pytest.mark.parametrize(("settings", "call", "action", "name", "problem"), TABLE)
def test_the_rules_decide_what_becomes_of_a_call(
    settings: dict[str, Any], call: CallFacts, action: Action, name: str, problem: str
) -> None:
    verdict = CallRules.from_settings(ApprovalSettings.model_validate(settings), {}).decide(call)
    assert verdict.action is action
    assert (verdict.rule.name if verdict.rule is not None else "") == name
    assert bool(verdict.problem) is bool(problem)
    if problem:
        assert verdict.problem.startswith("the condition of 'r' failed: ")
        with pytest.raises(AssertionError, match=problem):
            raise AssertionError(verdict.problem)


def test_the_table_has_sixty_cases() -> None:
    assert len(TABLE) == 60


@pytest.mark.parametrize("loop", ["exists(e, e == 'x')", "all(e, true)", "filter(e, true) == []", "map(e, e) == []"])
def test_a_condition_does_not_loop_over_long_arrays(loop: str) -> None:
    made = [rule(str(at), ALLOW, f"args.to.{loop} && caller == '{at}'") for at in range(3)]
    for size, problem in ((500, False), (501, True)):
        for args in ({"to": ["b"] * size}, {"to": ["b"], "more": [{"in": dict.fromkeys(map(str, range(size)))}]}):
            verdict = CallRules(made).decide(facts(args=args))
            assert bool(verdict.problem) is problem
            assert ("more than 500 values" in verdict.problem) is problem
    assert not CallRules([rule("r", ALLOW, "size(args.to) == 501")]).decide(facts(args={"to": ["b"] * 501})).problem


def test_arguments_that_are_nested_more_deeply_never_get_this_far() -> None:
    with pytest.raises(ValueError, match="recursion"):
        payload.loads(b'{"a":' * 250 + b"{}" + b"}" * 250)


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


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize(
    ("when", "call"),
    [
        ("args.missing == 1", facts()),
        ("1 / args.zero == 1", facts(args={"zero": 0})),
        ("args.big > 1", facts(args={"big": 2**70})),
        ("args.repo", facts(args={"repo": "no boolean"})),
        ("args.repo.matches(args.pattern)", facts(args={"repo": "x", "pattern": "["})),
        (LOOP, facts(args=NUMBERS)),
        ("args.a == 1", facts(args={"a": 1}, argument_bytes=2**20 + 1)),
    ],
)
def test_a_condition_that_fails_asks(when: str, call: CallFacts, action: Action) -> None:
    verdict = CallRules([rule("odd", action, when, needed=2)]).decide(call)
    assert verdict.action is ASK
    assert verdict.rule.needed == 2
    assert "the condition of 'odd' failed" in verdict.problem


@pytest.mark.parametrize(("after", "expected"), [(ALLOW, ASK), (ASK, ASK), (DENY, DENY)])
def test_what_comes_after_a_condition_that_fails_may_be_stricter(after: Action, expected: Action) -> None:
    verdict = CallRules([rule("odd", ALLOW, "args.missing"), rule("next", after)]).decide(facts())
    assert verdict.action is expected
    assert verdict.rule.name == ("next" if after is DENY else "odd")


def test_patterns_that_match_nothing_are_named() -> None:
    rules = CallRules(
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


DOCUMENT = (Path(__file__).parents[2] / "docs/approvals.md").read_text()
GEMINI = "gemini-cli-mcp-client 0.22"
TO_COPY = max(re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL), key=len)


@pytest.mark.parametrize(
    ("call", "action", "name"),
    [
        (facts(tool="pay_invoice", args={"amount": "100.01"}), ASK, "payments"),
        (facts(tool="pay_invoice", args={"amount": 100}), ALLOW, ""),
        (facts(tool="pay_invoice"), ASK, "payments"),
        (facts(args={"repo": "shop"}), ASK, "deletes"),
        (facts(args={"repo": "sandbox"}), ALLOW, ""),
        (facts(tool="bash", args={"command": "git status docs/a-b.md"}), ALLOW, "look"),
        (facts(tool="bash", args={"command": "ls; rm -rf /"}), ASK, "shell"),
        (facts(tool="bash", args={"command": "ls\nrm -rf /"}), ASK, "shell"),
        (facts(tool="bash", args={"command": "ls $(rm -rf /)"}), ASK, "shell"),
        (facts(tool="bash"), ASK, "look"),
        (facts(tool="send_news", now=datetime(2026, 12, 1, 19, tzinfo=UTC)), DENY, "night"),
        (facts(tool="send_news", now=datetime(2026, 12, 1, 18, tzinfo=UTC)), ALLOW, ""),
        (facts(tool="x", host=GEMINI), DENY, "reader"),
        (facts(tool="x", host=GEMINI, hints=WRITING), DENY, "reader"),
        (facts(tool="x", host=GEMINI, hints=READS), ALLOW, ""),
        (facts(tool="send_mail", args={"to": "a@example.com"}), ALLOW, ""),
        (facts(tool="send_mail", args={"to": "a@example.com.de"}), ASK, "mail"),
        (facts("db-prod", tool="anything", hints=READS), ASK, "production"),
        (facts(tool="query", args={"sql": "select 1; Drop table x"}), ASK, "sql"),
        (facts(tool="query", args={"sql": "select 1"}), ALLOW, ""),
        (facts(tool="write_file", args={"path": "/srv/project/../x"}), ASK, "outside"),
        (facts(tool="write_file", args={"path": "/srv/project/x"}), ALLOW, ""),
        (facts(tool="x", hints={"destructiveHint": True}), ASK, "destructive"),
    ],
)
def test_the_rules_of_the_document_do_what_it_says(call: CallFacts, action: Action, name: str) -> None:
    verdict = CallRules.from_settings(parse_approvals(TO_COPY, "document"), {}).decide(call)
    assert (verdict.action, verdict.rule.name if verdict.rule is not None else "") == (action, name)


def test_the_rules_of_the_document_say_who_approves_and_for_how_long() -> None:
    rules = {each.name: each for each in parse_approvals(TO_COPY, "document").rules}
    assert (rules["payments"].needed, rules["payments"].not_by_caller) == (2, True)
    assert rules["shell"].remember == (3600.0,)
    assert rules["production"].approvers == ("oidc-role:on-call",)
    assert len(re.findall(r"# [0-9]+\. ", TO_COPY)) == 10


SERVERS = {
    "files": ServerConfig(name="files", command="x", confirm=("writes",)),
    "shell": ServerConfig(name="shell", command="x", confirm=("Bash", "writes")),
    "time": ServerConfig(name="time", command="x"),
}


def test_presets_are_rules_after_those_of_the_file() -> None:
    settings = ApprovalSettings.model_validate(
        {"confirm": "writes", "rules": [{"tools": ["x"]}, {"servers": ["time"], "action": "deny"}]}
    )
    rules = CallRules.from_settings(settings, SERVERS)
    assert [(each.name, each.preset, each.servers) for each in rules.rules] == [
        ("rule 1", "", ("*",)),
        ("rule 2", "", ("time",)),
        ("confirm of files", "servers.files.confirm", ("files",)),
        ("confirm of shell", "servers.shell.confirm", ("shell",)),
        ("confirm of shell", "servers.shell.confirm", ("shell",)),
        ("confirm", "confirm", ("*",)),
    ]
    assert rules.rules[2].when == Condition(WRITES)
    assert rules.rules[4].tools == ("Bash",)
    of_hub = CallRules.from_settings(settings, {})
    for name, config in SERVERS.items():
        own = of_hub.for_server(config)
        assert [each.name for each in own.rules] == [
            each.name for each in rules.rules if each.servers in {("*",), (name,)}
        ]
        for tool, hints in (("Bash", READS), ("x", READS), ("y", WRITING), ("y", READS)):
            call = facts(name, tool, hints=hints)
            assert own.decide(call) == rules.decide(call)


@pytest.mark.parametrize(
    ("settings", "active", "concerned"),
    [
        ({}, False, []),
        ({"rules": [{"action": "allow"}]}, False, []),
        ({"rules": [{"action": "allow", "when": "args.x"}]}, True, ["files", "shell", "time"]),
        ({"rules": [{"servers": ["time"]}]}, True, ["time"]),
        ({"default": "ask"}, True, ["files", "shell", "time"]),
        ({"confirm": ["Bash"]}, True, ["files", "shell", "time"]),
    ],
)
def test_rules_say_whom_they_concern(settings: dict[str, Any], active: bool, concerned: list[str]) -> None:
    rules = CallRules.from_settings(ApprovalSettings.model_validate(settings), {})
    assert rules.active is active
    unconfirmed = [config.model_copy(update={"confirm": ()}) for config in SERVERS.values()]
    assert [config.name for config in unconfirmed if rules.for_server(config).active] == concerned
    none = CallRules([])
    assert [name for name, config in SERVERS.items() if none.for_server(config).active] == ["files", "shell"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "The call is sent: no rule matches it, and the default is 'allow'."),
        ({"default": "ask"}, "The call waits for approval: no rule matches it, and the default is 'ask'."),
        (
            asks("true", action="deny"),
            "The call is refused: the rule 'r' is the first that matches, and its condition holds (true).",
        ),
        (
            {"rules": [{"needed": 2, "not_by_caller": True, "approvers": ["ada", "ben"]}]},
            (
                "The call waits for approval: the rule 'rule 1' is the first that matches. "
                "2 people of 'ada', 'ben' have to approve it, and not who makes it."
            ),
        ),
        (
            asks("args.x"),
            "The call waits for approval: the condition of 'r' failed: NOT: One person has to approve it.",
        ),
    ],
)
def test_a_verdict_is_put_into_words(settings: dict[str, Any], words: str) -> None:
    said = describe_verdict(CallRules.from_settings(ApprovalSettings.model_validate(settings), {}).decide(facts()))
    begin, placeholder, end = words.partition("NOT:")
    assert said.startswith(begin)
    assert said.endswith(end)
    assert placeholder or said == words


def test_a_hundred_conditions_are_decided_as_each_by_itself() -> None:
    texts = [f"args.n == {number}" for number in range(98)]
    texts[40] = "args.n == 40 // a comment"
    texts[60] = "args.other == 1"
    made = [rule(str(at), DENY if at % 2 else ASK, text) for at, text in enumerate(texts)]
    rules = CallRules([*made, rule("last", ALLOW)])
    for number in (0, 19, 20, 39, 40, 59):
        assert rules.decide(facts(args={"n": number})) == Judgement(made[number].action, made[number])
    for number, action, name in ((61, DENY, "61"), (62, ASK, "60"), (98, ASK, "60")):
        verdict = rules.decide(facts(args={"n": number}))
        assert (verdict.action, verdict.rule and verdict.rule.name) == (action, name)
    assert rules.decide(facts(args={"n": 98, "other": 0})) == Judgement(ALLOW, rules.rules[-1])


ACTIONS = st.sampled_from(Action)


@given(st.lists(st.tuples(ACTIONS, st.booleans()), max_size=20), ACTIONS)
def test_the_first_rule_that_matches_decides(rows: list[tuple[Action, bool]], default: Action) -> None:
    made = [rule(str(at), action, str(matches).lower()) for at, (action, matches) in enumerate(rows)]
    first = next((each for each, (_, matches) in zip(made, rows, strict=True) if matches), None)
    expected = Judgement(default) if first is None else Judgement(first.action, first)
    assert CallRules(made, default).decide(facts()) == expected


@given(st.lists(st.tuples(ACTIONS, st.sampled_from(["true", "false", "args.missing"])), max_size=12), ACTIONS)
def test_a_condition_that_fails_never_makes_a_verdict_milder(rows: list[tuple[Action, str]], default: Action) -> None:
    made = [rule(str(at), action, when) for at, (action, when) in enumerate(rows)]
    verdict = CallRules(made, default).decide(facts())
    without = CallRules([each for each, (_, when) in zip(made, rows, strict=True) if when != "args.missing"], default)
    assert verdict.action >= without.decide(facts()).action
    first = next((when for _, when in rows if when != "false"), None)
    if first == "args.missing":
        assert verdict.action >= ASK


@given(ACTIONS, ACTIONS)
def test_of_two_verdicts_the_stricter_counts(first: Action, second: Action) -> None:
    one, other = Judgement(first, problem="one"), Judgement(second, problem="other")
    assert stricter(one, other).action is max(first, second)
    assert stricter(one, other) is (other if second > first else one)


CONDITIONS = st.sampled_from(["true", "false", "args.missing", "args.n > 1", "args.n == 1 // one", "args.n", WRITES])


@given(st.lists(st.tuples(ACTIONS, st.none() | CONDITIONS), max_size=50), ACTIONS, st.integers(0, 3), st.booleans())
def test_rules_decide_as_one_by_one_in_their_order(
    rows: list[tuple[Action, str | None]], default: Action, number: int, reads: bool
) -> None:
    made = [rule(str(at), action, when) for at, (action, when) in enumerate(rows)]
    call = facts(args={"n": number}, hints={"readOnlyHint": reads})
    expected: Judgement | None = None
    for each in made:
        alone = CallRules([each]).decide(call)
        if alone.rule is not None:
            expected = stricter(expected, alone)
            if not alone.problem:
                break
    else:
        expected = stricter(expected, Judgement(default))
    assert CallRules(made, default).decide(call) == expected
