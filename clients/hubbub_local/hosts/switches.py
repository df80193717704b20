"""Plans the changes in a host's files that switch servers off: by its flag, by its list, or by removing them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub_local.hosts.files import Changes
from hubbub_local.hosts.kinds import HostProgram
from hubbub_local.hosts.servers import FoundServer, read_switched_off_names


@dataclass(slots=True)
class SwitchOff:
    """Changes by file, and the names of the servers that stay there switched off, or that are taken out."""

    changes: dict[Path, dict[tuple[str, ...], dict[str, Any]]] = field(default_factory=dict[Path, Any])
    stay: list[str] = field(default_factory=list[str])
    taken_out: list[str] = field(default_factory=list[str])

    def find_changes(self, file: Path) -> Changes:
        """Return the changes of one file; empty if there are none."""
        return self.changes.get(file, {})

    def add_changes(self, file: Path, path: tuple[str, ...], members: Mapping[str, Any]) -> None:
        """Add changes of members at a path of a file."""
        self.changes.setdefault(file, {}).setdefault(path, {}).update(members)


def plan_switch_off(host: HostProgram, found: Iterable[FoundServer]) -> SwitchOff:
    """Return the changes that switch these servers of a host off."""
    plan = SwitchOff()
    for each in found:
        place = each.place
        if place.off_list is not None:
            *path, name = place.off_list.path
            # The list as this plan has it already, else as the file has it.
            names = plan.find_changes(place.off_list.file).get(tuple(path), {}).get(name) or read_switched_off_names(
                place
            )
            plan.add_changes(place.off_list.file, tuple(path), {name: [*names, each.name]})
        elif host.flag_off is not None:
            plan.add_changes(place.file, (*place.section, each.name), host.flag_off)
        else:
            plan.add_changes(place.file, place.section, {each.name: None})
        (plan.stay if place.off_list is not None or host.flag_off is not None else plan.taken_out).append(
            format_server_name(each)
        )
    return plan


def format_server_name(found: FoundServer) -> str:
    """Return a server's name at its host, with the folder that it is for if it is not for all."""
    return found.name if found.place.folder is None else f"{found.name} in {found.place.folder}"
