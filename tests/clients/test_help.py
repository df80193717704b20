"""The help of each command, as it is read."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context

from hubbub_cli.app import HELP_WIDTH

from ..command_tree import whole


def pages(command: Any, path: str = "hubbub") -> Iterator[tuple[str, str]]:
    """The help of a command, and of each below it."""
    yield path, command.get_help(Context(command, info_name=path))
    for name, each in getattr(command, "commands", {}).items():
        yield from pages(each, f"{path} {name}")


PAGES = dict(pages(whole()))


def test_the_usage_has_what_may_be_left_out_in_brackets() -> None:
    usages = {words: page.partition("\n")[0].removeprefix(f"Usage: {words} [OPTIONS]") for words, page in PAGES.items()}
    assert usages["hubbub call"] == " SERVER TOOL [KEY=VALUE... or JSON]"
    assert usages["hubbub inbox answer"] == " [ID] [KEY=VALUE...]"
    assert usages["hubbub servers add"] == " NAME [-- COMMAND ARGS...]"
    assert usages["hubbub servers watch"] == " [NAME...]"
    assert usages["hubbub status"] == ""


def test_each_option_and_argument_names_what_it_takes_and_none_its_type() -> None:
    for words, page in PAGES.items():
        assert set(re.findall(r"<.*?>", page)) <= {"<connected>", "<stdio|http|sse>", "<receiver|client>"}, words


def test_the_help_of_an_argument_and_of_an_option_is_beside_them() -> None:
    page = PAGES["hubbub inbox answer"]
    assert re.search(
        r"\nArguments:\n  ID +The pending request; a terminal lets you choose\.\n  KEY=VALUE\.\.\.  Form: yes", page
    )
    assert re.search(r"\n  --accept \[JSON\] +Elicitation: yes", page)
    assert re.search(r"\n  SERVER +The server\.  \[required\]\n", PAGES["hubbub call"])


def test_a_group_names_its_commands_in_whole_sentences() -> None:
    assert re.search(r"\nCommands:\n  list +List all servers\.\n", PAGES["hubbub servers"])
    assert "and reconnect." in PAGES["hubbub servers"]
    assert re.search(r"\n  watch +Watch events from now on, until interrupted\.", PAGES["hubbub events"])


def test_an_example_is_one_line_that_can_be_copied() -> None:
    example = "hubbub inbox answer REQUEST dish=soup portions=2"
    assert PAGES["hubbub inbox answer"].splitlines()[-1] == f"  Example: {example}"


def test_a_wide_terminal_does_not_make_the_lines_of_the_help_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    root = whole()
    page = root.get_help(root.make_context("hubbub", []))
    assert 80 < max(map(len, page.splitlines())) <= HELP_WIDTH
