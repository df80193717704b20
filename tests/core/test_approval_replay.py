"""What rules would have done with the calls of the history, against a table made by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbubd import payload
from hubbubd.conditions import CallFacts
from hubbubd.config.sections.approvals import Action, ApprovalSettings
from hubbubd.core.approvals.facts import collect_facts, is_tool_call
from hubbubd.core.approvals.replay import CALLS_AT_A_TIME, MAX_CALLERS, Replay, ReplayRow, ReplaySummary
from hubbubd.core.approvals.rules import CallRules
from hubbubd.core.calls.call_states import Call, CallOrigin

pytestmark = pytest.mark.quick

SETTINGS = {
    "default": "deny",
    "rules": [
        {"name": "sandbox", "when": "args.repo == 'sandbox'", "action": "allow", "servers": ["github"]},
        {"name": "deletes", "tools": ["delete_*"], "needed": 2, "approvers": ["ada", "ben"]},
        {"name": "bots", "when": "host.startsWith('bot') || 'bot' in roles || profile == 'bots'", "action": "deny"},
        {"name": "reads", "when": "hints.readOnlyHint", "action": "allow", "servers": ["github", "files"]},
    ],
}
RULES = CallRules.from_settings(ApprovalSettings.model_validate(SETTINGS), {})
READS = {"readOnlyHint": True}


def made(
    number: int,
    server: str,
    tool: str,
    caller: str = "ada",
    origin: CallOrigin | None = None,
    hints: dict[str, Any] | None = None,
    **arguments: Any,
) -> tuple[Call, CallFacts]:
    """A call of the history, with its facts."""
    params = {"name": tool, "arguments": arguments}
    call = Call(
        id=f"call_{number}",
        server=server,
        method="tools/call",
        params=payload.dumps(params),
        principal=caller,
        detached=False,
        timeout_s=1,
        max_s=1,
        created_at=1_700_000_000 + number,
        origin=origin or CallOrigin(),
    )
    return call, collect_facts(call, params, hints or {}, call.created_at)


def replayed(rules: CallRules, calls: list[tuple[Call, CallFacts]]) -> ReplaySummary:
    replay = Replay(rules)
    *_, count = replay.judge_in_steps(calls)
    assert count == len(calls)
    return replay.summarize()


def row(rule: str, action: Action, of: str, calls: int, callers: str, newest: int, **more: Any) -> ReplayRow:
    server, _, tool = of.partition(" ")
    return ReplayRow(
        rule=rule,
        action=action,
        server=server,
        tool=tool,
        calls=calls,
        callers=tuple(callers.split()),
        problems=more.get("problems", 0),
        approvers=more.get("approvers", ()),
        newest_call_id=f"call_{newest}",
    )


def test_the_table_is_the_one_made_by_hand() -> None:
    bot = CallOrigin(host="bot 1.0")
    history = [
        made(14, "jira", "delete_issue", "ben", repo="shop"),
        made(13, "github", "delete_branch", "eve", repo="shop"),
        made(12, "github", "delete_branch", "ada", repo="sandbox"),
        made(11, "github", "Delete_Branch", "ada", repo="shop"),
        made(10, "github", "delete_branch", "ada", repo="shop"),
        made(9, "github", "delete_branch", "ada"),
        made(8, "github", "list", "ada", hints=READS, repo="shop"),
        made(7, "files", "read", "ben", hints=READS),
        made(6, "files", "read", "deploy", bot, hints=READS),
        made(5, "files", "write", "deploy", CallOrigin(roles=("bot",))),
        made(4, "files", "write", "deploy", CallOrigin(profile="bots")),
        made(3, "files", "write", "ada"),
        made(2, "jira", "list", "ada", hints=READS),
        made(1, "jira", "list", "ada", hints=READS),
    ]
    people = {"approvers": ("ada", "ben")}
    assert replayed(RULES, history) == ReplaySummary(
        rows=(
            row("", Action.DENY, "jira list", 2, "ada", 2),
            row("bots", Action.DENY, "files write", 2, "deploy", 5),
            row("deletes", Action.ASK, "github delete_branch", 2, "eve ada", 13, **people),
            row("reads", Action.ALLOW, "", 2, "ada ben", 8),
            row("", Action.DENY, "files write", 1, "ada", 3),
            row("bots", Action.DENY, "files read", 1, "deploy", 6),
            row("deletes", Action.ASK, "github Delete_Branch", 1, "ada", 11, **people),
            row("deletes", Action.ASK, "jira delete_issue", 1, "ben", 14, **people),
            row("sandbox", Action.ALLOW, "", 1, "ada", 12),
            row("sandbox", Action.ASK, "github delete_branch", 1, "ada", 9, problems=1),
        ),
        calls=14,
        asked=5,
        denied=6,
    )


def test_ten_thousand_calls_are_looked_at_in_pieces() -> None:
    calls = [made(number, "github", f"tool_{number % 40}", f"p{number % 30}") for number in range(10_000)]
    replay = Replay(CallRules.from_settings(ApprovalSettings.model_validate({"rules": [{"tools": ["tool_1*"]}]}), {}))
    assert list(replay.judge_in_steps(calls)) == [*range(CALLS_AT_A_TIME, 10_001, CALLS_AT_A_TIME), 10_000]
    found = replay.summarize()
    assert (found.calls, found.asked, found.denied) == (10_000, 11 * 250, 0)
    assert [(each.rule, each.calls) for each in found.rows] == [("", 7250), *[("rule 1", 250)] * 11]
    assert len(found.rows[0].callers) == MAX_CALLERS
    assert found.rows[0].newest_call_id == "call_0"


def test_without_calls_there_are_no_rows() -> None:
    assert replayed(RULES, []) == ReplaySummary(rows=(), calls=0, asked=0, denied=0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["delete_x", "read"]), st.booleans()), max_size=30))
def test_every_call_is_in_one_row(calls: list[tuple[str, str, bool]]) -> None:
    history = [made(at, server, tool, hints=READS if reads else None) for at, (server, tool, reads) in enumerate(calls)]
    found = replayed(RULES, history)
    assert sum(each.calls for each in found.rows) == found.calls == len(calls)
    assert found.asked == sum(each.calls for each in found.rows if each.action is Action.ASK)
    assert found.denied == sum(RULES.decide(facts).action is Action.DENY for _, facts in history)


@pytest.mark.parametrize(
    ("method", "is_one"), [("tools/call", True), (" Tools/CALL", True), ("tools/list", False), ("", False)]
)
def test_a_call_of_a_tool_is_known_however_carelessly_it_is_written(method: str, is_one: bool) -> None:
    assert is_tool_call(method) is is_one
