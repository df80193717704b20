"""`hubbub explain`, `hubbub help`, and `hubbub` alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from hubbub_cli.tree import COMMANDS, SECTIONS
from hubbub_frontend import error_help

ROOT = Path(__file__).parents[2]
PAGES = set(error_help.entries())


@pytest.mark.parametrize("code", ["SERVER_NOT_FOUND", "server_not_found", "server-not-found", " Server-Not_Found"])
async def test_an_error_is_explained_in_any_spelling_without_a_hub(typed: Any, hub: Any, code: str) -> None:
    ran = await typed("explain", code)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("# SERVER_NOT_FOUND\n\nThere is no server with this name.")
    assert "## What to do" in ran.out
    assert not hub.seen


async def test_a_page_has_no_links_that_lead_nowhere(typed: Any) -> None:
    for code in sorted(PAGES):
        assert not re.search(r"\]\((?!https?:)", str(error_help.render_plain_page(code))), code
    ran = await typed("explain", "handshake_failed", "--json")
    assert ran.lines[0].keys() == {"code", "text"}
    assert "see tls.md" in ran.lines[0]["text"]


async def test_all_codes_are_listed_with_a_sentence(typed: Any) -> None:
    ran = await typed("explain", "--json")
    assert {line["code"] for line in ran.lines} == PAGES
    assert all(len(line["summary"]) > 10 for line in ran.lines)
    assert "TOOL_DENIED" in (await typed("explain")).out


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("server_not_fund", "SERVER_NOT_FOUND"),
        ("claim", "CLAIM_LOST"),
        ("../README", None),
        ("readme", None),
        ("../cli", None),
        ("", None),
    ],
)
async def test_an_unknown_code_is_refused_with_those_that_are_near(typed: Any, wrong: str, near: str | None) -> None:
    ran = await typed("explain", wrong)
    assert (ran.status, ran.out) == (2, "")
    assert "all of them: hubbub explain" in ran.err
    assert near is None or near in ran.err


REASON = re.compile(r'reason="([A-Z_]+)"')


def test_each_reason_of_the_library_and_of_the_commands_has_a_page() -> None:
    for room in ("hubbub_client", "hubbub_cli"):
        for source in (ROOT / "clients" / room).rglob("*.py"):
            assert set(REASON.findall(source.read_text())) <= PAGES, source.name


@pytest.mark.parametrize(
    ("code", "link", "more"),
    [
        ("CALL_TIMEOUT", "errors/call_timeout.html", "hubbub explain CALL_TIMEOUT"),
        (
            "CALL_TIMEOUT",
            "https://x.test/call_timeout.html",
            "hubbub explain CALL_TIMEOUT, https://x.test/call_timeout.html",
        ),
        ("OF_A_NEWER_HUB", "errors/of_a_newer_hub.html", None),
        ("OF_A_NEWER_HUB", "https://x.test/of_a_newer_hub.html", "https://x.test/of_a_newer_hub.html"),
        ("../README", None, None),
    ],
)
def test_people_are_sent_to_a_page_that_they_have(code: str, link: str | None, more: str | None) -> None:
    assert error_help.help_hint(code, link) == more


async def test_hubbub_alone_shows_the_commands_by_what_one_wants_to_do(typed: Any, hub: Any) -> None:
    alone, helped = await typed(), await typed("help")
    assert alone == helped
    assert (alone.status, alone.err) == (0, "")
    titles = [line[:-1] for line in alone.out.splitlines() if re.fullmatch(r"[A-Z]\w+:", line)]
    assert titles == [*SECTIONS, "Examples"]
    assert "--data-dir" not in alone.out
    assert max(map(len, alone.out.splitlines())) <= 110
    assert not hub.seen


async def test_the_whole_help_has_the_options_last(typed: Any) -> None:
    for way in ("-h", "--help"):
        page = (await typed(way)).out
        assert page.index("inbox") < page.index("--data-dir DIR") < page.index("--version")


def test_each_command_stands_in_one_section() -> None:
    names = [command.name for command in COMMANDS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("words", [("inbox", "answer"), ("servers",), ("status",), ("help",)])
async def test_each_way_to_ask_for_help_shows_the_same(typed: Any, words: tuple[str, ...]) -> None:
    pages = {(await typed(*ways)).out for ways in (("help", *words), (*words, "-h"), (*words, "--help"))}
    assert len(pages) == 1
    assert pages.pop().startswith(f"Usage: hubbub {' '.join(words)} [OPTIONS]")


async def test_help_on_what_is_no_command_says_which_there_are(typed: Any) -> None:
    for words, said in ((("help", "inbx"), "did you mean hubbub inbox?"), (("help", "inbox", "shw"), "inbox show?")):
        ran = await typed(*words)
        assert ran.status == 2
        assert said in ran.err
    assert "no commands of its own" in (await typed("help", "status", "more")).err


async def test_a_group_alone_shows_its_commands_and_is_wrong_usage(typed: Any) -> None:
    ran = await typed("inbox")
    assert (ran.status, ran.out) == (2, "")
    assert "  answer   Answer a pending request" in ran.err
