"""The whole tree of commands of `hubbub`, of which the program itself imports one part."""

from typing import Any

from typer.main import get_command

from hubbub_cli.app import app
from hubbub_cli.tree import LazyCommand


def whole() -> Any:
    """The root, with every command loaded."""
    root: Any = get_command(app)
    for name, command in root.commands.items():
        if isinstance(command, LazyCommand):
            root.commands[name] = command.load()
    return root
