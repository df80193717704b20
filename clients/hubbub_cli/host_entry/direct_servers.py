"""Servers of the hub that a host has directly as well: each of their tools is there twice, and asks past the inbox."""

import os
import sys
from dataclasses import replace as changed
from typing import TYPE_CHECKING

import typer

from hubbub_cli.commands.config import chosen_file
from hubbub_local import config_file
from hubbub_local.hosts.offers import make_offers, read_variables
from hubbub_local.hosts.servers import list_server_tables, read_servers
from hubbub_local.hosts.texts import TextEnvironment
from hubbub_local.platform_dirs import Machine

if TYPE_CHECKING:
    from hubbub_cli.host_entry.entry_request import EntryRequest
    from hubbub_cli.run.session import Settings


def find_direct_servers(settings: "Settings", wanted: "EntryRequest", *, replace: bool) -> "EntryRequest":
    """Return what is wanted, with those servers; they are taken out if `replace` or a person says so."""
    direct = _list_direct_servers(wanted)
    if not direct:
        return wanted
    takes_out = replace or (settings.interactive and _confirm_removal(wanted, direct))
    return changed(wanted, direct=direct, taken_out=direct if takes_out else ())


def _list_direct_servers(wanted: "EntryRequest") -> tuple[str, ...]:
    """Return the host's own names of servers that the hub's configuration has."""
    machine = Machine.here()
    own_places = [
        place
        for place in list_server_tables(machine, machine.home)
        if place.host == wanted.host.name and place.file == wanted.file and place.folder is None
    ]
    try:
        configured = config_file.list_servers(config_file.read_config(chosen_file(None)))
    except (config_file.Unchangeable, OSError):
        return ()
    environment = TextEnvironment(home=machine.home, environ=os.environ, read=read_variables, platform=sys.platform)
    found_servers = [
        each for place in own_places if place.section == (wanted.host.section,) for each in read_servers(place)
    ]
    # One at a time: of two that are the same, both are there.
    offered = [offer for each in found_servers for offer in make_offers([each], environment, configured)[0]]
    return tuple(
        offer.server.found.name
        for offer in offered
        if offer.state in ("there", "differs") and offer.server.found.place.folder is None and not offer.server.disabled
    )


def _confirm_removal(wanted: "EntryRequest", direct: tuple[str, ...]) -> bool:
    question = (
        f"{wanted.host.title} has {', '.join(direct)} directly as well, past the inbox. "
        f"Take that out of {wanted.file}, where a copy stays?"
    )
    return typer.confirm(question, default=False, err=True)
