"""`hubbub mcp sessions`."""

from typing import TYPE_CHECKING, Annotated

import typer

from hubbub_cli.output.printer import print_records, say
from hubbub_cli.run.session import Settings, hub_command

if TYPE_CHECKING:
    from hubbub_client.hub import Hub


@hub_command()
async def list_sessions(
    hub: "Hub",
    settings: Settings,
    all_: Annotated[bool, typer.Option("--all", help="Those too that have probably gone.")] = False,
) -> None:
    """List the hosts that are connected, a row for each process, and what each waits for."""
    from hubbub_client.data.hosts import ConnectedHost
    from hubbub_frontend.display.hosts import without_gone

    hosts = await hub.hosts.list()
    print_records(ConnectedHost, hosts if all_ else without_gone(hosts), settings.json)


async def print_hosts(hub: "Hub") -> None:
    """Print for each connected host which kinds of questions it is asked, and why not the others.

    Nothing is printed for a caller who may not see hosts.
    """
    from hubbub_client.errors import HubbubError
    from hubbub_frontend.display.hosts import without_gone

    try:
        hosts = await hub.hosts.list()
    except HubbubError:
        return
    # The check itself has connected under this name.
    for host in (each for each in without_gone(hosts) if each.name != "hubbub-mcp-check"):
        kinds = ", ".join(each.kind for each in host.questions if not each.why_not) or "nothing"
        say(f"  {' '.join(filter(None, (host.name, host.version)))} ({host.endpoint}) is asked: {kinds}")
        for each in host.questions:
            if each.why_not:
                say(f"    not {each.kind}: {each.why_not}")
