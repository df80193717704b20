"""What the page gets of a call to approve: every value as it is, who may say yes, and what a change changes."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from hubbub_client import Caller, Grant, InvalidArgument, PendingRequest
from hubbub_client.data.records import Approval
from hubbub_web.records.approval import approval_json, changed_rows, is_exact, parse_arguments

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asked(arguments: Any, *, changed: Any = None, by: tuple[str, ...] = (), **rule: Any) -> PendingRequest:
    """A call to approve."""
    terms = {"name": "r", "needed": 2, "edit": True, "remember_s": [3600.0], "approvers": [], "not_by_caller": False}
    document = {
        "rule": terms | rule,
        "tool": {"name": "pay"},
        "arguments": arguments,
        "digest": "sha256:1",
        "caller": {"name": "bot"},
    }
    return PendingRequest(
        id="r1",
        server="bank",
        kind="approval",
        state="open",
        delivery="none",
        request=document,
        call_id="c1",
        cause_source="wire",
        task_id=None,
        created_at=NOW,
        deadline=None,
        claim=None,
        answer=None,
        answered_by=None,
        reason=None,
        approvals=tuple(Approval(by=each, at=NOW) for each in by),
        changed_arguments=changed,
        arguments_digest="sha256:2" if changed is not None else None,
    )


def person(name: str = "Ada", role: Any = "approver", servers: tuple[str, ...] = ("*",)) -> Caller:
    """Somebody at the page."""
    grants = (Grant(role=role, servers=servers),)
    return Caller(name=name, credential="token", grants=grants, expires_at=None, may_name_others=False)


def told(request: PendingRequest, who: Caller | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(approval_json(request, who or person())))
    return found


def test_numbers_are_texts_as_they_were_given() -> None:
    large = 2**70 + 1
    found = told(asked({"amount": large}))
    assert [row["text"] for row in found["arguments"]] == [str(large)]
    assert json.loads(found["text"]) == {"amount": large}
    assert found["given"] is None
    assert told(asked({"amount": 5}))["given"] == {"amount": 5}


def test_characters_that_are_not_shown_have_their_number_in_their_place() -> None:
    found = told(asked({"a\u202e": "x\u200by", "list": ["\ufeff"]}))
    assert [(row["title"], row["text"]) for row in found["arguments"]] == [
        ("a[U+202E]", "x[U+200B]y"),
        ("list", '["[U+FEFF]"]'),
    ]
    assert found["given"] == {"a\u202e": "x\u200by", "list": ["\ufeff"]}


@pytest.mark.parametrize("given", [["a", "b"], "text", 5, None, True])
def test_arguments_that_are_no_object_are_shown_too_and_cannot_be_changed(given: Any) -> None:
    found = told(asked(given))
    assert json.loads(found["text"]) == given
    assert [json.loads(row["text"]) for row in found["arguments"]] == [given]
    assert found["may_change"] is False


@pytest.mark.parametrize(
    ("who", "rule", "obstacle"),
    [
        (person(), {}, ""),
        (person(role="operator"), {}, ""),
        (person(role="admin"), {}, ""),
        (person(role="responder"), {}, "permission"),
        (person(role="caller"), {}, "permission"),
        (person(role="viewer"), {}, "permission"),
        (person(servers=("git*",)), {}, "permission"),
        (person(servers=("ba*",)), {}, ""),
        (person("bot"), {}, ""),
        (person("bot"), {"not_by_caller": True}, "caller"),
        (person(), {"approvers": ["Ben"]}, "approver"),
        (person(), {"approvers": ["Ben", "Ada"]}, ""),
        (person(), {"approvers": ["Ben", "oidc-role:release"]}, ""),
        (person("Ben"), {}, "again"),
    ],
)
def test_who_can_not_approve_is_told_why(who: Caller, rule: dict[str, Any], obstacle: str) -> None:
    assert told(asked({}, by=("Ben",), **rule), who)["obstacle"] == obstacle


def test_what_is_approved_is_what_somebody_has_changed() -> None:
    found = told(asked({"a": 1, "b": 2}, changed={"a": 1, "b": 3}, by=("Ben",)))
    assert found["digest"] == "sha256:2"
    assert [(row["path"], row["old"], row["new"]) for row in found["changes"]] == [("b", "2", "3")]
    assert found["given"] == {"a": 1, "b": 3}
    assert told(asked({"a": 1}))["changes"] is None


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [("a", "1", "true", "")]),
        ({"a": 1}, {"a": "1"}, [("a", "1", "1", "")]),
        ({"a": 2**70}, {"a": 2**70 + 1}, [("a", str(2**70), str(2**70 + 1), "")]),
        ({"a": "x"}, {}, [("a", "x", "", "removed")]),
        ({}, {"a": ""}, [("a", "", "", "added")]),
        ({"a": "1\n2"}, {"a": "1\n3", "b": []}, [("a", "1\n2", "1\n3", ""), ("b", "", "[]", "added")]),
    ],
)
def test_what_is_different_is_shown_whole(before: Any, after: Any, rows: list[Any]) -> None:
    found = changed_rows(before, after, {})
    assert [(row["path"], row["old"], row["new"], row["fate"]) for row in found] == rows


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1"),
        ("{", "line 1"),
        ("[]", "an object"),
        ("null", "an object"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": {"b": 1, "b": 1}}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": ' + "[" * 100_000, "deeply"),
    ],
)
def test_arguments_that_cannot_be_read_are_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_arguments(text)
    ((place, why),) = refused.value.violations
    assert place == "approve.arguments"
    assert problem in why


@pytest.mark.parametrize(
    ("value", "is_so"),
    [(2**53 - 1, True), (2**53, False), (-(2**53), False), (1.5, True), (1.0, False), (True, True), ("x", True)],
)
def test_only_what_a_browser_reads_as_it_is_gets_a_form(value: Any, is_so: bool) -> None:
    assert is_exact({"a": [value]}) is is_so
