"""Servers of the hub that a host has directly as well: each of their tools is there twice, and asks past the inbox."""

from collections.abc import Iterable
from dataclasses import replace as changed
from typing import TYPE_CHECKING

import typer

from hubbub_cli.commands.config import choose_config_file
from hubbub_local import config_file
from hubbub_local.hosts.offers import make_offers, make_text_environment
from hubbub_local.hosts.servers import FoundServer, ServerTable, list_server_tables, read_servers
from hubbub_local.hosts.switches import format_server_name, plan_switch_off
from hubbub_local.platform_dirs import Machine

if TYPE_CHECKING:
    from hubbub_cli.host_entry.entry_request import EntryRequest
    from hubbub_cli.run.session import Settings


def note_direct_servers(settings: "Settings", request: "EntryRequest", *, replace: bool) -> "EntryRequest":
    """Return the request with the names of the hub's servers that the host also reaches directly, by its own tables.

    With `replace`, or if a person agrees, it also has the changes that switch them off there; nothing is changed yet.
    """
    machine = Machine.here()
    own_tables = [each for each in list_server_tables(machine, machine.home) if each.host == request.host.name]
    # Only the person's own files are changed, and none that a folder brings.
    direct = list_direct_servers(each for each in own_tables if each.of_person)
    if not direct:
        return request
    request = changed(request, direct=tuple(map(format_server_name, direct)))
    if replace or (settings.interactive and _confirm_switch_off(request)):
        return changed(request, switch_off=plan_switch_off(request.host, direct))
    return request


def list_direct_servers(tables: Iterable[ServerTable]) -> list[FoundServer]:
    """Return the servers in some tables of hosts that the hub's configuration has, too, and that are not switched off.

    Empty also if the hub's configuration cannot be read.
    """
    try:
        configured = config_file.list_servers(config_file.read_config(choose_config_file(None)))
    except (config_file.Unchangeable, OSError):
        return []
    environment = make_text_environment(Machine.here())
    # One at a time: of two equal servers in different tables, `make_offers` would return only one.
    offered = [
        offer
        for table in tables
        for each in read_servers(table)
        for offer in make_offers([each], environment, configured)[0]
    ]
    return [
        offer.server.found for offer in offered if offer.state in ("there", "differs") and not offer.server.disabled
    ]


def _confirm_switch_off(request: "EntryRequest") -> bool:
    """Ask whether to switch off the direct servers of the host, and return whether the person agrees."""
    question = (
        f"{request.host.title} has {', '.join(request.direct)} directly as well, past the inbox. "
        f"Switch that off there? A copy of the file stays"
    )
    return typer.confirm(question, default=False, err=True)
