"""`hubbub tui`."""

import sys
from typing import TYPE_CHECKING

import typer

from hubbub_cli.run.session import Usage, get_settings, run_with_hub

if TYPE_CHECKING:
    from hubbub_client.hub import Hub


def tui(context: typer.Context) -> None:
    """Watch and answer in the terminal: inbox, servers, calls, tasks, catalog, events and hosts, live."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Usage(
            "the terminal UI needs a terminal; without one, hubbub inbox shows what waits, and hubbub web a page"
        )

    async def run_ui(hub: "Hub") -> None:
        """Run the terminal UI until the person leaves."""
        from hubbub_tui.app import run as run_app

        await run_app(hub, get_settings(context).name)

    run_with_hub(context, run_ui, endless=True)
