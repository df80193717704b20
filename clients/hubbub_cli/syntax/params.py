"""Arguments and options that several commands share."""

from typing import Annotated, Any, get_args

import typer

from hubbub_cli.syntax import completion
from hubbub_cli.syntax.bounds import MAX_INT32, check_seconds
from hubbub_client.data.literals import CatalogKind
from hubbub_client.data.records import (
    CallState,
    EventKind,
    RequestKind,
    RequestState,
    TaskRole,
    TaskStatus,
)


def make_repeatable_choice(option: str, choices: Any, text: str, metavar: str = "NAME") -> Any:
    """Return an option that can be given several times, each time with one of `choices`, the texts of a Literal.

    Typer itself has choices only for an option with a single value.
    """
    names: tuple[str, ...] = get_args(choices)

    def check_values(values: list[str] | None) -> list[str]:
        """Return the values of the option, [] without it. Raises BadParameter for one that is not a choice."""
        for value in values or ():
            if value not in names:
                raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, names))}.")
        return values or []

    def complete_name(incomplete: str) -> list[str]:
        """Return the choices that begin with a word."""
        return [name for name in names if name.startswith(incomplete)]

    return typer.Option(option, metavar=metavar, help=text, callback=check_values, autocompletion=complete_name)


def _make_filter_option(option: str, choices: Any) -> Any:
    """Return an option that filters a list by some of the choices."""
    return make_repeatable_choice(option, choices, f"Only {' or '.join(get_args(choices))}; repeatable.")


Server = Annotated[str, typer.Argument(metavar="SERVER", help="The server.", autocompletion=completion.servers)]
ServerName = Annotated[str, typer.Argument(metavar="NAME", help="The server.", autocompletion=completion.servers)]
OfServer = Annotated[
    str | None,
    typer.Option("--server", metavar="SERVER", help="Only of this server.", autocompletion=completion.servers),
]
OfCall = Annotated[str | None, typer.Option("--call", metavar="ID", help="Only those that this call caused.")]

RequestId = Annotated[
    str, typer.Argument(metavar="ID", help="The pending request.", autocompletion=completion.requests)
]
CallId = Annotated[str, typer.Argument(metavar="ID", help="The call.", autocompletion=completion.calls)]
TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task.", autocompletion=completion.tasks)]

RequestKinds = Annotated[list[Any] | None, _make_filter_option("--kind", RequestKind)]
RequestStates = Annotated[list[Any] | None, _make_filter_option("--state", RequestState)]
CallStates = Annotated[list[Any] | None, _make_filter_option("--state", CallState)]
TaskStatuses = Annotated[list[Any] | None, _make_filter_option("--status", TaskStatus)]
EventKinds = Annotated[list[Any] | None, _make_filter_option("--kind", EventKind)]
CatalogKinds = Annotated[list[Any] | None, _make_filter_option("--kind", CatalogKind)]
Role = Annotated[TaskRole | None, typer.Option(help="Who holds them: the hub (receiver) or a server (client).")]

Limit = Annotated[int, typer.Option(min=1, max=MAX_INT32, metavar="N", help="At most so many.")]
Resume = Annotated[str | None, typer.Option(metavar="TOKEN", help="Resume token: go on from here.")]
Timeout = Annotated[
    float | None,
    typer.Option(min=0, metavar="S", callback=check_seconds, help="Seconds without progress; else the server's."),
]
ClaimOption = Annotated[str, typer.Option("--claim", metavar="C", help="The claim's id.")]
Ttl = Annotated[
    float, typer.Option("--ttl", min=0, metavar="S", callback=check_seconds, help="Seconds until the claim lapses.")
]
