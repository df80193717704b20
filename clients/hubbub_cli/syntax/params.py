"""Arguments and options that several commands share, and the example below a command's help."""

from typing import Annotated, Any, get_args

import typer

from hubbub_cli.run.session import Usage
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.bounds import MOST, finite
from hubbub_client.data.records import (
    CallState,
    CatalogKind,
    EventKind,
    RequestKind,
    RequestState,
    TaskRole,
    TaskStatus,
)


def example(words: str) -> str:
    """Return the epilog of a command's help."""
    return f"Example: hubbub {words}"


def _several(option: str, names: tuple[str, ...]) -> Any:
    return typer.Option(
        option, help=f"Only {' or '.join(names)}; repeatable.", autocompletion=completion.among(names), metavar="NAME"
    )


def known(values: list[str] | None, option: str, names: tuple[str, ...]) -> list[Any]:
    """Check the values of a repeatable option. Raises Usage for one that is not among the names."""
    for value in values or ():
        if value not in names:
            raise Usage(f"{option}: {value!r} is not one of {', '.join(names)}")
    return values or []


REQUEST_KINDS: tuple[str, ...] = get_args(RequestKind)
REQUEST_STATES: tuple[str, ...] = get_args(RequestState)
CALL_STATES: tuple[str, ...] = get_args(CallState)
TASK_STATUSES: tuple[str, ...] = get_args(TaskStatus)
EVENT_KINDS: tuple[str, ...] = get_args(EventKind)
CATALOG_KINDS: tuple[str, ...] = get_args(CatalogKind)

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

RequestKinds = Annotated[list[str] | None, _several("--kind", REQUEST_KINDS)]
RequestStates = Annotated[list[str] | None, _several("--state", REQUEST_STATES)]
CallStates = Annotated[list[str] | None, _several("--state", CALL_STATES)]
TaskStatuses = Annotated[list[str] | None, _several("--status", TASK_STATUSES)]
EventKinds = Annotated[list[str] | None, _several("--kind", EVENT_KINDS)]
CatalogKinds = Annotated[list[str] | None, _several("--kind", CATALOG_KINDS)]
Role = Annotated[TaskRole | None, typer.Option(help="Who holds them: the hub (receiver) or a server (client).")]

Limit = Annotated[int, typer.Option(min=1, max=MOST, metavar="N", help="At most so many.")]
Resume = Annotated[str | None, typer.Option(metavar="TOKEN", help="Resume token: go on from here.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, metavar="S", callback=finite, help="Seconds without progress; else the server's.")
]
ClaimOption = Annotated[str, typer.Option("--claim", metavar="C", help="The claim's id.")]
Ttl = Annotated[
    float, typer.Option("--ttl", min=0, metavar="S", callback=finite, help="Seconds until the claim lapses.")
]
