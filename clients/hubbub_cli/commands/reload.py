"""`hubbub reload`."""

from typing import TYPE_CHECKING

from hubbub_cli.output.printer import print_json, say
from hubbub_cli.run.session import Settings, hub_command

if TYPE_CHECKING:
    from hubbub_client.hub import Hub


@hub_command()
async def reload(hub: "Hub", settings: Settings) -> None:
    """Reload the hub's configuration; exit 1 when it is wrong, and nothing has changed."""
    report = (await hub.admin.reload()).to_json()
    if settings.json:
        print_json(report)
        return
    for what, names in report.items():
        if names:
            say(f"{what.replace('_', ' ')}: {', '.join(names)}")
    if not any(report.values()):
        say("nothing has changed")
