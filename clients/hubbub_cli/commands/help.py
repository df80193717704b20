"""`hubbub help`."""

from typing import Annotated, Any

import typer

from hubbub_cli.run import streams
from hubbub_cli.syntax.group import LightCommand, LightGroup
from hubbub_cli.tree import Root


def _complete_commands(context: typer.Context, incomplete: str) -> list[str]:
    """Return the commands of a group that begin with a word, for a shell that completes the word.

    The words before it name the group; empty if they name a command that is no group.
    """
    group: Any = context.find_root().command
    for word in context.params.get("words") or ():
        if not isinstance(group, LightGroup):
            return []
        _, group, _ = group.resolve_command(context, [word])
    return [name for name in getattr(group, "commands", {}) if name.startswith(incomplete)]


def help_(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...", help="The command, such as `inbox answer`.", autocompletion=_complete_commands
        ),
    ] = None,
) -> None:
    """Show how a command is used; without one, which commands there are."""
    command_context: Any = context.find_root()
    if not words:
        assert isinstance(command_context.command, Root)
        streams.say(command_context.command.render_overview(command_context).rstrip())
        return
    for word in words:
        if not isinstance(command_context.command, LightGroup):
            command_context.fail(f"{command_context.command_path} has no commands of its own, so no {word!r}")
        name, command, _ = command_context.command.resolve_command(command_context, [word])
        assert isinstance(command, (LightCommand, LightGroup))
        command_context = type(command_context)(command, info_name=name, parent=command_context)
    streams.say(command_context.get_help())
