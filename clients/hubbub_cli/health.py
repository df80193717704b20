"""`hubbub health`."""

from typing import TYPE_CHECKING

import typer

from hubbub_cli.output import print_json, say
from hubbub_cli.session import run, settings_of

if TYPE_CHECKING:
    from hubbub_client.hub import Hub


def health(context: typer.Context) -> None:
    """Check whether the hub takes new work, for supervisors: exit 0 if it does, else 1."""

    async def work(hub: "Hub") -> bool:
        well = await hub.admin.well()
        if settings_of(context).json:
            print_json({"serving": well})
        else:
            say("serving" if well else "not serving: its store cannot be written, or it stops")
        return well

    run(context, work)
