"""Writes the rows of a server's options into docs/configuration.md, from the table in the hub."""

import ast
import inspect
import json
from itertools import pairwise
from pathlib import Path

from hubbubd.config.servers.server import OPTIONS, ServerConfig

DOCUMENT = Path(__file__).resolve().parents[1] / "configuration.md"
HEAD = "| Key | Default | What it says |\n|---|---|---|\n"


def rows() -> str:
    """The rows of all options but the name, which is that of the table in a file."""
    return "".join(
        f"| `{key}` |{_default(key)} | {' '.join(text.split()).removesuffix('.')} |\n"
        for key, text in _docstrings().items()
        if key != "name"
    )


def _docstrings() -> dict[str, str]:
    """The docstring of each option. The hub does without them: to read its own source would slow its start."""
    (model,) = ast.parse(inspect.getsource(ServerConfig)).body
    assert isinstance(model, ast.ClassDef)
    found: dict[str, str] = {}
    for option, text in pairwise(model.body):
        match option, text:
            case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(docstring))):
                found[key] = docstring
            case _:
                pass
    return found


def _default(key: str) -> str:
    if (text := OPTIONS[key].default_text) is not None:
        return f" {text}"
    default = ServerConfig.model_fields[key].get_default(call_default_factory=True)
    if default is None:
        return ""
    return f" `{default if isinstance(default, str) else json.dumps(default)}`"


def document_with_rows(document: str) -> str:
    """The document with the rows in the first table of its section `A server`."""
    before, heading, section = document.partition("\n## A server\n")
    introduction, head, rest = section.partition(HEAD)
    _, _, after = rest.partition("\n\n")
    return f"{before}{heading}{introduction}{head}{rows()}\n{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(document_with_rows(DOCUMENT.read_text()))
