"""Commands and groups of Typer that start fast: plain values without pydantic, and help without rich."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from hubbub_cli.coercion import lighten

F = TypeVar("F", bound=Callable[..., Any])


class LightCommand(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, with the option for the help."""
        return _light(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: those in brackets may be left out."""
        return ["[OPTIONS]", *(each.metavar if each.required else f"[{each.metavar}]" for each in _arguments(self))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a line on each argument, without its type as Typer has it, and on each option."""
        arguments = [(each.metavar, each.get_help_record(ctx)[1]) for each in _arguments(self)]
        options = [each.get_help_record(ctx) for each in self.get_params(ctx) if each.param_type_name == "option"]
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example in one line, so that it can be copied."""
        if self.epilog:
            formatter.write(f"\n  {self.epilog}\n")


class LightGroup(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, with the option for the help."""
        return _light(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line on each command: the first paragraph of its help, and not only its beginning as Typer does."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(each)) for name, each in self.commands.items()])


class Commands(typer.Typer):
    """The commands of a group."""

    def __init__(self, help: str | None = None, *, cls: type[LightGroup] = LightGroup, **settings: Any) -> None:  # noqa: A002
        super().__init__(help=help, cls=cls, rich_markup_mode=None, **settings)

    def command(  # pyright: ignore[reportIncompatibleMethodOverride] - the settings that commands here have
        self, name: str | None = None, *, cls: type[TyperCommand] = LightCommand, epilog: str
    ) -> Callable[[F], F]:
        """Return a decorator that makes a function a command, with its example."""
        return super().command(name, cls=cls, epilog=epilog)


def summary(command: Any) -> str:
    """Return the first paragraph of a command's help, as one line."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _arguments(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "argument"]


def _light(params: Sequence[Any]) -> Sequence[Any]:
    for each in params:
        lighten(each)
    return params
