"""What an agent asks to do, as people and programs read it: command, folder and changes; all else of its server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.v1 import inbox_pb2
from hubbub_client.data.agent_questions import FileChange
from hubbub_client.data.conversion import read
from hubbub_client.data.records import PendingRequest
from hubbub_frontend.display.agents import agent_line, agent_view
from hubbub_frontend.display.answers import answer_line
from hubbub_frontend.display.approvals import arguments_line
from hubbub_frontend.display.argument_rows import argument_rows
from hubbub_frontend.display.code_spans import fold_code
from hubbub_frontend.display.decisions import decision_choices, find_wider_decision
from hubbub_frontend.display.questions import render_request
from hubbub_frontend.display.records import question_line
from hubbub_frontend.samples import sample_answer
from hubbub_notify.text import compose_notice
from hubbub_web.records.agent import agent_json
from hubbub_web.records.brief import boolean_field, question_excerpt

FORM = {"type": "object", "properties": {}}
SCRIPT = "cd shop && \\\n  npm test\nnpm run build"
COMMAND: dict[str, Any] = {
    "message": f'Allow Codex to run `/bin/bash -lc "{SCRIPT}"` in `/srv/shop`?',
    "requestedSchema": FORM,
    "threadId": "01a2",
    "codex_elicitation": "exec-approval",
    "codex_command": ["/bin/bash", "-lc", SCRIPT],
    "codex_cwd": "/srv/shop",
    "codex_parsed_cmd": [{"type": "unknown", "cmd": SCRIPT}],
    "_meta": {"example.org/why": "tests"},
}
DIFF = "@@ -1 +1 @@\n-first\n+second\n"
CHANGES: dict[str, Any] = {
    "/w/a.py": {"type": "update", "unified_diff": DIFF, "move_path": None},
    "/w/b.py": {"update": {"unified_diff": DIFF, "move_path": "/w/c.py"}},
    "/w/new.py": {"type": "add", "content": "x\ny\n"},
    "/w/old.py": {"delete": {"content": "z\n"}},
    "/w/odd.py": {"type": "chmod", "mode": 7},
}
PATCH: dict[str, Any] = {
    "message": "Allow Codex to apply proposed code changes?",
    "requestedSchema": FORM,
    "codex_elicitation": "patch-approval",
    "codex_changes": CHANGES,
    "codex_grant_root": "/w",
}


def pending(asked: object, kind: int = inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM, **fields: Any) -> Any:
    message = inbox_pb2.PendingRequest(id="req_1", server="codex", kind=kind, request=json.dumps(asked).encode())
    message.state = inbox_pb2.PENDING_REQUEST_STATE_ANSWERED if fields else inbox_pb2.PENDING_REQUEST_STATE_OPEN
    for name, value in fields.items():
        setattr(message, name, json.dumps(value).encode())
    return read(PendingRequest, message)


def rows(asked: object) -> list[tuple[str, str, str]]:
    view = agent_view(pending(asked))
    return [(row.title, row.kind, row.text or f"-{row.old}+{row.new}") for row in view.rows]


def test_a_command_is_the_script_of_its_shell_with_the_folder_and_the_rest_is_folded() -> None:
    request = pending(COMMAND)
    assert request.agent.command == ("/bin/bash", "-lc", SCRIPT)
    assert rows(COMMAND) == [("Command, run by /bin/bash -lc", "code", SCRIPT)]
    view = agent_view(request)
    assert view.folder == "/srv/shop"
    assert [row.title for row in view.more] == [
        "threadId",
        "codex_elicitation",
        "codex_parsed_cmd",
        "_meta.example.org/why",
    ]


@pytest.mark.parametrize(
    ("command", "title", "line"),
    [
        (["git", "commit", "-m", "a b"], "Command", "git commit -m 'a b'"),
        (["bash", "-lc", "ls"], "Command, run by bash -lc", "ls"),
        (["C:\\pwsh.exe", "-Command", "ls"], "Command, run by 'C:\\pwsh.exe' -Command", "ls"),
        (["bash", "-lc", "ls", "x"], "Command", "bash -lc ls x"),
        (["notbash", "-c", "ls"], "Command", "notbash -c ls"),
        (["ls", 1], "Command", "'[\"ls\", 1]'"),
        ({"a": 1}, "Command", "'{\"a\": 1}'"),
        ("ls -l", "Command", "'ls -l'"),
    ],
)
def test_a_command_reads_as_it_would_be_typed(command: object, title: str, line: str) -> None:
    assert rows({"codex_command": command}) == [(title, "code", line)]


def test_changes_are_read_file_by_file_and_an_unknown_one_is_shown_as_it_came() -> None:
    assert pending(PATCH).agent.changes == (
        FileChange(path="/w/a.py", kind="update", diff=DIFF),
        FileChange(path="/w/b.py", kind="update", diff=DIFF, moved_to="/w/c.py"),
        FileChange(path="/w/new.py", kind="add", content="x\ny\n"),
        FileChange(path="/w/old.py", kind="delete", content="z\n"),
        FileChange(path="/w/odd.py", kind="unknown", content='{"type": "chmod", "mode": 7}'),
    )
    assert rows(PATCH) == [
        ("Changed: /w/a.py", "patch", DIFF.rstrip()),
        ("Changed: /w/b.py → /w/c.py", "patch", DIFF.rstrip()),
        ("New file: /w/new.py", "change", "-+x\ny"),
        ("Deleted: /w/old.py", "change", "-z+"),
        ("A change that is not known: /w/odd.py", "code", '{"type": "chmod", "mode": 7}'),
        ("Asks to write below this folder from now on", "code", "/w"),
    ]
    assert rows({"codex_changes": [1]}) == [("A change that is not known: ", "code", "[1]")]


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"codex_command": ["bash", "-c", "rm a\u202eb"]}, "rm a\ufffdb"),
        ({"codex_changes": {"/w/a": {"type": "update", "unified_diff": "+a\u202eb\n"}}}, "+a\ufffdb"),
        ({"codex_changes": {"/w/a": {"type": "add", "content": "a\u202eb"}}}, "-+a\ufffdb"),
        ({"codex_changes": {"/w/a": {"type": "delete", "content": "a\u202eb"}}}, "-a\ufffdb+"),
        ({"codex_changes": {"/w/a": {"type": "odd", "x": "a\u202eb"}}}, '{"type": "odd", "x": "a\ufffdb"}'),
    ],
)
def test_what_an_agent_would_do_is_shown_with_its_invisible_characters(asked: dict[str, Any], shown: str) -> None:
    assert [text for _, _, text in rows(asked)] == [shown]


def test_a_change_that_moves_a_file_to_what_is_no_name_is_shown_as_it_came() -> None:
    odd = {"type": "update", "unified_diff": DIFF, "move_path": ["/w/b"]}
    (change,) = pending({"codex_changes": {"/w/a": odd}}).agent.changes
    assert (change.kind, json.loads(change.content)) == ("unknown", odd)


def test_members_may_stand_in_meta_and_those_of_params_come_first() -> None:
    asked = {"message": "?", "_meta": {"codex_command": ["ls"], "codex_cwd": "/w", "other": 1}}
    view = agent_view(pending(asked))
    assert ([row.text for row in view.rows], view.folder, [row.title for row in view.more]) == (
        ["ls"],
        "/w",
        ["_meta.other"],
    )
    both = agent_view(pending({**asked, "codex_cwd": "/x"}))
    assert (both.folder, [row.title for row in both.more]) == ("/x", ["_meta.codex_cwd", "_meta.other"])


def test_what_any_server_sends_beside_mcp_is_shown_bounded_and_with_its_invisible_characters() -> None:
    request = pending({"message": "?", "requestedSchema": FORM, "note": "a\u202eb", "long": "x" * 30_000})
    assert request.agent is None
    view = agent_view(request)
    assert [row.title for row in view.more] == ["note", "long"]
    assert view.more[0].text == "a\ufffdb"
    assert view.more[1].text.endswith("… (10000 characters more)")
    page = agent_json(request)
    assert page is not None
    assert page["more"][0]["text"] == "a[U+202E]b"
    many = agent_view(pending({f"m{at}": at for at in range(1000)}))
    assert (len(many.more), many.more[-1].text) == (101, "900 members more, which are in the JSON")
    files = agent_view(pending({"codex_changes": {f"/w/{at}": {"type": "add", "content": ""} for at in range(600)}}))
    assert (len(files.rows), files.rows[-1].text) == (501, "100 files more, which are in the JSON")
    assert agent_json(pending({"message": "?", "requestedSchema": FORM})) is None
    approval = pending({"rule": {}, "x": 1}, inbox_pb2.PENDING_REQUEST_KIND_APPROVAL)
    assert (approval.agent, approval.more) == (None, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "add", "content", "x"]), inner)
    ),
    max_leaves=8,
)
NAMES = [
    "codex_command",
    "codex_cwd",
    "codex_changes",
    "codex_grant_root",
    "codex_elicitation",
    "_meta",
    "message",
    "x",
]


@given(st.dictionaries(st.sampled_from(NAMES), JSON))
def test_whatever_a_server_sends_there_is_shown(asked: dict[str, Any]) -> None:
    request = pending(asked)
    assert render_request(request).plain
    agent_json(request)
    agent_line(request)
    question_excerpt(request)
    compose_notice("n", [request], "", content=True)


def test_a_question_is_read_whole_at_a_terminal_and_its_decisions_with_it() -> None:
    text = render_request(pending(COMMAND)).plain
    for line in (
        "Command, run by /bin/bash -lc",
        "    npm test",
        "  npm run build",
        "in the folder /srv/shop",
        "More from the server",
    ):
        assert line in text
    for line in (
        "• approved  Approve",
        "• approved_for_session  Approve for this session",
        "• abort  Deny and stop the agent",
    ):
        assert line in text
    assert "Form" not in text
    text = render_request(pending(PATCH)).plain
    assert "1  -first\n1  +second" in text
    assert "1  +x\n2  +y" in text


@pytest.mark.parametrize("kind", ["ELICITATION_URL", "SAMPLING", "ROOTS"])
def test_what_an_agent_says_in_another_question_is_among_the_rest(kind: str) -> None:
    asked = {"codex_command": ["ls"], "codex_cwd": "/w"}
    request = pending(asked, inbox_pb2.PendingRequestKind.Value(f"PENDING_REQUEST_KIND_{kind}"))
    assert (request.agent, dict(request.more)) == (None, asked)
    text = render_request(request).plain
    assert "codex_command" in text
    assert "codex_cwd" in text


def test_a_form_with_fields_stays_a_form_whoever_asks() -> None:
    form = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
    request = pending({**COMMAND, "requestedSchema": form})
    assert decision_choices(request) == ()
    assert "why" in render_request(request).plain.partition("Form")[2]


def test_an_agent_s_decision_is_offered_and_named_in_words() -> None:
    request = pending(COMMAND)
    assert [each.label for each in decision_choices(request)] == [
        "Approve",
        "Approve for this session",
        "Deny",
        "Deny and stop the agent",
    ]
    wider = find_wider_decision(request)
    assert wider is not None
    assert (wider.member, wider.value) == ("decision", "approved_for_session")
    assert sample_answer(request) == ["decision=approved"]
    assert decision_choices(pending({"message": "?", "requestedSchema": FORM})) == ()
    answer = {"action": "accept", "content": {}, "decision": "approved_for_session"}
    assert answer_line(pending(COMMAND, answer=answer)) == "approved for this session"
    page = agent_json(pending(COMMAND, answer={"action": "cancel", "decision": "abort"}))
    assert page is not None
    assert page["decided"] == "denied, and the agent stopped"


def test_code_of_several_lines_is_its_first_one_where_one_line_is_shown() -> None:
    shown = 'Allow Codex to run `/bin/bash -lc "cd shop && …` in `/srv/shop`?'
    assert question_line(pending(COMMAND)) == question_excerpt(pending(COMMAND)) == shown
    assert agent_line(pending(COMMAND)) == "cd shop && … in /srv/shop"
    assert agent_line(pending(PATCH)) == "/w/a.py, /w/b.py → /w/c.py, /w/new.py and 2 more"
    given = argument_rows({"command": "npm test\nrm -r build", "edit": {"old_string": "a", "new_string": "b\nc"}}, {})
    assert arguments_line(given) == "command: npm test …, edit: b …"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no code", "no code"),
        ("`a b` and\n`c`", "`a b` and\n`c`"),
        ("run `a \\\n b`?", "run `a …`?"),
        ("```sh\nls\nrm x\n```", "`ls …`"),
        ("```\nls\n```", "`ls`"),
        ("an odd ` tick", "an odd ` tick"),
        ("``a`\nb`` `c`", "`a` …` `c`"),
    ],
)
def test_code_is_what_stands_between_equal_backticks(text: str, shown: str) -> None:
    assert fold_code(text) == shown


@given(st.text(alphabet="`a\n ", max_size=60))
def test_folding_leaves_all_that_is_no_code(text: str) -> None:
    folded = fold_code(text)
    if "\n" not in text or "`" not in text:
        assert folded == text
    assert len(folded) <= len(text) + 2 * text.count("\n")


def test_a_row_with_folded_code_is_not_answered_at_once() -> None:
    yes = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    assert boolean_field(pending({"message": "Run `ls`?", "requestedSchema": yes})) is not None
    assert boolean_field(pending({"message": "Run `ls\nrm -r /`?", "requestedSchema": yes})) is None
    assert boolean_field(pending({"message": "Run it?", "requestedSchema": yes, "codex_command": ["rm"]})) is None


def test_a_notification_has_the_first_line_of_a_command_or_the_files_if_it_may_have_content() -> None:
    body = compose_notice("n", [pending(COMMAND)], "", content=True).body
    assert "Allow Codex to run '/bin/bash -lc \"cd shop && …' in '/srv/shop'?" in body
    assert "npm" not in body
    body = compose_notice("n", [pending(PATCH)], "", content=True).body
    assert "Allow Codex to apply proposed code changes?\n/w/a.py, /w/b.py → /w/c.py, /w/new.py and 2 more" in body
    assert "/w" not in compose_notice("n", [pending(PATCH)], "", content=False).body
