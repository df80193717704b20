"""Finds the servers of hosts, translates them, and compares them with the hub's configuration."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from hubbub_local.hosts.imports import Imported, give_unique_names, import_server, is_hub
from hubbub_local.hosts.servers import (
    FoundServer,
    Trouble,
    UnreadableFile,
    list_possible_tables,
    list_server_tables,
    list_servers,
    read_servers,
    read_settings,
)
from hubbub_local.hosts.texts import TextEnvironment
from hubbub_local.platform_dirs import Machine

MAX_VARIABLES_BYTES: Final = 1024 * 1024
"""The largest file of variables that is read."""

State = Literal["new", "disabled", "differs", "there", "cannot"]
"""How a server of a host compares with the hub's configuration.

`new` and `disabled` are not in it, `disabled` being switched off at its host; `differs` is in it in another form;
`there` is in it; `cannot` cannot be taken over.
"""

_IMPORTABLE_STATES: Final = ("new", "disabled", "differs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A server of a host, and whether it can be taken over. `also` are the other hosts that have the very same."""

    server: Imported
    state: State
    also: tuple[str, ...] = ()

    @property
    def is_importable(self) -> bool:
        """Whether the server can be taken over, and the configuration does not have the same already."""
        return self.state in _IMPORTABLE_STATES

    @property
    def hosts(self) -> str:
        """The hosts that have the server, for people."""
        return ", ".join(dict.fromkeys((self.server.found.place.title, *self.also)))


def find_all_servers(machine: Machine, folder: Path) -> list[FoundServer | Trouble]:
    """Return the servers of all hosts, and of a folder."""
    return [each for place in list_server_tables(machine, folder) for each in read_servers(place)]


def find_servers_of_file(machine: Machine, folder: Path, file: Path) -> list[FoundServer | Trouble]:
    """Return the servers in one file, in the form of the first host that it fits; a Trouble alone if it fits none."""
    kinds = list_possible_tables(file, list_server_tables(machine, folder))
    try:
        root = read_settings(file)
    except UnreadableFile as exc:
        return [Trouble(place=kinds[0], why=str(exc))]
    if root is None:
        return [Trouble(place=kinds[0], why="there is no such file")]
    for kind in kinds:
        if found := list_servers(kind, root):
            return found
    return [Trouble(place=kinds[0], why="it has no MCP servers")]


def make_offers(
    found: Iterable[FoundServer | Trouble], environment: TextEnvironment, configured: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Offer], list[Trouble]]:
    """Return the servers of hosts, each once and compared with the configured ones, and what could not be read.

    Those that can be taken over have unique names. The hub itself is left out.
    """
    found = list(found)
    distinct: dict[str, Imported] = {}
    other_hosts: dict[str, list[str]] = {}
    for each in found:
        if isinstance(each, Trouble) or is_hub(each):
            continue
        server = import_server(each, environment)
        # Servers without a spec are never the same: the key of each is a number that occurs once.
        key = json.dumps(server.spec, sort_keys=True) if server.spec else f"{len(distinct)}"
        if key in distinct:
            other_hosts.setdefault(key, []).append(each.place.title)
            if distinct[key].disabled and not server.disabled:
                distinct[key] = replace(distinct[key], disabled=False)  # one host has it switched on
        else:
            distinct[key] = server
    states: dict[str, State] = {key: _find_state(server, configured) for key, server in distinct.items()}
    importable_keys = [key for key, state in states.items() if state in _IMPORTABLE_STATES]
    renamed = dict(
        zip(importable_keys, give_unique_names([distinct[key] for key in importable_keys], configured), strict=True)
    )
    offers = [
        Offer(server=renamed.get(key, server), state=states[key], also=tuple(other_hosts.get(key, ())))
        for key, server in distinct.items()
    ]
    return offers, [each for each in found if isinstance(each, Trouble)]


def make_text_environment(machine: Machine) -> TextEnvironment:
    """Return what replaces references in hosts' entries (such as `${HOME}`): home, environment, files of variables."""
    return TextEnvironment(home=machine.home, environ=machine.environ, read=read_variables, platform=machine.platform)


def read_variables(file: Path) -> dict[str, str]:
    """Return the variables of a file (`NAME=VALUE` lines). Raises ValueError, saying why it cannot be read."""
    from io import StringIO

    from dotenv import dotenv_values  # imported late: few servers have such a file

    try:
        if not file.is_file():  # reading a pipe would block
            raise ValueError("is no file" if file.exists() else "is not there")
        with file.open("rb") as stream:
            raw = stream.read(MAX_VARIABLES_BYTES + 1)
    except OSError as exc:
        raise ValueError(f"cannot be read: {exc.strerror}") from None
    if len(raw) > MAX_VARIABLES_BYTES:
        raise ValueError("is too large")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8") from None
    found = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in found.items() if value is not None}


def _find_state(server: Imported, configured: Mapping[str, Mapping[str, Any]]) -> State:
    """Return how a server of a host compares with the servers of the configuration."""
    if server.spec is None:
        return "cannot"
    for name, spec in configured.items():
        if spec == server.spec or (_may_be_import_of(name, server) and _are_same_specs(spec, server.spec)):
            return "there"
    named = configured.get(server.name)
    if named is not None and _find_target(named) == _find_target(server.spec):
        return "differs"
    return "disabled" if server.disabled else "new"


def _may_be_import_of(name: str, server: Imported) -> bool:
    """Return whether a configured server's name is one that an import of this host's server would have given it.

    As `give_unique_names` does: its own name, or the beginning of that with the host's name or a number.
    """
    return name == server.name or name.startswith(f"{server.name[:48]}-")


def _are_same_specs(configured: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return whether the `configured` spec has all values of the `found` one; a reference may stand for any text."""
    if configured.keys() < found.keys():
        return False
    return all(key in configured and _are_alike(configured[key], value) for key, value in found.items())


def _are_alike(first: object, second: object) -> bool:
    """Return whether two values may be the same.

    A text with a reference (`${...}`) counts as the same as every text: what it refers to is not known here.
    """
    if isinstance(first, str) and isinstance(second, str):
        return first == second or "${" in first or "${" in second
    if isinstance(first, list) and isinstance(second, list):
        lists = cast("list[object]", first), cast("list[object]", second)
        return len(lists[0]) == len(lists[1]) and all(map(_are_alike, *lists))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        tables = cast("Mapping[str, object]", first), cast("Mapping[str, object]", second)
        return tables[0].keys() == tables[1].keys() and all(
            _are_alike(tables[0][key], tables[1][key]) for key in tables[0]
        )
    return first == second


def _find_target(spec: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a spec leads to, to compare it: the program, or the host of the url."""
    url = spec.get("url")
    return ("url", urlsplit(url).hostname) if isinstance(url, str) else ("command", spec.get("command"))
