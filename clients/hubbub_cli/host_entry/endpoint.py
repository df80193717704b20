"""What a host is to see of the hub, from the options of a command."""

from typing import TYPE_CHECKING

from hubbub_cli.run.session import Settings
from hubbub_shared import __version__

if TYPE_CHECKING:
    from hubbub_bridge.options import BridgeOptions


def make_bridge_options(
    settings: Settings, profile: str | None, server: str | None, *, start: bool = False
) -> "BridgeOptions":
    """Return the options of a bridge to the endpoint of a profile or a server; with `start` it may start a hub."""
    from hubbub_bridge.options import BridgeOptions

    return BridgeOptions(
        where=settings.where, name=settings.name, version=__version__, profile=profile, server=server, start=start
    )
