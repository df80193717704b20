"""Rules of the house that no linter knows."""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ..syntax import tree

REPOSITORY = Path(__file__).resolve().parents[2]
FILE_LINES = 450
FUNCTION_LINES = 60

_tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True)
FILES = [
    path
    for name in _tracked.stdout.split("\0")
    if name
    and (path := REPOSITORY / name).is_file()
    and "_pb2" not in path.name
    and path.suffix not in (".png", ".binpb")
    and path != Path(__file__)
]
PYTHON = [path for path in FILES if path.suffix == ".py"]

FORBIDDEN = {
    "a promise instead of work": re.compile(r"\b(TODO|FIXME|XXX)\b"),
    "a path of one machine": re.compile(r"""(?<![\w.}>~/-])/(home|root|Users|work|opt|tmp)/\w"""),
    "a mark of a merge that was not finished": re.compile(r"^(<{7}|>{7}) ", re.MULTILINE),
    "the address of a package registry": re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org"),
    "a word that hides who does something": re.compile(r"\b(whoever|whomever|anew)\b", re.IGNORECASE),
}


def lines(path: Path) -> Iterator[tuple[str, str]]:
    name = path.relative_to(REPOSITORY)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield f"{name}:{number}", line


def functions(nodes: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All of them, also those inside of others. Expressions have none, and are most of a file."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        if not isinstance(node, ast.expr):
            yield from functions(ast.iter_child_nodes(node))


def test_there_are_files_to_look_at() -> None:
    assert len(PYTHON) > 10


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_has(what: str) -> None:
    found = [
        f"{place}: {line.strip()}"
        for path in FILES
        if FORBIDDEN[what].search(path.read_text(encoding="utf-8"))
        for place, line in lines(path)
        if FORBIDDEN[what].search(line)
    ]
    assert found == []


def test_a_file_is_short_enough_to_be_read_in_one_go() -> None:
    lengths = {str(path.relative_to(REPOSITORY)): sum(1 for _ in lines(path)) for path in PYTHON}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES} == {}


def test_a_function_is_short_enough_to_be_seen_at_once() -> None:
    found: dict[str, int] = {}
    for path in PYTHON:
        for node in functions(tree(path).body):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                found[f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}"] = length
    assert found == {}


@pytest.mark.parametrize(
    "name",
    [
        *("constraints.txt", "tests/peers/mcp1.txt", "tests/peers/audit.txt", "tests/peers/hosts.txt"),
        "tests/peers/release.txt",
        *(f"benchmarks/rivals/{rival}.txt" for rival in ("envoy", "fastmcp", "mcp-proxy")),
    ],
)
def test_a_list_of_dependencies_has_only_names_and_versions(name: str) -> None:
    pinned = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+")
    assert [line for _, line in lines(REPOSITORY / name) if not pinned.fullmatch(line)] == []


@pytest.mark.parametrize(
    "place", ["tests/peers/node", "tests/peers/npm-hosts", "tests/peers/agents", "clients/typescript"]
)
def test_a_lock_file_has_versions_and_digests_but_no_addresses(place: str) -> None:
    lock = (REPOSITORY / place / "package-lock.json").read_text()
    assert '"integrity"' in lock
    assert '"resolved"' not in lock
