"""The tables of MCP's rules and of its methods name each one once, and there are tests that show it."""

import ast
import re
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from mcp_types import methods

from hubbubd.upstream.deviations import HANDLING, Deviation

from ..method_table import REVISIONS, SHOWN, TO_HOST, TO_HUB, WORDS
from ..method_table import ROWS as METHODS
from ..syntax import tree

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+)\.(\d+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"([\w/]+\.py)::(\w+)")
LEAST = {1: 23, 2: 5, 3: 12, 4: 8, 5: 21, 6: 7}
"""How many rules each section has at least."""

ROWS = [
    (int(section), int(number), says, SHOWN["Rules"][f"{section}.{number}"])
    for section, number, says in ROW.findall((ROOT / "docs/protocol.md").read_text(encoding="utf-8"))
]


@cache
def named_in(path: Path) -> set[str]:
    return {node.name for node in tree(path).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_rule_has_one_row_in_its_order() -> None:
    numbers = {section: [number for _, number, *_ in rows] for section, rows in groupby(ROWS, key=lambda row: row[0])}
    assert list(numbers) == list(LEAST)
    for section, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), section
        assert len(found) >= LEAST[section]


def check_shown(row: str, shown: list[str] | str) -> None:
    """Fails unless what shows a row are tests that exist, or it says why there is none."""
    if isinstance(shown, str):
        assert shown.startswith("none: "), row
        return
    assert shown, row
    for each in shown:
        found = TEST.fullmatch(each)
        assert found, row
        path, name = found.groups()
        assert name.startswith("test_")
        assert name in named_in(ROOT / "tests" / path), f"{row}: {path}::{name}"


def test_what_shows_rows_is_about_rows_that_there_are() -> None:
    assert list(SHOWN["Rules"]) == [f"{section}.{number}" for section, number, *_ in ROWS]
    for direction in WORDS:
        assert list(SHOWN[direction]) == [row.method for row in METHODS[direction]]


def test_every_row_names_tests_that_exist_or_says_why_there_is_none() -> None:
    for section, number, _, shown in ROWS:
        check_shown(f"{section}.{number}", shown)


@pytest.mark.parametrize("direction", WORDS)
def test_every_method_says_what_becomes_of_it_and_which_tests_show_that(direction: str) -> None:
    for row in METHODS[direction]:
        assert set(row.fates.values()) <= WORDS[direction], row.method
        check_shown(row.method, row.shown)


SKILLS = {"skills/list", "skills/get", "resources/directory/read"}
"""Methods of an extension that the SDK does not have."""

TASKS = {"get", "result", "list", "cancel"}
"""Methods that a peer of either side may have for its tasks (2025-11-25)."""


@pytest.mark.parametrize(
    ("direction", "of_sdk", "of_extensions"),
    [
        (
            TO_HUB,
            (methods.CLIENT_REQUESTS, methods.CLIENT_NOTIFICATIONS),
            {*(f"tasks/{name}" for name in TASKS | {"update"}), "notifications/tasks/status", *SKILLS},
        ),
        (
            TO_HOST,
            (methods.SERVER_REQUESTS, methods.SERVER_NOTIFICATIONS),
            {*(f"tasks/{name}" for name in TASKS), "notifications/tasks", "notifications/tasks/status"},
        ),
    ],
)
def test_the_methods_are_those_of_the_specification(direction: str, of_sdk: Any, of_extensions: set[str]) -> None:
    known = {known for table in of_sdk for known in table}
    rows = [row.method for row in METHODS[direction]]
    assert len(rows) == len(set(rows))
    assert set(rows) == {method for method, _ in known} | of_extensions
    for row in METHODS[direction]:
        for column, newest in zip(REVISIONS, ("2025-06-18", "2025-11-25", "2026-07-28"), strict=True):
            if row.fates[column] == "refused":
                assert (row.method, newest) not in known


def test_what_belongs_to_servers_alone_is_nowhere_in_the_hub() -> None:
    for source in (ROOT / "hub").rglob("*.py"):
        assert "model-immediate-response" not in source.read_text(encoding="utf-8"), source


def test_the_deviations_of_servers_are_those_of_the_table() -> None:
    said = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", (ROOT / "docs/servers.md").read_text(), re.MULTILINE)[1:]
    assert list(HANDLING) == list(Deviation)
    assert said == [(met.behavior, met.reaction, met.cost) for met in HANDLING.values()]
