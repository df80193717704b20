"""`hubbub catalog`."""

from collections.abc import Sequence
from typing import Annotated

import typer

from hubbub_client.cli.output import note, print_json, print_records
from hubbub_client.cli.session import run, settings_of
from hubbub_client.hub import Hub
from hubbub_client.records import CatalogEntry, CatalogKind, CatalogList
from hubbub_client.wording import relative

app = typer.Typer(help="What the servers offer.")

ServerOption = Annotated[str | None, typer.Option(help="Only of this server.")]


@app.command()
def tools(context: typer.Context, server: ServerOption = None) -> None:
    """Tools."""
    _show(context, "tool", server)


@app.command()
def resources(context: typer.Context, server: ServerOption = None) -> None:
    """Resources."""
    _show(context, "resource", server)


@app.command()
def templates(context: typer.Context, server: ServerOption = None) -> None:
    """Resource templates."""
    _show(context, "template", server)


@app.command()
def prompts(context: typer.Context, server: ServerOption = None) -> None:
    """Prompts."""
    _show(context, "prompt", server)


def _show(context: typer.Context, kind: CatalogKind, server: str | None) -> None:
    async def work(hub: Hub) -> None:
        entries, lists = await hub.catalog.read(kind, server)
        if settings_of(context).json:
            for entry in entries:
                print_json({"server": entry.server, kind: entry.object})
        else:
            print_records(CatalogEntry, entries, as_json=False)
        _warn(lists)

    run(context, work)


def _warn(lists: Sequence[CatalogList]) -> None:
    for each in lists:
        what = f"{each.server}: its {each.kind}s"
        match each.freshness:
            case "fresh":
                continue
            case "unknown":
                note(f"{what} have not been fetched yet")
            case "empty":
                note(f"{what}: it says that it has some, and lists none")
            case "error":
                why = f"{each.error.code}: {each.error.message}" if each.error else "the fetch failed"
                note(f"{what} could not be fetched ({why}); shown as of {relative(each.fetched_at)}")
            case _:
                note(f"{what} are {each.freshness}, as of {relative(each.fetched_at)}")
