"""The root of the command line: the global options and the commands."""

from typing import Annotated

import typer

from hubbub_client.cli import calls, catalog, events, inbox, resources, servers, status, store, tasks, tui
from hubbub_client.cli.session import Settings

app = typer.Typer(
    help="Watch and answer what MCP servers ask, and call them, through one hub.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(servers.app, name="servers")
app.add_typer(inbox.app, name="inbox")
app.command("call")(calls.call)
app.command("send")(calls.send)
app.add_typer(calls.app, name="calls")
app.command("queue")(calls.queue)
app.add_typer(tasks.app, name="tasks")
app.add_typer(catalog.app, name="catalog")
app.command("read")(resources.read)
app.command("prompt")(resources.prompt)
app.command("complete")(resources.complete)
app.command("subscribe")(resources.subscribe)
app.command("roots")(resources.roots)
app.command("log-level")(resources.log_level)
app.add_typer(events.app, name="events")
app.command("logs")(events.logs)
app.command("status")(status.status)
app.command("tui")(tui.tui)
app.add_typer(store.app, name="store")


@app.callback()
def options(
    context: typer.Context,
    address: Annotated[
        str | None, typer.Option(help="The hub, HOST:PORT or unix:PATH; else HUBBUB_ADDRESS, else client.json.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Its token; else HUBBUB_TOKEN, else client.json.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Where client.json is; else HUBBUB_DATA_DIR, else the default data directory.")
    ] = None,
    name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Who claims and answers.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, errors too.")] = False,
    connect_timeout: Annotated[float, typer.Option(min=0, metavar="S", help="Seconds to wait for the hub.")] = 5.0,
) -> None:
    """Watch and answer what MCP servers ask, and call them, through one hub."""
    context.obj = Settings(
        address=address, token=token, data_dir=data_dir, name=name, json=as_json, connect_timeout_s=connect_timeout
    )
