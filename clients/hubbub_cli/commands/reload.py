"""`hubbub reload`."""

from typing import TYPE_CHECKING

import typer

from hubbub_cli.output.printer import print_json, say
from hubbub_cli.run.session import run, settings_of

if TYPE_CHECKING:
    from hubbub_client.hub import Hub


def reload(context: typer.Context) -> None:
    """Reload the hub's configuration; exit 1 when it is wrong, and nothing has changed."""

    async def work(hub: "Hub") -> None:
        done = (await hub.admin.reload()).to_json()
        if settings_of(context).json:
            print_json(done)
            return
        for what, names in done.items():
            if names:
                say(f"{what.replace('_', ' ')}: {', '.join(names)}")
        if not any(done.values()):
            say("nothing has changed")

    run(context, work)
