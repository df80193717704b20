"""The table of MCP's rules names every rule once, and tests that exist."""

import ast
import re
from functools import cache
from itertools import groupby
from pathlib import Path

from ..syntax import tree

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+)\.(\d+) \| (.+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
LEAST = {1: 23, 2: 5, 3: 12, 4: 8, 5: 21}
"""How many rules each section has at least."""

ROWS = [
    (int(section), int(number), says, shown)
    for section, number, says, shown in ROW.findall((ROOT / "docs/protocol.md").read_text(encoding="utf-8"))
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


def test_every_row_names_tests_that_exist_or_says_why_there_is_none() -> None:
    for section, number, _, shown in ROWS:
        named = TEST.findall(shown)
        assert bool(named) != shown.startswith("none: "), f"{section}.{number}"
        for path, name in named:
            assert name.startswith("test_")
            assert name in named_in(ROOT / "tests" / path), f"{section}.{number}: {path}::{name}"


def test_what_belongs_to_servers_alone_is_nowhere_in_the_hub() -> None:
    for source in (ROOT / "hub").rglob("*.py"):
        assert "model-immediate-response" not in source.read_text(encoding="utf-8"), source
