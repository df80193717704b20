"""No record is written blindly: each change comes from a table, which guards it by what it was made from."""

import ast
from pathlib import Path

from ..syntax import tree

HUB = Path(__file__).resolve().parents[2] / "hub" / "hubbubd"

EXCEPTIONS = {
    "runtime/records/table.py": "makes changes, each with the revision that it was made from",
    "runtime/records/ledger.py": "turns changes into the store's writes and guards",
    "store/postgres/notices.py": "returns what was committed by others, to be read",
    "store/sqlite/engine.py": "returns what was committed, to be read",
}
"""Files that may make a `Change` or a `Write`, and why."""


def makers() -> set[str]:
    """The files that make a `Change` or a `Write`, whatever they call it."""
    found: set[str] = set()
    for path in HUB.rglob("*.py"):
        names = {"Change", "Write"}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                names |= {a.asname for a in node.names if a.name in ("Change", "Write") and a.asname}
        for node in ast.walk(tree(path)):
            match node:
                case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)) if name in names:
                    found.add(str(path.relative_to(HUB)))
                case _:
                    pass
    return found


def test_a_change_is_made_by_its_table_alone() -> None:
    assert makers() == EXCEPTIONS.keys()


def test_a_change_cannot_be_made_without_saying_what_it_was_made_from() -> None:
    (change,) = (
        node
        for node in ast.walk(tree(HUB / "runtime/records/table.py"))
        if isinstance(node, ast.ClassDef) and node.name == "Change"
    )
    fields = {
        field.target.id: field
        for field in change.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    assert fields["expected"].value is None
    assert ast.unparse(fields["expected"].annotation) == "int"


def test_nothing_but_the_ledger_commits() -> None:
    """Only there the guards are passed on."""
    callers: set[str] = set()
    for path in HUB.rglob("*.py"):
        for node in ast.walk(tree(path)):
            match node:
                case (
                    ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr="commit"))
                    | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="commit"))
                ) if name.strip("_") == "store":
                    callers.add(str(path.relative_to(HUB)))
                case _:
                    pass
    assert callers == {"runtime/records/ledger.py"}
