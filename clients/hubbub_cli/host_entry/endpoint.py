"""What a host is to see of the hub, from the options of a command."""

from typing import TYPE_CHECKING

from hubbub_cli.run.session import Settings
from hubbub_shared import __version__

if TYPE_CHECKING:
    from hubbub_bridge.options import BridgeOptions


def endpoint_of(settings: Settings, profile: str | None, server: str | None, *, start: bool = False) -> "BridgeOptions":
    """Return an endpoint of the hub, as the bridge opens it."""
    from hubbub_bridge.options import BridgeOptions, HubOptions

    reach = HubOptions(
        address=settings.address,
        token=settings.token,
        data_dir=settings.data_dir,
        ca=settings.ca,
        cert=settings.cert,
        key=settings.key,
        name=settings.name,
    )
    return BridgeOptions(reach=reach, version=__version__, profile=profile, server=server, start=start)
