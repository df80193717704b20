"""Root of the command line: global options and commands."""

import gc
from typing import Annotated

import typer

from hubbub_cli import (
    agent,
    audit,
    calls,
    catalog,
    certs,
    doctor,
    events,
    health,
    inbox,
    reload,
    resources,
    servers,
    status,
    store,
    tasks,
    tokens,
    tui,
    web,
)
from hubbub_cli.params import example, finite
from hubbub_cli.session import Settings

app = typer.Typer(
    help="Watch and answer what MCP servers ask, and call them, through one hub.",
    pretty_exceptions_enable=False,
)
app.add_typer(servers.app, name="servers")
app.add_typer(inbox.app, name="inbox")
app.command("agent", epilog=example("agent --kind sampling --chat http://127.0.0.1:11434/v1 --model llama3.2"))(
    agent.agent
)
app.command("call", epilog=example('call time get_current_time \'{"timezone": "UTC"}\''))(calls.call)
app.command("send", epilog=example("send time tools/list"))(calls.send)
app.command("open", epilog=example("open REQUEST"))(inbox.open_)
app.add_typer(calls.app, name="calls")
app.command("queue", epilog=example("queue demo --clear"))(calls.queue)
app.add_typer(tasks.app, name="tasks")
app.add_typer(catalog.app, name="catalog")
app.command("read", epilog=example("read everything demo://resource/static/document/features.md"))(resources.read)
app.command("prompt", epilog=example("prompt everything simple-prompt"))(resources.prompt)
app.command("complete", epilog=example("complete everything city Be --prompt args-prompt"))(resources.complete)
app.command("subscribe", epilog=example("subscribe everything demo://resource/dynamic/text/1"))(resources.subscribe)
app.command("roots", epilog=example('roots demo set \'[{"uri": "file:///srv/project"}]\''))(resources.roots)
app.command("log-level", epilog=example("log-level demo debug"))(resources.log_level)
app.add_typer(certs.app, name="certs")
app.add_typer(events.app, name="events")
app.command("logs", epilog=example("logs demo --follow"))(events.logs)
app.command("status", epilog=example("status"))(status.status)
app.command("reload", epilog=example("reload"))(reload.reload)
app.command("doctor", epilog=example("doctor"))(doctor.doctor)
app.command("health", epilog=example("health"))(health.health)
app.command("tui", epilog=example("tui"))(tui.tui)
app.add_typer(store.app, name="store")
app.add_typer(audit.app, name="audit")
app.add_typer(tokens.app, name="tokens")
app.command("whoami", epilog=example("whoami"))(tokens.whoami)
app.command("web", epilog=example("web"))(web.web)


@app.callback()
def options(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(help="The hub: HOST:PORT, https://HOST:PORT or unix:PATH; else HUBBUB_ADDRESS, else client.json."),
    ] = None,
    token: Annotated[str | None, typer.Option(help="Its token; else HUBBUB_TOKEN, else client.json.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Where client.json is; else HUBBUB_DATA_DIR, else the default data directory.")
    ] = None,
    ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="Authorities to trust, PEM; else HUBBUB_CA, else gRPC's own.")
    ] = None,
    cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificate to show the hub, PEM; else HUBBUB_CERT.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key; else HUBBUB_KEY, else in --cert.")] = None,
    name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="The name that claims and answers.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, errors too.")] = False,
    connect_timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="S",
            help="Seconds to wait for the hub; else 5 if something listens, and none if nothing does.",
            callback=finite,
        ),
    ] = None,
) -> None:
    """Watch and answer what MCP servers ask, and call them, through one hub."""
    gc.freeze()
    gc.enable()
    context.obj = Settings(
        address=address,
        token=token,
        data_dir=data_dir,
        ca=ca,
        cert=cert,
        key=key,
        name=name,
        json=as_json,
        connect_timeout_s=connect_timeout,
    )
