"""Which calls an agent's rules approve and deny: tables, no hub."""

from dataclasses import replace
from typing import Any

import pytest

from hubbub_agent.rules.problems import ConfigProblem
from hubbub_agent.rules.rulebook import parse_rules
from hubbub_client.data.records import PendingRequest

from .agent_requests import CHANGED, DELETE, LONG, NO, YES, request


@pytest.mark.parametrize(
    ("rule", "asked", "fits"),
    [
        ({"escalate": True}, DELETE, True),
        ({"approve": True}, DELETE, False),
        ({"accept": True}, DELETE, False),
        (YES, DELETE, True),
        (YES, request(), False),
        (YES | {"tool": "delete"}, DELETE, False),
        (YES | {"server": "other"}, DELETE, False),
        (YES | {"caller": "deploy-*"}, DELETE, True),
        (YES | {"caller": "ada"}, DELETE, False),
        (YES | {"values": {"repo": "sandbox"}}, DELETE, True),
        (YES | {"values": {"repo": "sandbox"}}, CHANGED, False),
        (YES | {"values": {"repo": "shop"}}, CHANGED, True),
        (YES | {"values": {"days": {"max": 2}}}, DELETE, False),
        (YES | {"values": {"repo": {"matches": "^a*$"}}}, LONG, False),
        (YES | {"values": {"missing": {"one_of": ["x"]}}}, DELETE, False),
        (YES | {"fields": {"repo": "string", "days": "number"}}, DELETE, True),
        (YES | {"fields": {"force": "integer"}}, DELETE, False),
        (YES | {"fields": {"repo": "any", "branch": "any"}, "other_fields": False}, DELETE, False),
        (YES | {"says": "x"}, DELETE, False),
        (YES, replace(DELETE, request=None), False),
        (NO, DELETE, True),
        (NO, request(), False),
        (NO | {"values": {"repo": {"matches": ";$"}}}, LONG, True),
    ],
)
def test_a_rule_fits_a_call_that_meets_all_its_conditions(
    rule: dict[str, Any], asked: PendingRequest, fits: bool
) -> None:
    found = parse_rules({"rule": [rule, {"accept": True, "server": "nobody"}]}).find(asked)
    assert (found is not None) == fits


def test_an_approval_is_of_the_arguments_that_the_rule_was_tried_on() -> None:
    shown = replace(DELETE, arguments_digest="sha256:1")
    for rule, answer in ((YES, {"approve": {"digest": "sha256:1"}}), (NO, {"deny": "never"})):
        found = parse_rules({"rule": [rule]}).find(shown)
        assert found is not None
        assert found.rule.fixed_answer(shown) == answer


def test_calls_to_approve_come_only_to_an_agent_whose_rules_name_them() -> None:
    assert parse_rules({"rule": [{"approve": True}, {"escalate": True}]}).kinds == ["elicitation_form"]
    assert parse_rules({"rule": [YES]}).kinds == ["approval"]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"rule": [{"approve": True, "kind": "approval"}]}, "rule 1: a rule that approves calls names their tool"),
        ({"rule": [{"approve": True, "tool": "x"}]}, "rule 1: tool and caller are those of a call to approve"),
        (
            {"rule": [{"deny": "no", "agent": {"command": "x"}}]},
            "rule 1: agent is what an agent asks to do",
        ),
        ({"rule": [{"accept": True, "caller": "x"}]}, 'kind = "approval"'),
        ({"rule": [{"command": ["x"], "kind": "approval"}]}, "rule 1: command is no answer to approval"),
        ({"rule": [{"chat": "c", "kind": "approval"}]}, "rule 1: chat is no answer to approval"),
        ({"rule": [{"deny": "no", "kind": "sampling"}]}, "rule 1: deny is no answer to sampling"),
    ],
)
def test_rules_about_calls_that_cannot_be_used_are_refused_with_the_reason(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigProblem) as caught:
        parse_rules(document)
    assert says in str(caught.value)
