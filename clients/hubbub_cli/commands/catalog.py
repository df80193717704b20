"""`hubbub catalog`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.printer import console, note, print_json, print_records, say
from hubbub_cli.output.watch_lines import Lines, print_steps
from hubbub_cli.run.session import Settings
from hubbub_cli.syntax import completion
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import CatalogKinds, OfServer, Resume, Server
from hubbub_cli.terminal.arguments import find_entry
from hubbub_client.data.catalog import CatalogEntry, CatalogList
from hubbub_client.data.literals import CatalogKind
from hubbub_frontend import samples
from hubbub_frontend.display.records import describe_fault, relative_time

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("What the servers offer.")


@app.hub_command(example="catalog show demo order_lunch")
async def show(
    hub: "Hub",
    settings: Settings,
    server: Server,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Its name; of resources, templates and skills the URI.",
            autocompletion=completion.entries,
        ),
    ],
    kind: Annotated[
        CatalogKind, typer.Option(metavar="KIND", help="tool, prompt, resource, template or skill.")
    ] = "tool",
) -> None:
    """Show one tool with its arguments, and how to call it; or a prompt, resource, template or skill."""
    shape = await find_entry(hub, settings, kind, server, name)
    if settings.json:
        print_json({"server": server, kind: shape})
        return
    from hubbub_frontend.display.offers import render_offer  # imported here, since it imports rich

    console().print(render_offer(server, kind, shape), end="")
    words = samples.sample_command(kind, server, shape)
    if words:
        say()
        say("for example:")
        say(f"  {settings.command(*words)}")


@app.hub_command(example="catalog search lunch")
async def search(
    hub: "Hub",
    settings: Settings,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="All of them are in what is shown.")],
    server: OfServer = None,
) -> None:
    """Search names, titles and descriptions of all that the servers offer."""
    searched_words = [word.casefold() for word in words]
    entries, lists = await hub.catalog.read(None, server)
    matches = [entry for entry in entries if all(word in _join_searched_text(entry) for word in searched_words)]
    _print_entries(matches, lists, settings)


@app.hub_command(example="catalog tools --server demo")
async def tools(hub: "Hub", settings: Settings, server: OfServer = None) -> None:
    """List tools."""
    _print_entries(*await hub.catalog.read("tool", server), settings)


@app.hub_command(example="catalog resources --server demo")
async def resources(hub: "Hub", settings: Settings, server: OfServer = None) -> None:
    """List resources."""
    _print_entries(*await hub.catalog.read("resource", server), settings)


@app.hub_command(example="catalog templates --server demo")
async def templates(hub: "Hub", settings: Settings, server: OfServer = None) -> None:
    """List resource templates."""
    _print_entries(*await hub.catalog.read("template", server), settings)


@app.hub_command(example="catalog prompts --server demo")
async def prompts(hub: "Hub", settings: Settings, server: OfServer = None) -> None:
    """List prompts."""
    _print_entries(*await hub.catalog.read("prompt", server), settings)


@app.hub_command(example="catalog skills --server demo")
async def skills(hub: "Hub", settings: Settings, server: OfServer = None) -> None:
    """List skills."""
    _print_entries(*await hub.catalog.read("skill", server), settings)


@app.hub_command(example="catalog refresh demo")
async def refresh(hub: "Hub", settings: Settings, server: Server) -> None:
    """Fetch all lists of a server again."""
    print_records(CatalogList, await hub.catalog.refresh(server), settings.json)


@app.hub_command(example="catalog watch --server demo --kind tool", endless=True)
async def watch(
    hub: "Hub", settings: Settings, server: OfServer = None, kind: CatalogKinds = None, resume: Resume = None
) -> None:
    """Watch how fresh each list is, until interrupted."""
    lines = Lines("no server has told of what it offers yet", as_json=settings.json)
    await print_steps(hub.catalog.watch(server=server, kinds=kind or (), resume_token=resume), lines)


def _print_entries(entries: Sequence[CatalogEntry], lists: Sequence[CatalogList], settings: Settings) -> None:
    """Print entries of the catalog, and a warning for each of their lists that is not up to date."""
    if settings.json:
        for entry in entries:
            print_json({"server": entry.server, entry.kind: entry.object})
    else:
        print_records(CatalogEntry, entries, as_json=False)
    _warn_of_old_lists(lists)


def _join_searched_text(entry: CatalogEntry) -> str:
    """Return the texts of an entry that a search looks at, in lower case."""
    return "\n".join((entry.name, entry.title or "", entry.description or "", entry.uri or "")).casefold()


def _warn_of_old_lists(lists: Sequence[CatalogList]) -> None:
    """Print on stderr, for each list that is not up to date, how old it is, and why if the fetch failed."""
    for each in lists:
        list_name = f"{each.server}: its {each.kind}s"
        match each.freshness:
            case "fresh":
                continue
            case "unknown":
                note(f"{list_name} have not been fetched yet")
            case "empty":
                note(f"{list_name}: it says that it has some, and lists none")
            case "error":
                cause = describe_fault(each.error) if each.error else "the fetch failed"
                note(f"{list_name} could not be fetched ({cause}); shown as of {relative_time(each.fetched_at)}")
            case _:
                note(f"{list_name} are {each.freshness}, as of {relative_time(each.fetched_at)}")
