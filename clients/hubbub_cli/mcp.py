"""`hubbub mcp`."""

import os
import sys
from typing import Annotated

import typer

from hubbub_cli import streams
from hubbub_cli.group import Commands
from hubbub_cli.session import Usage, settings_of

app = Commands("MCP over standard input and output, for hosts that start an MCP server; and what hosts need for it.")

BY_HAND = (
    "hubbub mcp: hosts start this, and speak JSON-RPC with it, a message a line; "
    "`hubbub mcp install HOST` configures one, `hubbub mcp check` tries it"
)

Profile = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="What the host sees: this profile; else `default`.")
]


@app.callback(invoke_without_command=True)
def bridge(
    context: typer.Context,
    profile: Profile = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="NAME", help="What the host sees: this server alone, with its own names."),
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Start a hub when there is none; it goes on.")] = False,
) -> None:
    """Serve the hub's servers to an MCP host over standard input and output, until it closes them.

    It needs no running hub to start: it answers what it knows, and connects when there is one.
    """
    if context.invoked_subcommand is not None:
        return
    if profile and server:
        raise Usage("--profile and --server are two ways to say what the host sees: name one")
    settings = settings_of(context)
    if start and (settings.address or os.environ.get("HUBBUB_ADDRESS")):
        raise Usage("--start starts a hub for the data directory; with an address, start the hub there")
    if sys.stdin.isatty():
        sys.stderr.write(f"{BY_HAND}\n")

    import asyncio

    from hubbub_bridge.bridge import Endpoint, Reach, serve
    from hubbub_cli.app import VERSION

    reach = Reach(
        address=settings.address,
        token=settings.token,
        data_dir=settings.data_dir,
        ca=settings.ca,
        cert=settings.cert,
        key=settings.key,
        name=settings.name,
    )
    endpoint = Endpoint(reach=reach, version=VERSION, profile=profile, server=server, start=start)
    asyncio.run(serve(endpoint, stdout=streams.taken_stdout()))
