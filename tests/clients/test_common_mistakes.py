"""Mistakes that people make on the command line: `mistakes.txt` has what the command prints at each.

That file is the table of these tests: each command in it is run, and its output is compared. A change of a message
changes the file; a failing test shows how.
"""

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..command_tree import whole
from .world import furnish

PAGE = (Path(__file__).parent / "mistakes.txt").read_text()
SECTION = re.compile(r"^### (.+)\n\n```\n\$ hubbub (.+)\n((?:.*\n)*?)```\n\nExit status (\d)\.", re.MULTILINE)
AGO = re.compile(r"\d+[smhd] ago")
MOST_LINES, MOST_COLUMNS = 8, 118
FEWEST = 30


class Mistake(NamedTuple):
    title: str
    words: str
    says: str
    status: str


MISTAKES = [Mistake(*found) for found in SECTION.findall(PAGE)]


def shown(ran: Any, hub: Any) -> str:
    """What the page has of a command's output."""
    text = re.sub(r", https://help\.test/\w+", "", ran.err + ran.out if ran.status == 0 else ran.out + ran.err)
    text = AGO.sub("1m ago", text).replace(hub.address, "127.0.0.1:7878").replace(f"--data-dir {hub.data_dir} ", "")
    lines = [line if len(line) <= MOST_COLUMNS else f"{line[:MOST_COLUMNS]}..." for line in text.splitlines()]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = ["..."]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def test_the_page_has_enough_of_them_and_each_once() -> None:
    assert len(MISTAKES) == PAGE.count("\n### ") >= FEWEST
    assert len({each.title for each in MISTAKES}) == len({each.words for each in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
async def test_a_mistake_is_answered_as_the_page_says(hub: Any, typed: Any, refusal: Any, mistake: Mistake) -> None:
    furnish(hub, refusal)
    words = [word.replace("127.0.0.1:7878", hub.address) for word in shlex.split(mistake.words)]
    ran = await typed(*words)
    assert shown(ran, hub) == mistake.says
    assert ran.status == int(mistake.status)


def test_a_refusal_says_what_to_type_next() -> None:
    for mistake in MISTAKES:
        if mistake.status != "0" and not mistake.says.startswith("{"):
            assert re.search(r"^error: |has no tool|no argument|not given", mistake.says, re.MULTILINE), mistake.title
            assert re.search(
                r"^(next|all of them|help|more|did you mean|required and not given|there is no argument)\b|Commands:",
                mistake.says,
                re.MULTILINE,
            ), mistake.title


def test_each_command_that_is_named_exists() -> None:
    named = re.findall(r"^(?:next|all of them|help): hubbub (.*)$", PAGE, re.MULTILINE)
    assert len(named) > FEWEST
    for words in named:
        at = whole()
        for word in shlex.split(re.sub(r"--(address|data-dir) \S+", "", words).replace("--help", "")):
            if not hasattr(at, "commands"):
                break
            assert word in at.commands, words
            at = at.commands[word]
