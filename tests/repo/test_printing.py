"""Only the modules that make text safe may print: everything else goes through them."""

import ast
from pathlib import Path

import pytest

from ..syntax import tree

REPOSITORY = Path(__file__).resolve().parents[2]
# What may write to the standard streams, and what for.
PRINTERS = {
    "clients/hubbub_cli/output/printer.py": "makes clean what it prints",
    "clients/hubbub_cli/output/screen.py": "the console of rich, clean",
    "clients/hubbub_cli/run/streams.py": "stands in for stdout and stderr",
    "clients/hubbub_cli/__init__.py": "flushes at the end",
    "hub/hubbubd/program/console.py": "makes clean what it prints and logs",
    "docs/demo/run.py": "makes clean what it passes on",
    "docs/demo/run_fleet.py": "makes clean what it passes on",
    "docs/demo/installing.py": "shows of pip what it can be sure of; nothing is installed yet that could help it",
    "docs/demo/answer.py": "a person's own program: it answers in JSON",
}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
WRITES = {"write", "writelines", "flush", "buffer"}
# Ways to a terminal that would not pass by the printers. Loggers of the standard library go through a printer's
# handler, which is why nobody else may set one up.
CALLS = {"print", "echo", "secho", "Console", "StreamHandler", "basicConfig", "print_exc", "print_exception", "rprint"}
SOURCES = sorted(
    path
    for root in ("clients", "hub/hubbubd", "docs/demo")
    for path in (REPOSITORY / root).rglob("*.py")
    if str(path.relative_to(REPOSITORY)) not in PRINTERS
)


def bare(tree: ast.AST) -> list[str]:
    """Where a module prints by itself."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            # `print` of an object is that of a console, which only a printer makes.
            if name in CALLS and not (name == "print" and isinstance(node.func, ast.Attribute)):
                found.append(f"{node.lineno}: {name}()")
        if isinstance(node, ast.Attribute) and node.attr in WRITES and isinstance(node.value, ast.Attribute):
            stream = node.value
            if stream.attr in STREAMS and isinstance(stream.value, ast.Name) and stream.value.id == "sys":
                found.append(f"{node.lineno}: sys.{stream.attr}.{node.attr}")
    return found


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 150
    assert all((REPOSITORY / name).is_file() for name in PRINTERS)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_module_prints_through_those_that_make_text_safe(path: Path) -> None:
    assert bare(tree(path)) == []


def test_the_search_finds_each_way_to_print() -> None:
    ways = [
        "print('x')",
        "import sys; sys.stdout.write('x')",
        "import sys; sys.stderr.buffer.write(b'x')",
        "typer.echo('x')",
        "click.secho('x')",
        "from rich.console import Console; Console().print('x')",
        "import logging; logging.basicConfig()",
        "import traceback; traceback.print_exc()",
    ]
    assert all(bare(ast.parse(way)) for way in ways)
    assert not bare(ast.parse("console().print(table)"))
