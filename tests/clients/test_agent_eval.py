"""`hubbub agent eval` and `record`: rules are tried on recorded questions before they answer for somebody."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hubbub.v1 import inbox_pb2
from hubbub_agent.evals import cases
from hubbub_agent.evals.cases import Expectation
from hubbub_cli.app import app
from hubbub_cli.run.session import Usage

from .agent_requests import LUNCH, request
from .conftest import ScriptedHub, hub, hubbub, typed

__all__ = ["hub", "hubbub", "typed"]

LUNCHES = request(message="Lunch?", requestedSchema=LUNCH)
RULES = """
[[rule]]
name = "no secrets"
says = "(?i)password"
escalate = "nobody types passwords for me"

[[rule]]
name = "soup"
says = "Lunch"
accept = { dish = "soup" }

[[rule]]
name = "forms"
kind = "elicitation_form"
chat = "m"

[[rule]]
name = "page"
kind = "elicitation_url"
decline = true

[chat.m]
base_url = "http://127.0.0.1:1"
model = "small"
input_price = 10.0
output_price = 20.0
"""


def case(folder: Path, name: str, expect: Any, **changes: Any) -> None:
    """Writes a case."""
    document = {**replace(LUNCHES, **changes).to_json(), "expect": expect}
    (folder / f"{name}.json").write_text(json.dumps(document))


def ask(message: str) -> dict[str, Any]:
    """A form with another message."""
    return {"message": message, "requestedSchema": LUNCH}


def evaluate(folder: Path, *words: str, rules: str = RULES, as_json: bool = True) -> tuple[int, Any]:
    """Runs an eval: its status and its lines."""
    (folder.parent / "rules.toml").write_text(rules)
    options = [*(["--json"] if as_json else []), "agent", "eval", str(folder)]
    ran = CliRunner().invoke(app, [*options, "--rules", str(folder.parent / "rules.toml"), *words])
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, [json.loads(line) for line in ran.stdout.splitlines()] if as_json else ran.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cases"
    made.mkdir()
    return made


def test_rules_are_tried_on_each_case_and_each_decision_has_its_reason(folder: Path) -> None:
    case(folder, "1-soup", {"exact": {"dish": "soup", "portions": 1}})
    case(folder, "2-secret", "escalate", request=ask("Your password?"))
    case(folder, "3-page", "decline", kind="elicitation_url", request={"url": "https://x.test/"})
    case(folder, "4-other", "escalate", kind="roots", request={})
    case(folder, "5-model", "answer", request=ask("Dinner?"))
    case(folder, "6-curry", {"subset": {"dish": "curry"}})
    status, lines = evaluate(folder)
    assert status == 1
    found = {each["case"]: (each["result"], each["rule"], each["why"]) for each in lines[:-1]}
    assert found == {
        "1-soup": ("pass", "soup", None),
        "2-secret": ("pass", "no secrets", "nobody types passwords for me"),
        "3-page": ("pass", "page", None),
        "4-other": ("pass", None, "no rule fits"),
        "5-model": ("skipped", "forms", "it needs a model: --ask-models or --model-replies FILE"),
        "6-curry": ("fail", "soup", None),
    }
    counts = lines[-1]["summary"]
    assert (counts["passed"], counts["failed"], counts["skipped"], counts["pass_rate"]) == (4, 1, 1, 80)
    assert lines[5]["got"] == 'answer {"portions": 1, "dish": "soup"}'
    assert evaluate(folder, "--min-pass", "80")[0] == 0
    assert evaluate(folder, "--min-pass", "81")[0] == 1


def test_scripted_replies_stand_for_a_model_and_what_it_costs_is_counted(folder: Path, tmp_path: Path) -> None:
    soup = {"action": "accept", "content": {"dish": "soup"}, "why": "cheap"}
    for name, expect in (("a", {"regex": {"dish": "^so"}}), ("b", "escalate"), ("c", "decline"), ("d", "answer")):
        case(folder, name, expect, request=ask("Dinner?"))
    completion = {
        "choices": [{"message": {"content": json.dumps(soup)}}],
        "model": "small-1",
        "usage": {"prompt_tokens": 100_000, "completion_tokens": 50_000},
    }
    replies = {"a": completion, "b": ["no JSON", "again none"], "c": {"action": "decline", "why": "late"}, "d": []}
    replies["c"] = json.dumps(replies["c"])
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    status, lines = evaluate(folder, "--model-replies", str(tmp_path / "replies.json"))
    assert status == 1
    assert [each["result"] for each in lines[:-1]] == ["pass", "pass", "pass", "fail"]
    assert [each["why"] for each in lines[:-1]][::2] == ["cheap", "late"]
    assert "does not fit the form" in lines[1]["why"]
    assert lines[3]["why"]
    assert (lines[0]["tokens"], lines[0]["cost"], lines[0]["model"]) == (150_000, 2.0, "small-1")
    assert (lines[-1]["summary"]["tokens"], lines[-1]["summary"]["cost"]) == (150_000, 2.0)


def test_a_rule_that_dismisses_declines(folder: Path) -> None:
    case(folder, "one", "decline")
    assert evaluate(folder, rules="[[rule]]\ncancel = true\n")[0] == 0


def test_the_table_for_people_says_the_counts(folder: Path) -> None:
    case(folder, "one", "escalate")
    status, shown = evaluate(folder, as_json=False)
    assert status == 1
    assert shown.splitlines()[0].split() == ["case", "result", "expected", "got", "rule"]
    assert shown.splitlines()[-1] == "0 passed, 1 failed, 0 skipped: 0 % passed"


def test_an_answer_that_the_form_does_not_take_is_for_people(folder: Path) -> None:
    case(folder, "pizza", "escalate")
    status, lines = evaluate(folder, rules='[[rule]]\naccept = { dish = "pizza" }\n')
    assert status == 0
    assert "dish" in lines[0]["why"]


def test_where_nothing_was_judged_the_status_says_so(folder: Path) -> None:
    case(folder, "model", "answer", request=ask("Dinner?"))
    status, shown = evaluate(folder, "--min-pass", "0", as_json=False)
    assert (status, shown.splitlines()[-1]) == (1, "0 passed, 0 failed, 1 skipped: nothing was judged")


def test_programs_are_run_only_when_that_is_asked_for(folder: Path) -> None:
    case(folder, "one", "decline")
    rules = '[[rule]]\nkind = "elicitation_form"\ncommand = ["echo", \'{"decline": true}\']\n'
    assert evaluate(folder, rules=rules)[1][0]["why"] == "it needs a program: --run-programs"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "Expecting value"),
        ("[]", "kind must be one of"),
        ('{"kind": "song"}', "kind must be one of"),
        ('{"kind": "roots"}', 'expect must be "answer", "decline", "escalate"'),
        ('{"kind": "roots", "expect": "maybe"}', "expect must be"),
        ('{"kind": "roots", "expect": {"exact": 1, "subset": 2}}', "expect must be"),
        ('{"kind": "roots", "expect": {"regex": {"a": "("}}}', "not a regular expression"),
        ('{"kind": "roots", "expect": {"regex": 7}}', "expect.regex must be a text"),
    ],
)
def test_a_case_that_cannot_be_used_is_named_with_what_is_wrong(folder: Path, content: str, says: str) -> None:
    (folder / "odd.json").write_text(content)
    ran = CliRunner().invoke(
        app, ["agent", "eval", str(folder), "--rules", str(rules_in(folder.parent))], standalone_mode=False
    )
    assert isinstance(ran.exception, Usage)
    assert "odd.json" in str(ran.exception)
    assert says in str(ran.exception)


def rules_in(folder: Path) -> Path:
    """The rules as a file."""
    (folder / "rules.toml").write_text(RULES)
    return folder / "rules.toml"


def test_a_folder_without_cases_says_how_to_get_some(folder: Path) -> None:
    for each in (folder, folder / "none"):
        ran = CliRunner().invoke(
            app, ["agent", "eval", str(each), "--rules", str(rules_in(folder.parent))], standalone_mode=False
        )
        assert isinstance(ran.exception, Usage)
    assert "hubbub agent record" in str(
        CliRunner()
        .invoke(app, ["agent", "eval", str(folder), "--rules", str(rules_in(folder.parent))], standalone_mode=False)
        .exception
    )


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        (
            "elicitation_form",
            {"action": "accept", "content": {"dish": "soup"}},
            Expectation("answer", "exact", {"dish": "soup"}),
        ),
        ("elicitation_form", {"action": "accept"}, Expectation("answer", "exact", {})),
        ("elicitation_form", {"action": "decline"}, Expectation("decline")),
        ("elicitation_url", {"action": "cancel"}, Expectation("decline")),
        ("elicitation_url", {"action": "accept"}, Expectation("answer")),
        ("sampling", {"role": "assistant", "content": {"type": "text", "text": "x"}}, Expectation("answer")),
        ("sampling", {"error": {"code": -1, "message": "no"}}, Expectation("decline")),
        ("roots", {"roots": []}, Expectation("answer", "exact", {"roots": []})),
    ],
)
def test_an_answer_of_a_person_is_what_is_expected_then(kind: Any, answer: Any, expected: Expectation) -> None:
    assert cases.expect_recorded_answer(replace(LUNCHES, kind=kind, answer=answer)) == expected


def test_a_recorded_case_is_read_as_it_was_written_and_never_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    expected = Expectation("answer", "exact", {"dish": "soup", "portions": 1})
    assert cases.save_case(folder, LUNCHES, expected)
    assert not cases.save_case(folder, LUNCHES, Expectation("decline"))
    (read,) = cases.load_cases(folder)
    assert (read.name, read.expected, read.request.request) == ("req_1", expected, LUNCHES.request)
    assert (folder.stat().st_mode & 0o777, (folder / "req_1.json").stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_recorded_text_with_half_a_character_is_read_again(tmp_path: Path) -> None:
    halved = replace(LUNCHES, request=ask("Lunch \ud83d? Gr\u00fc\u00dfe"))
    assert cases.save_case(tmp_path, halved, Expectation("answer"))
    (read,) = cases.load_cases(tmp_path)
    assert read.request.request == halved.request
    assert "Gr\u00fc\u00dfe".encode() in (tmp_path / "req_1.json").read_bytes()


def test_a_case_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        cases.save_case(tmp_path, replace(LUNCHES, request={"message": {1, 2}}), Expectation("answer"))
    assert list(tmp_path.iterdir()) == []


def answered(key: str, answer: bytes) -> inbox_pb2.PendingRequest:
    """A pending request that somebody has answered."""
    return inbox_pb2.PendingRequest(
        id=key,
        server="shop",
        kind=inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM,
        state=inbox_pb2.PENDING_REQUEST_STATE_ANSWERED,
        request=json.dumps(ask("Lunch?")).encode(),
        answer=answer,
    )


async def test_where_nothing_was_answered_it_is_said_and_where_to_go(
    hub: ScriptedHub, typed: Any, tmp_path: Path
) -> None:
    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse()
    ran = await typed("agent", "record", str(tmp_path / "cases"), "--yes", "--server", "shop")
    assert ran.status == 0
    assert "No question of shop has an answer yet" in ran.out
    assert "hubbub inbox" in ran.out


async def test_answers_of_people_are_recorded_once_somebody_agrees(
    hub: ScriptedHub, hubbub: Callable[..., Any], tmp_path: Path
) -> None:
    found = [
        answered("r1", b'{"action": "accept", "content": {"dish": "soup", "portions": 1}}'),
        answered("r2", b'{"action": "decline"}'),
    ]
    hub.replies["ListPendingRequests"] = lambda _: inbox_pb2.ListPendingRequestsResponse(pending_requests=found)
    folder = tmp_path / "cases"
    refused = await hubbub("agent", "record", str(folder))
    assert refused.status == 2
    assert "--yes" in refused.error["message"]
    assert not folder.exists()
    ran = await hubbub("agent", "record", str(folder), "--yes")
    assert ran.lines == [{"folder": str(folder), "written": 2, "found": 2}]
    assert (await hubbub("agent", "record", str(folder), "--yes")).lines[0]["written"] == 0
    tried = await hubbub("agent", "eval", str(folder), "--rules", str(rules_in(tmp_path)))
    assert [each.get("result") for each in tried.lines[:-1]] == ["pass", "fail"]
    assert tried.status == 1
