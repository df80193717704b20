"""Root of the command line: its options; the commands are in `tree`."""

import gc
from typing import Annotated, Literal

import typer

from hubbub_cli.run import streams
from hubbub_cli.syntax.bounds import check_seconds
from hubbub_cli.syntax.group import Commands
from hubbub_cli.tree import Root
from hubbub_shared import __version__

HELP_WIDTH = 110
"""Most columns of a help page; longer lines are hard to read."""

Output = Literal["json", "text"]

app = Commands(
    "Watch and answer what MCP servers ask, and call them, through one hub.",
    cls=Root,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": HELP_WIDTH, "help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    """Print the version and end the run, if `--version` is given. Raises Exit."""
    if wanted:
        streams.say(f"hubbub {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The hub: HOST:PORT, https://HOST:PORT, unix:PATH or A,B,...; else HUBBUB_ADDRESS, else client.json.",
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Its token; else HUBBUB_TOKEN, else client.json.")
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Where client.json is; else HUBBUB_DATA_DIR, else the default data directory."
        ),
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
    output: Annotated[
        Output | None,
        typer.Option("--output", "-o", metavar="json|text", help="The same as --json, or the output for people."),
    ] = None,
    connect_timeout_s: Annotated[
        float | None,
        typer.Option(
            "--connect-timeout",
            min=0,
            metavar="S",
            help="Seconds to wait for the hub; else 5 if something listens, and none if nothing does.",
            callback=check_seconds,
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the hub, also if nothing listens: --connect-timeout, else 5 s.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, expose_value=False, callback=_print_version, help="Show the version."),
    ] = False,
) -> None:
    """Watch and answer what MCP servers ask, and call them, through one hub."""
    from dataclasses import replace

    from hubbub_cli.run.session import Settings  # imported late: `--version` and `--help` do not need it
    from hubbub_frontend.shell_commands import set_hub_prefix

    gc.freeze()  # `main` says why
    gc.enable()
    context.obj = Settings.from_params(context.params)  # the options above
    reached = replace(context.obj, name=None)  # for commands in texts: they name the hub by its options, without --as
    set_hub_prefix(reached.command(), local=replace(reached, address=None, ca=None, cert=None, key=None).command())
