"""What a coding agent behind the bridge asks to do: command, folder, diff, and its own options as the answers."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub_agent.rules.rulebook import parse_rules
from hubbub_client.data.agent_questions import FileChange
from hubbub_frontend.display.agents import agent_line, agent_view
from hubbub_frontend.display.answers import answer_line
from hubbub_frontend.display.argument_rows import change_lines, line_numbers
from hubbub_frontend.display.decisions import decision_choices
from hubbub_frontend.display.questions import render_request
from hubbub_frontend.samples import sample_answer
from hubbub_notify.text import compose_notice
from hubbub_web.records.agent import agent_json
from hubbub_web.records.brief import boolean_field

from .agent_requests import request

OPTIONS = [
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
    {"optionId": "odd", "name": "Ask my boss", "kind": "escalate"},
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
]
COMMAND: dict[str, Any] = {
    "toolCallId": "t1",
    "title": "Run the tests",
    "kind": "execute",
    "rawInput": {"command": "npm test && \\\n ls", "timeout": 5},
}
EDIT: dict[str, Any] = {
    "title": "Edit prices.py",
    "kind": "edit",
    "rawInput": {"old_string": "b", "new_string": "B"},
    "content": [
        {"type": "diff", "path": "/srv/shop/prices.py", "oldText": "a\nb\nc\n", "newText": "a\nB\nc\n"},
        {"type": "diff", "path": "/srv/shop/new.py", "oldText": None, "newText": "x\n"},
        {"type": "diff", "path": "/srv/shop/logo.png", "oldText": "\0a", "newText": "\0b"},
    ],
}


def acp(call: dict[str, Any], options: Any = OPTIONS, **members: Any) -> Any:
    """A question as the bridge asks it."""
    choices = [{"const": each["optionId"], "title": each["name"]} for each in options]
    schema = {
        "type": "object",
        "properties": {"decision": {"type": "string", "oneOf": choices}},
        "required": ["decision"],
    }
    asked = {"session": "s1", "cwd": "/srv/shop", "toolCall": call, "options": options, **members}
    return request(message="coder wants to act", requestedSchema=schema, _meta={"acp/toolCall": asked})


def rows(asked: Any) -> list[tuple[str, str, str]]:
    return [(row.title, row.kind, row.text or f"-{row.old}+{row.new}") for row in agent_view(asked).rows]


def test_a_command_is_shown_as_it_was_written_with_its_folder_and_the_rest_of_its_input_folded() -> None:
    asked = acp(COMMAND)
    assert rows(asked) == [
        ("Command", "code", "npm test && \\\n ls"),
        ("The agent calls it", "text", "Run the tests"),
    ]
    view = agent_view(asked)
    assert (view.folder, [row.title for row in view.more]) == ("/srv/shop", ["input.timeout"])
    assert agent_line(asked) == "npm test && … in /srv/shop"
    assert (asked.agent.session, boolean_field(asked)) == ("s1", None)


@pytest.mark.parametrize(
    ("call", "line", "folder"),
    [
        ({"kind": "execute", "title": "ls -l"}, "ls -l", "/srv/shop"),
        ({"rawInput": {"command": ["bash", "-lc", "ls -l"], "cwd": "/w"}}, "ls -l", "/w"),
        ({"rawInput": {"cmd": ["git", "log", "a b"], "workdir": "/v"}}, "git log 'a b'", "/v"),
        ({"rawInput": {"command": ["ls", 1]}}, '["ls", 1]', "/srv/shop"),
        ({"kind": "execute", "title": "x", "rawInput": {"command": "y"}}, "y", "/srv/shop"),
    ],
)
def test_agents_name_command_and_folder_in_ways_of_their_own(call: dict[str, Any], line: str, folder: str) -> None:
    asked = acp(call).agent
    assert (asked.command_line, asked.folder) == (line, folder)
    told = acp({"kind": "execute", "title": "`ls`", "rawInput": {"command": "ls"}})
    assert rows(told) == [("Command", "code", "ls")]  # a title that says the same is not said again


def test_a_change_is_a_diff_with_numbers_and_what_is_no_text_says_so_but_is_shown() -> None:
    asked = acp(EDIT)
    assert asked.agent.changes[:2] == (
        FileChange(path="/srv/shop/prices.py", kind="update", texts=("a\nb\nc\n", "a\nB\nc\n")),
        FileChange(path="/srv/shop/new.py", kind="add", content="x\n"),
    )
    assert rows(asked) == [
        ("The agent calls it", "text", "Edit prices.py"),
        ("Changed: /srv/shop/prices.py", "change", "-a\nb\nc\n+a\nB\nc\n"),
        ("New file: /srv/shop/new.py", "change", "-+x"),
        ("Changed: /srv/shop/logo.png (not only text)", "change", "-\ufffda+\ufffdb"),
    ]
    assert "1   a\n2  -b\n2  +B\n3   c\n" in render_request(asked).plain
    gone = acp({"kind": "delete", "content": [{"type": "diff", "path": "/w/a", "oldText": "z\n", "newText": ""}]})
    assert rows(gone) == [("Deleted: /w/a", "change", "-z+")]
    odd = acp({"content": [{"type": "diff", "path": "/w/a", "oldText": 1, "newText": "x"}]})
    assert [(title, kind) for title, kind, _ in rows(odd)] == [("A change that is not known: /w/a", "code")]
    assert agent_line(asked) == "/srv/shop/prices.py, /srv/shop/new.py, /srv/shop/logo.png"


def test_another_tool_is_shown_with_its_input_files_and_words() -> None:
    asked = acp(
        {
            "title": "Fetch",
            "kind": "fetch",
            "rawInput": {"url": "https://example.org"},
            "locations": [{"path": "/w/a", "line": 3}],
            "content": [{"type": "content", "content": {"type": "text", "text": "a\x1b[31mb"}}],
            "surprise": 1,
        },
        truncated=True,
        omittedBytes=1234,
    )
    assert rows(asked) == [
        ("The agent calls it", "text", "Fetch"),
        ("Not all of it is here", "text", "1,234 bytes are left out: the question was too big"),
        ("url", "text", "https://example.org"),
        ("File", "text", "/w/a"),
        ("The agent says", "text", "a\ufffd[31mb"),
    ]
    assert [row.title for row in agent_view(asked).more] == ["toolCall.surprise"]
    assert agent_line(asked) == "Fetch"


def test_the_options_are_the_answers_those_that_allow_first_and_those_that_reject_marked() -> None:
    choices = decision_choices(acp(COMMAND))
    assert [(each.value, each.label, each.rejects, bool(each.note)) for each in choices] == [
        ("once", "Allow", False, False),
        ("always", "Always allow", False, True),
        ("odd", "Ask my boss", False, True),
        ("no", "Reject", True, False),
    ]
    page = agent_json(acp(COMMAND))
    assert page is not None
    assert [each["value"] for each in page["decisions"]] == ["once", "always", "odd", "no"]
    assert sample_answer(acp(COMMAND)) == ["decision=always"]
    answered = replace(acp(COMMAND), state="answered", answer={"action": "accept", "content": {"decision": "no"}})
    assert answer_line(answered) == "decision: Reject"


def test_options_that_are_not_those_of_the_form_or_are_too_many_leave_the_form_as_it_is() -> None:
    asked = acp(COMMAND)
    many = [{"optionId": f"o{at}", "name": "x", "kind": "allow_once"} for at in range(9)]
    assert decision_choices(acp(COMMAND, many)) == ()
    assert decision_choices(acp(COMMAND, [])) == ()
    other = {"type": "object", "properties": {"decision": {"type": "string", "enum": ["once"]}}}
    assert decision_choices(replace(asked, request={**asked.request, "requestedSchema": other})) == ()
    assert "Form" in render_request(replace(asked, request={**asked.request, "requestedSchema": other})).plain


def test_a_rule_that_names_what_an_agent_may_do_allows_it_once_and_no_other_rule_does() -> None:
    def answer(asked: Any, **agent: Any) -> Any:
        (rule,) = parse_rules({"rule": [{"approve": True, **({"agent": agent} if agent else {})}]}).rule
        return rule.fixed_answer(asked) if rule.fits(asked) else None

    tests = acp({"kind": "execute", "title": "npm test"})
    assert answer(tests, command="npm test") == {"accept": {"decision": "once"}}
    assert answer(tests, command="npm") is None
    assert answer(tests) == {"accept": True}  # which no form with a choice takes
    assert answer(acp(EDIT), file={"matches": "^/srv/shop/.*"}) == {"accept": {"decision": "once"}}
    assert answer(acp({"kind": "execute", "title": "npm test"}, truncated=True), command="npm test") is None
    assert answer(acp({"kind": "fetch"}), folder="/srv/shop") is None


def test_a_notification_has_the_command_or_the_files_if_it_may_have_content() -> None:
    assert (
        "npm test && … in /srv/shop"
        in compose_notice("n", [acp({**COMMAND, "rawInput": {"command": "npm test &&\nx"}})], "", content=True).body
    )
    assert "/srv/shop/prices.py" in compose_notice("n", [acp(EDIT)], "", content=True).body
    assert "/srv" not in compose_notice("n", [acp(EDIT)], "", content=False).body


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        (["@@ -3,2 +7,2 @@", " a", "-b", "+c", "+d"], [None, 7, 4, 8, 9]),
        (["@@ line 5", "-a", "+b"], [None, 5, 5]),
        (["@@ line 5, now 9", " a", "+b"], [None, 9, 10]),
        (["no head", "+a"], [None, None]),
        (["@@ odd", "+a"], [None, None]),
    ],
)
def test_lines_of_a_diff_have_the_numbers_of_their_text(lines: list[str], numbers: list[int | None]) -> None:
    assert [*line_numbers(lines)] == numbers


LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30)


@given(LINES, LINES)
def test_the_number_of_a_line_is_its_place_in_its_text(old: list[str], new: list[str]) -> None:
    lines = change_lines("".join(f"{each}\n" for each in old), "".join(f"{each}\n" for each in new))
    for line, number in zip(lines, line_numbers(lines), strict=True):
        if number is not None:
            assert (old if line.startswith("-") else new)[number - 1] == line[1:]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "path", "oldText", "newText", "command", "optionId", "text"]), inner)
    ),
    max_leaves=8,
)
MEMBERS = ["title", "kind", "rawInput", "content", "locations", "x"]


@given(st.dictionaries(st.sampled_from(MEMBERS), JSON), st.lists(JSON, max_size=3), JSON)
def test_whatever_an_agent_sends_is_shown(call: dict[str, Any], options: list[Any], cwd: Any) -> None:
    asked = acp(call, [])
    asked.request["_meta"]["acp/toolCall"] |= {"options": options, "cwd": cwd, "truncated": cwd}
    assert render_request(asked).plain
    agent_json(asked)
    agent_line(asked)
    compose_notice("n", [asked], "", content=True)
