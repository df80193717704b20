"""A call to approve in words: who, what and where; arguments to read; nothing of a server or model as the hub's."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest

from hubbub.v1 import inbox_pb2
from hubbub_client.data.conversion import read
from hubbub_client.data.records import PendingRequest
from hubbub_frontend.display.answers import answer_line
from hubbub_frontend.display.approvals import ApprovalView, approval_view, describe_hints, describe_span
from hubbub_frontend.display.argument_rows import argument_rows, change_lines
from hubbub_frontend.display.questions import render_request
from hubbub_frontend.display.records import outcome, question_text

SCHEMA: dict[str, Any] = {
    "properties": {
        "repo": {"type": "string", "title": "Repository"},
        "options": {"type": "object", "properties": {"deep": {"title": "Deep"}}},
        "branch": {"title": "Branch"},
    }
}
DOCUMENT: dict[str, Any] = {
    "message": "Deletes need two people.",
    "reason": "",
    "rule": {
        "name": "deletes",
        "needed": 2,
        "not_by_caller": True,
        "approvers": ["ada", "oidc-role:release"],
        "edit": True,
        "remember_s": [3600, 86400],
    },
    "tool": {"name": "delete_branch", "annotations": {"destructiveHint": True}, "inputSchema": SCHEMA},
    "arguments": {"branch": "release/1.4", "force": True, "repo": "shop"},
    "digest": "sha256:1",
    "caller": {"name": "deploy-bot", "host": "claude-code 2.1", "profile": "default", "roles": ["caller"]},
    "before": ["call_a"],
}


def pending(document: object = DOCUMENT, *, by: tuple[str, ...] = (), answer: object = None, **fields: Any) -> Any:
    state = inbox_pb2.PENDING_REQUEST_STATE_OPEN if answer is None else inbox_pb2.PENDING_REQUEST_STATE_ANSWERED
    message = inbox_pb2.PendingRequest(
        id="req_1",
        server="github",
        kind=inbox_pb2.PENDING_REQUEST_KIND_APPROVAL,
        state=state,
        request=json.dumps(document).encode(),
        approvals=[inbox_pb2.PendingRequest.Approval(by=name) for name in by],
        answer=b"" if answer is None else json.dumps(answer).encode(),
        **fields,
    )
    return read(PendingRequest, message)


def view(changes: Mapping[str, Any] | None = None, **options: Any) -> ApprovalView:
    shown = approval_view(pending(DOCUMENT | dict(changes or {}), **options))
    assert shown is not None
    return shown


def rule(**changes: Any) -> dict[str, Any]:
    return {"rule": DOCUMENT["rule"] | changes}


def test_the_headline_says_who_wants_to_run_what_where() -> None:
    assert view().headline == "deploy-bot (claude-code 2.1) wants to run delete_branch on github"
    assert question_text(pending()) == view().headline
    assert view({"caller": {"name": "ada"}}).headline == "ada wants to run delete_branch on github"
    app: dict[str, Any] = {"name": "ada", "host": "goose 1.9", "app": True}
    assert view({"caller": app}).headline == "ada (a page of an app in goose 1.9) wants to run delete_branch on github"
    assert view({"caller": app | {"host": ""}}).headline.startswith("ada (a page of an app) wants to run")
    assert view({"caller": app | {"app": "yes"}}).headline.startswith("ada (goose 1.9) wants to run")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a (harmless) tool", '"a (harmless) tool"'),
        ('say "yes"', "\"say 'yes'\""),
        ("list on github and nothing else", '"list on github and nothing else"'),
        ("x\n\x1b[31my", '"x \N{REPLACEMENT CHARACTER}[31my"'),
        ("", "a tool"),
    ],
)
def test_a_name_that_could_be_read_as_more_of_the_sentence_is_quoted(name: str, shown: str) -> None:
    assert view({"tool": {"name": name}}).headline == f"deploy-bot (claude-code 2.1) wants to run {shown} on github"


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"destructiveHint": True}, ["destructive"]),
        ({"destructiveHint": True, "readOnlyHint": True}, ["destructive"]),
        ({"readOnlyHint": True, "openWorldHint": True}, ["reads only", "open world"]),
        ({"readOnlyHint": False}, ["writes"]),
        ({"destructiveHint": False, "idempotentHint": True}, ["writes, destroys nothing", "safe to repeat"]),
        ({"readOnlyHint": "yes"}, ["does not say whether it writes"]),
        ({}, ["does not say whether it writes"]),
    ],
)
def test_what_a_server_claims_of_its_tool_is_said_in_words(annotations: dict[str, Any], words: list[str]) -> None:
    assert [hint.text for hint in describe_hints(annotations)] == words


@pytest.mark.parametrize(
    ("needed", "by", "words"),
    [
        (1, (), ""),
        (2, (), "Two people have to say yes."),
        (2, ("ada",), "ada has said yes; one more is needed."),
        (4, ("ada", "ben"), "ada and ben have said yes; two more are needed."),
        (12, ("ada", "ada"), "ada has said yes; 11 more are needed."),
    ],
)
def test_it_says_who_has_approved_and_how_many_more_are_needed(needed: int, by: tuple[str, ...], words: str) -> None:
    assert view(rule(needed=needed), by=by).progress == words


@pytest.mark.parametrize(
    ("approvers", "not_by_caller", "words"),
    [
        ([], False, "everyone with the permission to approve"),
        ([], True, "everyone with the permission to approve, but not deploy-bot"),
        (["ada", "oidc-role:release"], False, "ada or those with the role release"),
        (["cert:build", "b", "c"], False, "the certificate build, b or c"),
        ([f"p{number}" for number in range(9)], False, "p0, p1, p2, p3, p4 or 4 more"),
    ],
)
def test_it_says_who_may_approve(approvers: list[str], not_by_caller: bool, words: str) -> None:
    assert view(rule(approvers=approvers, not_by_caller=not_by_caller)).who == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3600, "1 hour"), (86400, "1 day"), (5400, "90 minutes"), (90, "90 seconds"), (1, "1 second")],
)
def test_a_length_of_time_is_said_in_one_unit(seconds: int, words: str) -> None:
    assert describe_span(seconds) == words


def test_arguments_come_in_the_order_of_the_schema_with_its_titles_and_unknown_ones_after() -> None:
    arguments = {"x": None, "branch": "a", "options": {"other": [1], "deep": 3}, "repo": ""}
    rows = argument_rows(arguments, SCHEMA)
    assert [(row.path, row.title, row.kind, row.text) for row in rows] == [
        ("repo", "Repository", "text", '""'),
        ("options.deep", "options / Deep", "text", "3"),
        ("options.other", "options / other", "text", "[1]"),
        ("branch", "Branch", "text", "a"),
        ("x", "x", "text", "null"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("command", "ls", "text"),
        ("command", "x" * 81, "code"),
        ("command", "for i in *\ndo :; done", "code"),
        ("diff", "--- a\n+++ b\n-x\n+y", "patch"),
        ("diff", "yes", "text"),
        ("options", {"a": 1}, "text"),
        ("options", {"a": ["x" * 80]}, "json"),
    ],
)
def test_long_texts_are_code_and_long_values_json(name: str, value: object, kind: str) -> None:
    (row,) = argument_rows({name: value}, {})
    assert row.kind == kind


@pytest.mark.parametrize(
    ("old", "new"),
    [("old_string", "new_string"), ("old_text", "new_text"), ("oldText", "newText"), ("before", "after")],
)
def test_an_old_and_a_new_text_are_one_change(old: str, new: str) -> None:
    path, row = argument_rows({"path": "a.py", new: "a\nc", old: "a\nb"}, {})
    assert (path.text, row.kind, row.old, row.new, row.path) == ("a.py", "change", "a\nb", "a\nc", new)
    assert row.title == f"{old} → {new}"


def test_each_of_several_edits_is_a_change_and_what_else_it_has_a_row() -> None:
    edits = [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": "d", "all": True}]
    rows = argument_rows({"edits": edits}, {})
    assert [(row.title, row.kind) for row in rows] == [
        ("edits 1", "change"),
        ("edits 2", "change"),
        ("edits 2 / all", "text"),
    ]


def test_two_dates_are_no_change() -> None:
    rows = argument_rows({"before": "2026-01-01", "after": "2025-01-01"}, {})
    assert [row.kind for row in rows] == ["text", "text"]


def test_a_change_is_a_diff_with_three_lines_around_it_and_its_place() -> None:
    old = [f"line {number}" for number in range(1, 30)]
    new = [*old[:19], "other", *old[20:]]
    lines = change_lines("\n".join(old), "\n".join(new))
    assert lines == [
        "@@ line 17",
        " line 17",
        " line 18",
        " line 19",
        "-line 20",
        "+other",
        *(f" {x}" for x in old[20:23]),
    ]


def test_texts_that_take_too_long_to_compare_are_shown_one_after_the_other() -> None:
    old, new = ["x", *"abc" * 50, "x"], ["y", *"bca" * 50, "z"]
    assert list(change_lines("\n".join(old), "\n".join(new), max_cost=10)) == [
        *(f"-{each}" for each in old),
        *(f"+{each}" for each in new),
    ]


def test_a_change_of_blanks_at_the_end_alone_is_not_shown_as_none() -> None:
    assert "only the end of the lines is different" in change_lines("a", "a\n")[-1]


def test_what_steers_a_terminal_is_made_harmless_wherever_it_stands() -> None:
    bad = "\x1b[2J\u202e"
    document = DOCUMENT | {
        "tool": {"name": bad, "title": bad, "description": bad, "inputSchema": {"properties": {"a": {"title": bad}}}},
        "arguments": {"a": bad, bad: {bad: bad * 50}, "oldText": bad, "newText": f"{bad}\n{bad}"},
        "caller": {"name": bad, "host": bad},
    }
    shown = json.dumps(asdict(view(document)), ensure_ascii=False)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    page = render_request(pending(document)).plain
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_what_a_server_says_comes_after_the_words_of_the_hub_under_a_heading_that_names_it() -> None:
    lie = "The hub has checked this call; approve it."
    page = render_request(pending(DOCUMENT | {"tool": DOCUMENT["tool"] | {"description": lie}})).plain
    heading = page.index("What github says of this tool")
    assert page.index("Deletes need two people.") < heading < page.index(lie)


def test_the_folder_in_which_a_host_would_use_its_own_tool_is_shown() -> None:
    request = pending(DOCUMENT | {"cwd": "/srv/shop"})
    assert "in the folder /srv/shop" in render_request(request).plain


def test_changed_arguments_are_shown_with_who_changed_them_and_the_original_ones() -> None:
    shown = view(by=("ada",), changed_arguments=b'{"repo": "sandbox"}')
    assert shown.changed == "ada has changed the arguments"
    assert [row.text for row in shown.arguments] == ["sandbox"]
    assert [row.text for row in shown.original] == ["shop", "release/1.4", "yes"]


@pytest.mark.parametrize("document", [[], 7, None, "text"])
def test_an_approval_that_cannot_be_read_says_so(document: object) -> None:
    request = pending(document)
    assert approval_view(request) is None
    assert "cannot be read" in render_request(request).plain
    assert question_text(request) == "somebody wants to run a tool on github"


@pytest.mark.parametrize(
    "document",
    [
        {"rule": 5, "tool": [], "arguments": "x", "caller": None, "before": {}},
        {"rule": {"needed": -1, "remember_s": ["x", -5, True, 60.0], "approvers": [1, "ada"]}, "tool": {"name": 5}},
    ],
)
def test_a_document_with_other_types_than_ours_is_shown_as_far_as_it_goes(document: Any) -> None:
    shown = approval_view(pending(document))
    assert shown is not None
    assert shown.arguments == ()
    assert [choice.seconds for choice in shown.remember] in ([], [60])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"action": "approve", "by": ["ada", "ben"]}, "approved, by: ada, ben"),
        ({"action": "approve", "by": ["ada"], "remember_s": 3600, "same_arguments": True}, "the same arguments"),
        ({"action": "approve", "by": ["ada"], "arguments": {"a": 1}, "comment": "ok"}, 'changed to: {"a": 1}'),
        ({"action": "deny", "reason": "not now"}, "denied, reason: not now"),
    ],
)
def test_the_answer_says_what_people_decided(answer: dict[str, Any], words: str) -> None:
    request = pending(answer=answer)
    assert words in answer_line(request)
    assert outcome(request) == {"approve": "approved", "deny": "denied"}[answer["action"]]


LINES = [f"l{number * 7919 % 3000}" for number in range(60_000)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "x" * 2**20},
        {"text": "\n" * 2**20},
        {"numbers": [1] * 300_000},
        {f"k{number}": number for number in range(60_000)},
        {"edits": [{"oldText": f"a{number}", "newText": f"b{number}"} for number in range(20_000)]},
        {"old_string": "\n".join(LINES), "new_string": "\n".join(reversed(LINES))},
        {"deep": json.loads("[" * 400 + "]" * 400)},
    ],
    ids=["long", "lines", "numbers", "keys", "edits", "change", "deep"],
)
def test_what_is_shown_of_a_megabyte_of_arguments_is_bounded(arguments: dict[str, Any]) -> None:
    page = render_request(pending(DOCUMENT | {"arguments": arguments}))
    assert len(page.plain) < 100_000
    assert len(page.plain.splitlines()) < 1000
