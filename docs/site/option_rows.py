"""Writes the rows of options into docs/configuration.md, from the docstrings in the hub: of a server, of approvals."""

import ast
import inspect
import json
from collections.abc import Callable
from enum import Enum
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel

from hubbubd.config.sections.approvals import ApprovalRule, ApprovalSettings
from hubbubd.config.servers.server import OPTIONS, ServerConfig

DOCUMENT = Path(__file__).resolve().parents[1] / "configuration.md"
HEAD = "| Key | Default | What it says |\n|---|---|---|\n"


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring of each option, from the source: the hub does without those of a server, for a quick start."""
    (tree,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for option, text in pairwise(tree.body):
        match option, text:
            case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(docstring))):
                found[key] = docstring
            case _:
                pass
    return found


def _default(model: type[BaseModel], key: str) -> str:
    if model is ServerConfig and (text := OPTIONS[key].default_text) is not None:
        return f" {text}"
    default = model.model_fields[key].get_default(call_default_factory=True)
    if default is None or default == "":
        return ""
    if isinstance(default, Enum):
        return f" `{default.name.lower()}`"
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return f" `{default if isinstance(default, str) else json.dumps(default)}`"


def _rows(model: type[BaseModel], *but: str) -> str:
    return "".join(
        f"| `{key}` |{_default(model, key)} | {' '.join(text.split()).removesuffix('.')} |\n"
        for key, text in _docstrings(model).items()
        if key not in but
    )


def _with_tables(section: str, *tables: Callable[[], str]) -> str:
    """A section with other rows in its first tables."""
    written = ""
    for table in tables:
        introduction, head, rest = section.partition(HEAD)
        _, _, section = rest.partition("\n\n")
        written += f"{introduction}{head}{table()}\n"
    return written + section


def document_with_rows(document: str) -> str:
    """The document with the rows of all options; the name of a server is that of its table in a file."""
    for heading, tables in (
        ("\n## Approvals\n", (lambda: _rows(ApprovalSettings), lambda: _rows(ApprovalRule))),
        ("\n## A server\n", (lambda: _rows(ServerConfig, "name"),)),
    ):
        before, found, section = document.partition(heading)
        document = f"{before}{found}{_with_tables(section, *tables)}"
    return document


if __name__ == "__main__":
    DOCUMENT.write_text(document_with_rows(DOCUMENT.read_text()))
