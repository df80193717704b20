"""The table [notify] and its errors, the urls, and the words of a notification."""

import json
import re
import tomllib
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from hubbub_notify.rules import NoticeRuleProblem, Rules, parse_rules, read_table
from hubbub_notify.services import parse_service, parse_services, redact_url
from hubbub_notify.text import MAX_QUESTION_CHARS, compose_notice

from .waiting import NOON, pending

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"afte_s": 5}, "notify.afte_s: unknown key; did you mean 'after_s'?"),
    ({"zzz": 5}, "notify.zzz: unknown key; there are urls, servers,"),
    ({"after_s": -1}, "notify.after_s: it should be greater than or equal to 0"),
    ({"after_s": "soon"}, "notify.after_s: it should be a valid number"),
    ({"per_hour": 0}, "notify.per_hour: it should be greater than or equal to 1"),
    ({"kinds": ["sampling", "forms"]}, "notify.kinds.1: it should be 'elicitation_form'"),
    ({"quiet": "22-7"}, "notify.quiet: '22-7' is not HH:MM-HH:MM, for example 22:00-07:00"),
    ({"timezone": "Berlin"}, "notify.timezone: 'Berlin' is no time zone, as for example Europe/Berlin"),
    ({"timezone": "../../etc/passwd"}, "notify.timezone: "),
    ({"content": "yes"}, "notify.content: it should be a valid boolean"),
    ({"link": "hub.example"}, "notify.link: is not the address of a page"),
    ({"link": "http://hub.example"}, "notify.link: links let people in, so off this machine the page needs https"),
    ({"link": "https://hub.example/?x"}, "notify.link: is not the address of a page"),
    ({"urls": [""]}, "notify.urls.0: "),
    ({"urls": ["json://127.0.0.1"] * 51}, "notify.urls: "),
    ({"contact": "me"}, "notify.contact: "),
]


@pytest.mark.parametrize(("given", "problem"), WRONG)
def test_a_wrong_key_is_named_with_what_is_wrong(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(NoticeRuleProblem) as caught:
        parse_rules(given, "notify.")
    assert str(caught.value).startswith(problem)


def test_an_error_does_not_quote_urls() -> None:
    with pytest.raises(NoticeRuleProblem) as caught:
        parse_rules({"urls": [{"secret": "hunter2hunter2"}]})
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(parse_rules({"urls": ["json://hunter2@127.0.0.1"]}))


def test_variables_of_the_environment_stand_in_the_table(tmp_path: Path) -> None:
    file = tmp_path / "hubbub.toml"
    file.write_text(
        '[hub]\nlisten = "127.0.0.1:0"\n[notify]\nurls = ["slack://${TOKEN}/x", "ntfy://${TOPIC:-all}", "a://$${b}"]\n'
        'quiet = "${env:QUIET}"\nper_hour = 5\n'
    )
    assert read_table(file, {"TOKEN": "tok", "QUIET": "22:00-07:00"}) == {
        "urls": ["slack://tok/x", "ntfy://all", "a://${b}"],
        "quiet": "22:00-07:00",
        "per_hour": 5,
    }
    with pytest.raises(NoticeRuleProblem, match=r"notify\.urls\.0: the environment variable TOKEN is not set; set it"):
        read_table(file, {})
    assert read_table(file, {"QUIET": "22:00-07:00"}, except_={"urls"})["per_hour"] == 5


@pytest.mark.parametrize("text", ["${", "${}", "${1}", "${file:/etc/passwd}"])
def test_a_reference_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "hubbub.json"
    file.write_text(json.dumps({"notify": {"urls": [f"json://{text}"]}}))
    with pytest.raises(NoticeRuleProblem, match=r"notify\.urls\.0: a reference is"):
        read_table(file, {})


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.toml", "[notify", "a.toml: "),
        ("a.json", "[", "a.json: "),
        ("a.toml", "notify = 1", "a.toml: notify: is not a table"),
        ("a.json", "[]", None),
        ("a.toml", "", None),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, problem: str | None) -> None:
    file = tmp_path / name
    file.write_text(text)
    if problem is None:
        assert read_table(file, {}) == {}
        return
    with pytest.raises(NoticeRuleProblem) as caught:
        read_table(file, {})
    assert problem in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoticeRuleProblem, match="No such file"):
        read_table(tmp_path / "none.toml", {})


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (SECRET, "the 2nd url does not begin with a service"),
        (f"jsno://{SECRET}", "the 2nd url names no service: jsno://...; did you mean json://?"),
        (f"x9y8://{SECRET}", "the 2nd url names no service: x9y8://...; docs/notify.md says where"),
        (
            f"slack://{SECRET}",
            "the 2nd url cannot be used: something in it is missing or wrong; it looks like slack://",
        ),
        ("json://", "the 2nd url cannot be used"),
    ],
)
def test_a_url_that_cannot_be_used_is_named_without_its_secret(url: str, problem: str) -> None:
    with pytest.raises(NoticeRuleProblem) as caught:
        parse_service(url, 2, "notify.urls")
    assert str(caught.value).startswith(f"notify.urls: {problem}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (f"json://ada:{SECRET}@127.0.0.1:8080/{SECRET}?+X={SECRET}", "json://127.0.0.1:8080"),
        (f"mailto://ada:{SECRET}@example.com", "mailto://example.com"),
        (f"json://ada:80#{SECRET}@127.0.0.1", "json:// (1st url)"),
        (f"json://ada:80?{SECRET}@127.0.0.1", "json:// (1st url)"),
        ("json://127.0.0.1?+X=ada@example.com", "json://127.0.0.1"),
        ("slack://TABCDEFG2/BABCDEFG2/ABCDEFGHIJKLMNOPQRSTUVWX", "slack:// (1st url)"),
        (f"ntfys://ntfy.sh/{SECRET}", "ntfys:// (1st url)"),
    ],
)
def test_a_service_is_named_without_its_secret(url: str, name: str) -> None:
    made = parse_service(url, 1, "URL")
    assert made.name == name
    assert SECRET not in repr(made) + made.key


def test_a_service_that_this_machine_cannot_have_is_not_taken_for_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub_notify.services._list_url_forms", lambda: {"json": "json://{host}", "macosx": ""})
    with pytest.raises(
        NoticeRuleProblem, match="the 1st url cannot be used here: macosx:// needs a package or a system"
    ):
        parse_service("macosx://", 1, "URL")


def test_every_service_of_the_document_is_known() -> None:
    document = (Path(__file__).parents[2] / "docs/notify.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z]+)://[^`]*`", document.partition("## What is sent")[0]))
    assert {"slack", "workflows", "mailtos", "dbus", "macosx", "windows", "jsons"} <= named
    for each in sorted(named):
        problem = ""
        try:
            parse_service(f"{each}://?", 1, "URL")
        except NoticeRuleProblem as caught:
            problem = str(caught)
        assert "names no service" not in problem


def test_what_a_service_says_is_shown_without_any_part_of_the_url() -> None:
    url = "json://ada%40x:hunter%202@127.0.0.1:80/to/abc.defghi"
    said = "no hunter 2 at 127.0.0.1 for abc.defghi, ada@x, hunter%202, json"
    assert redact_url("json://p%61ssword@127.0.0.1", "password, p%61ssword") == "…, p%…"
    assert redact_url(url, said) == "no … 2 at 127.0.0.1 for …, ada@x, …%202, json"


def test_a_url_that_is_given_twice_is_one_target() -> None:
    assert len(parse_services(["json://127.0.0.1:1", "json://127.0.0.1:2", "json://127.0.0.1:1"], "URL")) == 2


def test_a_notification_says_who_asks_and_where_it_is_answered_and_nothing_of_what_is_asked() -> None:
    request = pending(deadline=NOON + timedelta(minutes=5))
    made = compose_notice("n", [request], "https://hub/#login=x", content=False, zone=UTC)
    assert (made.title, made.to, made.requests) == ("deploy asks", "request/req_1", ("req_1",))
    assert made.body.splitlines() == [
        "It waits for a form to fill in.",
        "Answer before 2026-03-02 12:05 UTC.",
        "Answer: https://hub/#login=x",
    ]


def test_several_questions_are_one_digest() -> None:
    requests = [pending("a"), pending("b", server="mail"), pending("c")]
    made = compose_notice("n", requests, "there", content=False)
    assert (made.title, made.to) == ("3 questions wait", "inbox")
    assert made.body.splitlines() == ["2 of deploy, 1 of mail.", "Answer: there"]


APPROVAL = {
    "tool": {"name": "delete_branch"},
    "rule": {"name": "deletes", "needed": 2},
    "caller": {"name": "deploy-bot", "host": "claude-code 2.1"},
    "arguments": {"repo": "shop", "text": "@everyone\n" + "x" * 500},
}


def test_a_call_to_approve_says_which_tool_and_who_calls_and_its_arguments_only_if_they_are_to_be_in_it() -> None:
    request = pending(kind="approval", server="github", request=APPROVAL)
    made = compose_notice("n", [request], "there", content=False)
    assert (made.title, made.to) == ("Approve delete_branch on github?", "request/req_1")
    assert made.body.splitlines() == [
        "deploy-bot (claude-code 2.1) wants to run delete_branch on github.",
        "Two people have to say yes.",
        "Answer: there",
    ]
    line = compose_notice("n", [request], "there", content=True).body.splitlines()[2]
    assert line.startswith("with repo: shop, text: (at)everyone …")
    assert len(line) <= MAX_QUESTION_CHARS


def test_a_digest_names_the_tools_to_approve() -> None:
    requests = [pending("a"), pending("b", kind="approval", server="github", request=APPROVAL)]
    made = compose_notice("n", requests, "there", content=False)
    said = "deploy-bot (claude-code 2.1) wants to run delete_branch on github"
    assert made.body.splitlines() == ["1 of deploy, 1 of github.", said, "Answer: there"]
    assert "with repo: shop" in compose_notice("n", requests, "there", content=True).body


def test_what_is_asked_is_in_it_only_if_it_is_to_be_and_cannot_be_markup_or_a_mention() -> None:
    asked = "Ping <!channel> @everyone\n[click](http://x) `code` \u202eevil\x07 " + "long " * 500
    made = compose_notice("n", [pending(request={"message": asked})], "there", content=True)
    line = made.body.splitlines()[1]
    assert line.startswith("Ping (!channel) (at)everyone (click)(http://x) 'code' \ufffdevil\ufffd long")
    assert len(line) == MAX_QUESTION_CHARS
    assert "Ping" not in compose_notice("n", [pending(request={"message": asked})], "there", content=False).body


def test_a_digest_of_very_many_questions_stays_short() -> None:
    requests = [pending(f"r{n}", server=f"server-{n}", request={"message": "x" * 5000}) for n in range(500)]
    made = compose_notice("n", requests, "there", content=True)
    assert "and of 490 other servers." in made.body
    assert "... and 490 more." in made.body
    assert len(made.body) < 5000


def test_the_table_of_the_document_can_be_used_and_names_every_key() -> None:
    document = (Path(__file__).parents[2] / "docs/notify.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml notify\n(.*?)^```$", document, re.DOTALL | re.MULTILINE)
    made = parse_rules(tomllib.loads(block)["notify"])
    assert made.servers == ("deploy*",)
    rows = [[cell.strip() for cell in line.split("|")] for line in document.splitlines() if line.startswith("| `")]
    defaults = {cells[1].strip("`"): cells[3] for cells in rows if len(cells) == 6}
    assert defaults.keys() == Rules.model_fields.keys()
    for name, field in Rules.model_fields.items():
        if isinstance(field.default, bool):
            assert defaults[name] == str(field.default).lower()
        elif isinstance(field.default, int | float):
            assert defaults[name] == f"{field.default:.0f}"
