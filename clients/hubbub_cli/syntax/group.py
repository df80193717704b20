"""Commands and groups of Typer that start fast: plain values without pydantic, and help without rich.

What all of them have in common is here, too: the options of the root anywhere, and a second look at what went wrong.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from hubbub_cli.syntax.plain_values import read_plain_values
from hubbub_cli.syntax.root_options import copy_root_options, is_from_root
from hubbub_cli.syntax.usage import Failed, add_usage_notes

if TYPE_CHECKING:
    from hubbub_cli.run.session import HubWork

F = TypeVar("F", bound=Callable[..., Any])

ALSO = "Options of every command, such as --json, --as and --data-dir, are in: hubbub --help"


class _LightBase(TyperCommand if TYPE_CHECKING else object):
    """What commands and groups have in common. It precedes Typer's class among their bases, and extends its methods."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, with the option for the help, and the options of the root."""
        return _prepare_params(self, ctx, super().get_params(ctx))

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return the names of the option for the help, always in the same order."""
        return sorted(super().get_help_option_names(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; an error gets notes on what was perhaps meant."""
        with _add_notes_to_errors(ctx):
            return super().parse_args(ctx, args)


class LightCommand(_LightBase, TyperCommand):
    """A command."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: those in brackets may be left out."""
        return [
            "[OPTIONS]",
            *(each.metavar if each.required else f"[{each.metavar}]" for each in _list_arguments(self)),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a line on each argument, without its type as Typer has it, and on each option."""
        arguments = [(each.metavar, each.get_help_record(ctx)[1]) for each in _list_arguments(self)]
        for title, rows in (("Arguments", arguments), ("Options", _make_option_rows(self, ctx))):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        _write_root_options_hint(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example in one line, so that it can be copied."""
        if self.epilog:
            formatter.write(f"\n  {self.epilog}\n")

    def invoke(self, ctx: Any) -> Any:
        """Run the command. If the hub refuses it for the beginning of an id, run it again with the whole id.

        Other errors get notes on what was perhaps meant.
        """
        with _add_notes_to_errors(ctx):
            return self._run_with_advice(ctx)

    def _run_with_advice(self, ctx: Any) -> Any:
        """Run the command; if the hub refuses it, complete the ids and run it again, or add advice to the error."""
        try:
            return super().invoke(ctx)
        except typer.TyperException:
            raise
        except Failed:
            from hubbub_cli.syntax import advice  # imported late, as below: a run that succeeds does not need them

            advice.advise_on_failed_call(ctx)
            raise
        except Exception as error:
            if not hasattr(error, "reason") or ctx.obj is None:
                raise
            from hubbub_cli.syntax import advice, id_prefix

            # Each time, one more parameter becomes a whole id, so this ends.
            if id_prefix.complete_ids(ctx, error):
                return self._run_with_advice(ctx)
            advice.add_advice(ctx, error)
            raise


class LightGroup(_LightBase, TyperGroup):
    """A group of commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a line on each option, and on each command."""
        self.format_commands(ctx, formatter)
        with formatter.section("Options"):
            formatter.write_dl(_make_option_rows(self, ctx))
        _write_root_options_hint(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line on each command: the first paragraph of its help, and not only its beginning as Typer does."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, get_first_paragraph(each)) for name, each in self.commands.items()])

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named. Without a name, run the group's own function, or raise a usage error.

        The error lists the commands.
        """
        with _add_notes_to_errors(ctx):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments begin with. Raises UsageError, which knows the wrong word."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            error.command_word = args[0]  # pyright: ignore[reportAttributeAccessIssue] - read by `usage`
            raise


class Commands(typer.Typer):
    """The commands of a group."""

    def __init__(self, help: str | None = None, *, cls: type[LightGroup] = LightGroup, **settings: Any) -> None:  # noqa: A002
        super().__init__(help=help, cls=cls, rich_markup_mode=None, **settings)

    def command(  # pyright: ignore[reportIncompatibleMethodOverride] - the settings that commands here have
        self, name: str | None = None, *, cls: type[TyperCommand] = LightCommand, example: str
    ) -> Callable[[F], F]:
        """Return a decorator that makes a function a command; `example` is a command line without `hubbub`."""
        return super().command(name, cls=cls, epilog=f"Example: hubbub {example}")

    def hub_command(
        self, name: str | None = None, *, example: str, endless: bool = False
    ) -> Callable[["HubWork"], object]:
        """Return a decorator that makes a coroutine function a command, which connects to the hub first.

        `example` is a command line without `hubbub`. An `endless` command waits for a hub, and SIGINT ends it with
        status 0.
        """
        from hubbub_cli.run.session import hub_command  # imported late: the help of the root needs no session

        return lambda work: self.command(name, example=example)(hub_command(endless=endless)(work))


def get_first_paragraph(command: Any) -> str:
    """Return the first paragraph of a command's help, as one line."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _prepare_params(command: Any, ctx: Any, own: Sequence[Any]) -> Sequence[Any]:
    """Return the parameters of a command, with copies of the root's options, and have them read plain values fast.

    The copies are made once, and kept at the command.
    """
    for each in own:
        read_plain_values(each)
    if "of_root" not in vars(command):
        command.of_root = copy_root_options(command, ctx, own)
    return [*own, *command.of_root]


def _list_arguments(command: Any) -> Sequence[Any]:
    return [each for each in command.params if each.param_type_name == "argument"]


def _make_option_rows(command: Any, ctx: Any) -> Sequence[tuple[str, str]]:
    """Return a line on each option of a command, but not on those that it has from the root."""
    options = [each for each in command.get_params(ctx) if each.param_type_name == "option" and not is_from_root(each)]
    return [each.get_help_record(ctx) for each in options if not each.hidden]


def _write_root_options_hint(ctx: Any, formatter: Any) -> None:
    """Write where the options of every command are listed, for all but the root."""
    if ctx.parent is not None:
        formatter.write(f"\n  {ALSO}\n")


@contextmanager
def _add_notes_to_errors(ctx: Any) -> Generator[None]:
    """Add to a usage error of the block what was perhaps meant, and how the command is used."""
    try:
        yield
    except typer.TyperException as error:
        wrong: Any = error
        if getattr(wrong, "ctx", None) is None:
            wrong.ctx = ctx
        if not hasattr(wrong, "explained"):  # the groups around a command see the same error, and add nothing
            wrong.explained = True
            add_usage_notes(wrong)
        raise
