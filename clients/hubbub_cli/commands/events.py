"""`hubbub events` and `logs`."""

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.output.watch_lines import HOW_TO_END, Rows
from hubbub_cli.run.session import Settings, get_settings, run_with_hub
from hubbub_cli.syntax.group import Commands
from hubbub_cli.syntax.params import EventKinds, OfServer, Server
from hubbub_client.data.records import ServerEvent
from hubbub_frontend.display.records import HUB, describe_event, local_time

if TYPE_CHECKING:
    from hubbub_client.hub import Hub

app = Commands("What servers tell, as it happens.")


@app.hub_command(example="events watch --kind log --kind stderr", endless=True)
async def watch(
    hub: "Hub",
    settings: Settings,
    server: OfServer = None,
    kind: EventKinds = None,
) -> None:
    """Watch events from now on, until interrupted."""
    watched = hub.events.watch(
        server=server, kinds=kind or (), on_dropped=lambda count: note(f"{count} events were lost")
    )
    rows = Rows(("time", "server", "kind", "what"))
    if not settings.json:
        note(f"events from now on, since they are not stored; {HOW_TO_END}")
    async with contextlib.aclosing(watched) as events:
        async for event in events:
            if settings.json:
                print_json(event.to_json())
            else:
                shown_kind = event.kind.replace("_", " ")
                rows.print((local_time(event.at) or "-", event.server or HUB, shown_kind, describe_event(event)))


def logs(
    context: typer.Context,
    server: Server,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=500, metavar="N", help="At most so many.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines, until interrupted.")] = False,
) -> None:
    """Show a server's log messages, and what a stdio server wrote to its standard error."""
    as_json = get_settings(context).json

    async def print_logs(hub: "Hub") -> None:
        """Print the last lines, and with --follow those that come."""
        if not follow:
            log_lines = await hub.events.logs(server, lines=lines)
            for event in log_lines:
                _print_event(event, as_json)
            if not (log_lines or as_json):
                note(f"{server} has logged nothing yet")
            return
        async with contextlib.aclosing(hub.events.follow_logs(server, lines=lines)) as events:
            async for event in events:
                _print_event(event, as_json)

    run_with_hub(context, print_logs, endless=follow)


def _print_event(event: ServerEvent, as_json: bool) -> None:
    """Print an event of a server: as JSON, or its time and what it says."""
    if as_json:
        print_json(event.to_json())
    else:
        say(local_time(event.at) or "-", describe_event(event))
