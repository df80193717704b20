"""Servers of the hub that a host has directly as well: each of their tools is there twice, and asks past the inbox."""

import os
import sys
from dataclasses import replace as changed
from typing import TYPE_CHECKING

import typer

from hubbub_cli.commands.config import chosen_file
from hubbub_local import config_file
from hubbub_local.hosts.offers import offers, variables
from hubbub_local.hosts.servers import places, servers
from hubbub_local.hosts.texts import Surround
from hubbub_local.platform_dirs import Machine

if TYPE_CHECKING:
    from hubbub_cli.host_entry.entry_request import Wanted
    from hubbub_cli.run.session import Settings


def with_direct(settings: "Settings", wanted: "Wanted", *, replace: bool) -> "Wanted":
    """Return what is wanted, with those servers; they are taken out if `replace` or a person says so."""
    direct = _direct(wanted)
    if not direct:
        return wanted
    out = replace or (settings.interactive and _agrees(wanted, direct))
    return changed(wanted, direct=direct, out=direct if out else ())


def _direct(wanted: "Wanted") -> tuple[str, ...]:
    """Return the host's own names of servers that the hub's configuration has."""
    at = Machine.here()
    own = [
        place
        for place in places(at, at.home)
        if place.host == wanted.host.name and place.file == wanted.file and place.folder is None
    ]
    try:
        configured = config_file.servers(config_file.read(chosen_file(None)))
    except (config_file.Unchangeable, OSError):
        return ()
    around = Surround(home=at.home, environ=os.environ, read=variables, platform=sys.platform)
    found = [each for place in own if place.section == (wanted.host.section,) for each in servers(place)]
    # One at a time: of two that are the same, both are there.
    offered = [offer for each in found for offer in offers([each], around, configured)[0]]
    return tuple(
        offer.server.found.name
        for offer in offered
        if offer.state in ("there", "differs") and offer.server.found.place.folder is None and not offer.server.disabled
    )


def _agrees(wanted: "Wanted", direct: tuple[str, ...]) -> bool:
    question = (
        f"{wanted.host.title} has {', '.join(direct)} directly as well, past the inbox. "
        f"Take that out of {wanted.file}, where a copy stays?"
    )
    return typer.confirm(question, default=False, err=True)
