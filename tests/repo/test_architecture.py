"""ARCHITECTURE.md names every module, and is short enough to be read."""

import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
LINES = 250
COLUMNS = 125
ROOM = re.compile(r"^- \*\*`([\w/]+/)`\*\*(.*?)(?=^- \*\*|^(?! )[^\n])", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"`([\w-]+\.(?:py|js|ts))`")


_tracked = subprocess.run(
    ["git", "ls-files", "-z", "hub", "clients"], cwd=ROOT, capture_output=True, check=True, text=True
)
# A package is named as the room that it is.
MODULES = {
    name
    for name in _tracked.stdout.split("\0")
    if name.endswith((".py", ".js", ".ts")) and not name.endswith("/__init__.py") and (ROOT / name).is_file()
}


def named() -> list[str]:
    """The modules in the paragraphs of their rooms."""
    section = DOCUMENT.partition("\n## The modules\n")[2].partition("\n## ")[0]
    return [room + module for room, text in ROOM.findall(section) for module in MODULE.findall(text)]


def test_each_module_is_named_in_its_room() -> None:
    assert MODULES - set(named()) == set()


def test_no_module_is_named_that_is_gone() -> None:
    assert set(named()) - MODULES == set()


def test_a_module_is_named_once() -> None:
    assert {name for name, times in Counter(named()).items() if times > 1} == set()


def test_it_can_be_read_at_one_sitting_and_in_a_terminal() -> None:
    lines = DOCUMENT.splitlines()
    assert len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS] == []
