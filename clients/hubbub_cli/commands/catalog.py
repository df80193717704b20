"""`hubbub catalog`."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hubbub_cli.output.printer import console, note, print_json, print_records, say
from hubbub_cli.output.watch_lines import Lines
from hubbub_cli.run.session import run, settings_of
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import CATALOG_KINDS, CatalogKinds, OfServer, Resume, Server, example, known
from hubbub_cli.terminal.arguments import described
from hubbub_client.data.records import CatalogEntry, CatalogKind, CatalogList
from hubbub_client.payload import as_object
from hubbub_frontend import samples
from hubbub_frontend.display.records import describe_fault, relative_time

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("What the servers offer.")
SEARCHED = ("name", "title", "description", "uri", "uriTemplate")


@app.command(epilog=example("catalog show demo order_lunch"))
def show(
    context: typer.Context,
    server: Server,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Its name; of resources the URI, of templates too.",
            autocompletion=completion.entries,
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="tool, prompt, resource or template.",
            autocompletion=completion.among(CATALOG_KINDS),
        ),
    ] = "tool",
) -> None:
    """Show one tool with its arguments, and how to call it; or a prompt, resource or template."""
    known([kind], "--kind", CATALOG_KINDS)
    settings = settings_of(context)
    which = cast("CatalogKind", kind)

    async def work(hub: "Hub") -> None:
        shape = await described(hub, settings, which, server, name)
        if settings.json:
            print_json({"server": server, which: shape})
            return
        from hubbub_frontend.display.offers import render_offer  # imported here, since it imports rich

        console().print(render_offer(server, which, shape), end="")
        words = samples.sample_command(which, server, shape)
        if words:
            say()
            say("for example:")
            say(f"  {settings.command(*words)}")

    run(context, work)


@app.command(epilog=example("catalog search lunch"))
def search(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="All of them are in what is shown.")],
    server: OfServer = None,
) -> None:
    """Search names, titles and descriptions of all that the servers offer."""
    wanted = [word.casefold() for word in words]

    async def work(hub: "Hub") -> None:
        entries, lists = await hub.catalog.read(None, server)
        found = [entry for entry in entries if all(word in _said(entry) for word in wanted)]
        if settings_of(context).json:
            for entry in found:
                print_json({"server": entry.server, entry.kind: entry.object})
        else:
            print_records(CatalogEntry, found, as_json=False)
        _warn(lists)

    run(context, work)


@app.command(epilog=example("catalog tools --server demo"))
def tools(context: typer.Context, server: OfServer = None) -> None:
    """List tools."""
    _show(context, "tool", server)


@app.command(epilog=example("catalog resources --server demo"))
def resources(context: typer.Context, server: OfServer = None) -> None:
    """List resources."""
    _show(context, "resource", server)


@app.command(epilog=example("catalog templates --server demo"))
def templates(context: typer.Context, server: OfServer = None) -> None:
    """List resource templates."""
    _show(context, "template", server)


@app.command(epilog=example("catalog prompts --server demo"))
def prompts(context: typer.Context, server: OfServer = None) -> None:
    """List prompts."""
    _show(context, "prompt", server)


@app.command(epilog=example("catalog refresh demo"))
def refresh(context: typer.Context, server: Server) -> None:
    """Fetch all lists of a server again."""

    async def work(hub: "Hub") -> None:
        print_records(CatalogList, await hub.catalog.refresh(server), settings_of(context).json)

    run(context, work)


@app.command(epilog=example("catalog watch --server demo --kind tool"))
def watch(context: typer.Context, server: OfServer = None, kind: CatalogKinds = None, resume: Resume = None) -> None:
    """Watch how fresh each list is, until interrupted."""
    kinds = known(kind, "--kind", CATALOG_KINDS)

    async def work(hub: "Hub") -> None:
        lines = Lines("no server has told of what it offers yet", as_json=settings_of(context).json)
        watching = hub.catalog.watch(server=server, kinds=kinds, resume_token=resume)
        async with contextlib.aclosing(watching) as events:
            async for event in events:
                lines.show(event)

    run(context, work, endless=True)


def _show(context: typer.Context, kind: CatalogKind, server: str | None) -> None:
    async def work(hub: "Hub") -> None:
        entries, lists = await hub.catalog.read(kind, server)
        if settings_of(context).json:
            for entry in entries:
                print_json({"server": entry.server, kind: entry.object})
        else:
            print_records(CatalogEntry, entries, as_json=False)
        _warn(lists)

    run(context, work)


def _said(entry: CatalogEntry) -> str:
    shape = as_object(entry.object)
    return "\n".join(str(shape.get(name) or "") for name in SEARCHED).casefold()


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
                cause = describe_fault(each.error) if each.error else "the fetch failed"
                note(f"{what} could not be fetched ({cause}); shown as of {relative_time(each.fetched_at)}")
            case _:
                note(f"{what} are {each.freshness}, as of {relative_time(each.fetched_at)}")
