"""`hubbub mcp sessions`."""

from typing import TYPE_CHECKING

import typer

from hubbub_cli.output import print_records
from hubbub_cli.session import run, settings_of

if TYPE_CHECKING:
    from hubbub_client.hub import Hub


def sessions(context: typer.Context) -> None:
    """List the hosts that are connected, and what each waits for."""

    async def work(hub: "Hub") -> None:
        from hubbub_client.records import ConnectedHost

        print_records(ConnectedHost, await hub.hosts.list(), settings_of(context).json)

    run(context, work)
