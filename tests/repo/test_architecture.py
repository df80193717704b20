"""Each module says in its first lines what it is for, and ARCHITECTURE.md is short."""

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
LINES = 250

_tracked = subprocess.run(
    ["git", "ls-files", "-z", "hub", "clients"], cwd=ROOT, capture_output=True, check=True, text=True
)
MODULES = [
    name
    for name in _tracked.stdout.split("\0")
    if name.endswith((".py", ".js", ".ts")) and (ROOT / name).is_file() and "/static/vendor/" not in name
]


def test_each_module_says_what_it_is_for() -> None:
    trees = {name: ast.parse((ROOT / name).read_text(encoding="utf-8")) for name in MODULES if name.endswith(".py")}
    assert [name for name, tree in trees.items() if not ast.get_docstring(tree)] == []


def test_it_can_be_read_at_one_sitting() -> None:
    assert len(DOCUMENT.splitlines()) <= LINES
