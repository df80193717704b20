"""The MCP servers that a person already has: which files of hosts have them, and what is written there.

Files are only read. One that is broken is reported, and hides nothing of the others.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from hubbub_local.hosts.kinds import HOSTS, OffList
from hubbub_local.platform_dirs import Machine

MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest file that is read."""

MAX_VALUES: Final = 100_000
"""Values of a file, those that aliases of YAML repeat included."""

MAX_SLOW_BYTES: Final = 16 * 1024
"""The largest file of JSON with more than comments (JSON5): reading it takes a second."""

MAX_YAML_BYTES: Final = 256 * 1024
"""The largest file of YAML."""

MAX_SERVERS: Final = 1000
"""The most servers of a file that are taken."""

MAX_NAME: Final = 200
"""Characters of a server's name that are repeated."""

References = Literal["none", "shell", "dollar", "editor", "braces"]
"""What a host replaces in texts: nothing; `${VAR}`; `$VAR` as well; `${env:VAR}`, `${input:ID}`, `${workspaceFolder}`;
or `{env:VAR}` and `{file:PATH}`."""

Entry = Mapping[str, Any]


class UnreadableFile(Exception):
    """A file cannot be read; the message says why, with the line where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTable:
    """A table of servers in a file of a host: `section` leads to it, and `inputs` to what the host asks for."""

    host: str
    title: str
    file: Path
    section: tuple[str, ...]
    inputs: tuple[str, ...] = ("inputs",)
    folder: Path | None = None
    """The folder that the file is about; None if it is about all."""

    references: References = "none"

    of_person: bool = True
    """Whether the person has put it there; False for what a folder brings, which may be from anybody."""

    off_list: OffList | None = None
    """The host's list of the names of servers that are switched off; None if the host has no such list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """A server as a host has it. `inputs` are those of the file, by id; `is_off` says that a list switches it off."""

    place: ServerTable
    name: str
    entry: Entry
    inputs: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    is_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A file that cannot be read, or has something else where servers should be."""

    place: ServerTable
    why: str


def list_server_tables(machine: Machine, folder: Path) -> list[ServerTable]:
    """Return the places where hosts keep servers: those for the person first, then those for a folder."""
    of_person = _list_person_tables(machine)
    # If the folder is the home, some of its files are the person's own, and listed already.
    taken = {os.path.realpath(place.file) for place in of_person}
    return [*of_person, *(place for place in _list_folder_tables(folder) if os.path.realpath(place.file) not in taken)]


REFERENCES: Final[Mapping[str, References]] = {
    "claude-code": "shell",
    "vscode": "editor",
    "cursor": "editor",
    "goose": "shell",
    "gemini-cli": "dollar",
    "qwen-code": "dollar",
    "opencode": "braces",
    "copilot-cli": "dollar",
    "windsurf": "editor",
    "folder": "shell",
}
"""What hosts replace; the others replace nothing."""


def _list_person_tables(machine: Machine) -> list[ServerTable]:
    """Return the tables in which hosts keep the servers that the person has for all folders."""
    settings = machine.application_dir("Code") / "User" / "settings.json"
    tables: list[ServerTable] = []
    for host in HOSTS.values():
        files = host.files(machine) if host.files else [host.file(machine)]
        off = host.list_off(machine) if host.list_off else None
        tables += [replace(_make_table(host.name, file, host.section), off_list=off) for file in files]
        if host.name == "vscode":  # may also have servers in its general settings
            tables.append(_make_table(host.name, settings, "mcp", "servers"))
    return tables


def _list_folder_tables(folder: Path) -> list[ServerTable]:
    """Return the tables in which hosts keep the servers of a folder."""

    def make_folder_table(host: str, file: str, section: str) -> ServerTable:
        """Return a table of servers in a file of the folder, which may be from anybody."""
        return _make_table(host, folder / file, section, folder=folder, of_person=False)

    return [
        make_folder_table("folder", ".mcp.json", "mcpServers"),
        make_folder_table("vscode", ".vscode/mcp.json", "servers"),
        make_folder_table("cursor", ".cursor/mcp.json", "mcpServers"),
        make_folder_table("zed", ".zed/settings.json", HOSTS["zed"].section),
        make_folder_table("codex", ".codex/config.toml", HOSTS["codex"].section),
        make_folder_table("gemini-cli", ".gemini/settings.json", HOSTS["gemini-cli"].section),
        make_folder_table("qwen-code", ".qwen/settings.json", HOSTS["qwen-code"].section),
        make_folder_table("opencode", "opencode.json", HOSTS["opencode"].section),
        make_folder_table("opencode", "opencode.jsonc", HOSTS["opencode"].section),
        make_folder_table("copilot-cli", ".github/mcp.json", HOSTS["copilot-cli"].section),
    ]


def _make_table(
    host: str, file: Path, *section: str, folder: Path | None = None, of_person: bool = True
) -> ServerTable:
    """Return a table of servers in a file of a host."""
    return ServerTable(
        host=host,
        title=TITLES[host],
        file=file,
        section=section,
        inputs=(*section[:-1], "inputs"),
        folder=folder,
        references=REFERENCES.get(host, "none"),
        of_person=of_person,
    )


TITLES: Final[Mapping[str, str]] = {
    **{name: host.title for name, host in HOSTS.items()},
    "folder": "this folder",
}
"""Hosts whose servers can be read, by name; `folder` is the `.mcp.json` of a folder."""


def list_possible_tables(file: Path, host_tables: Iterable[ServerTable]) -> list[ServerTable]:
    """Return the tables that a file may have, in the order to try them: those of `host_tables`, else by its name."""
    if matching_tables := [place for place in host_tables if os.path.realpath(place.file) == os.path.realpath(file)]:
        return matching_tables
    title, folder = file.name, file.absolute().parent
    if folder.name.startswith("."):  # .vscode, .gemini and the like are in the folder that they are about
        folder = folder.parent
    match file.suffix.lower():
        case ".toml":
            kinds: list[tuple[str, tuple[str, ...]]] = [("codex", ("mcp_servers",))]
        case ".yaml" | ".yml":
            kinds = [("goose", ("extensions",))]
        case _:
            host_by_folder = {
                ".gemini": "gemini-cli",
                ".qwen": "qwen-code",
                ".cursor": "cursor",
                "windsurf": "windsurf",
            }
            kinds = [
                (host_by_folder.get(file.parent.name, "folder"), ("mcpServers",)),
                ("vscode", ("servers",)),
                ("vscode", ("mcp", "servers")),
                ("zed", ("context_servers",)),
                ("opencode", ("mcp",)),
            ]
    return [replace(_make_table(host, file, *section, folder=folder), title=title) for host, section in kinds]


def read_servers(place: ServerTable) -> list[FoundServer | Trouble]:
    """Return the servers of a table, with a Trouble for each thing that is wrong; empty if its file is not there."""
    try:
        root = read_settings(place.file)
    except UnreadableFile as exc:
        return [Trouble(place=place, why=str(exc))]
    return [] if root is None else list_servers(place, root)


def list_servers(place: ServerTable, root: Mapping[str, Any]) -> list[FoundServer | Trouble]:
    """Return the servers of a table in a parsed file, MAX_SERVERS at most, and a Trouble for what is wrong with it."""
    found: list[FoundServer | Trouble] = list(_find_servers(place, root))
    if place.host == "claude-code":  # its file has the servers of single folders, too
        found += _find_project_servers(place, root)
    if len(found) > MAX_SERVERS:
        why = f"it has {len(found)} servers; those after the first {MAX_SERVERS} are left out"
        found = [*found[:MAX_SERVERS], Trouble(place=place, why=why)]
    return found


def read_settings(file: Path) -> dict[str, Any] | None:
    """Return what a file has, by its ending (JSON with or without comments, TOML, YAML); None if it is not there.

    Raises UnreadableFile.
    """
    try:
        if not file.exists():
            return None
        if not file.is_file():  # reading a pipe would block
            raise UnreadableFile("it is no file")
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        raise UnreadableFile(f"it cannot be read: {exc.strerror}") from None
    except ValueError:  # a NUL in the path
        return None
    if len(raw) > MAX_BYTES:
        raise UnreadableFile(f"it has more than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw[: exc.start].count(b"\n") + 1
        raise UnreadableFile(f"line {line}: it is not text in UTF-8") from None
    return parse_settings(text, file.suffix.lower())


def parse_settings(text: str, ending: str) -> dict[str, Any]:
    """Return the object of a text, read by the ending of its file; empty for an empty text. Raises UnreadableFile."""
    if not text.strip():
        return {}
    parse = {".toml": _parse_toml, ".yaml": _parse_yaml, ".yml": _parse_yaml}.get(ending, _parse_json)
    try:
        root = parse(text)
    except RecursionError:
        raise UnreadableFile("it nests too deep") from None
    if _count_values(root) > MAX_VALUES:
        raise UnreadableFile(f"it has more than {MAX_VALUES} values, those that aliases repeat included")
    if root is None:  # YAML that has only comments
        return {}
    if not isinstance(root, dict):
        raise UnreadableFile("it is no object with names and values")
    return cast("dict[str, Any]", root)


def _parse_toml(text: str) -> object:
    """Return the table of a text of TOML. Raises UnreadableFile."""
    try:
        return tomllib.loads(text)
    except ValueError as exc:
        raise UnreadableFile(f"it is not TOML: {exc}") from None


def _parse_json(text: str) -> object:
    """Return the value of JSON, also with comments and trailing commas, and of a short text of JSON5.

    Raises UnreadableFile.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        first = f"line {exc.lineno}, column {exc.colno}: it is not JSON: {exc.msg}"
    except ValueError as exc:  # a number of too many digits
        raise UnreadableFile(f"it is not JSON: {exc}") from None
    with suppress(ValueError):
        return json.loads(_DANGLING.sub(_blank_unless_text, _COMMENTS.sub(_blank_unless_text, text)))
    if len(text) > MAX_SLOW_BYTES:
        raise UnreadableFile(f"{first}; with more than comments, it may have {MAX_SLOW_BYTES // 1024} KiB at most")
    import json5  # imported late: few files have comments

    try:
        return cast("Callable[[str], object]", json5.loads)(text)
    except ValueError:
        raise UnreadableFile(first) from None


_TEXT: Final = r'("(?:[^"\\]|\\.)*")'
_COMMENTS: Final = re.compile(_TEXT + r"|//[^\n\r]*|/\*[\s\S]*?(?:\*/|\Z)")
_DANGLING: Final = re.compile(_TEXT + r"|,(?=\s*+[}\]])")
"""Comments, and commas too many. Texts match as well, so that nothing within a text is taken for one of these."""


def _blank_unless_text(found: re.Match[str]) -> str:
    """Return a matched text as it is, and a blank for a comment or a comma."""
    return found[1] or " "


def _count_values(root: object) -> int:
    """Return how many values there are in a parsed file; beyond MAX_VALUES the count stops."""
    unvisited, count = [root], 0
    while unvisited and count <= MAX_VALUES:
        value = unvisited.pop()
        count += 1
        if isinstance(value, dict):
            unvisited += cast("dict[object, object]", value).values()
        elif isinstance(value, list):
            unvisited += cast("list[object]", value)
    return count


def _parse_yaml(text: str) -> object:
    """Return the value of a text of YAML; None if it has only comments. Raises UnreadableFile."""
    if len(text) > MAX_YAML_BYTES:
        raise UnreadableFile(f"it has more than {MAX_YAML_BYTES // 1024} KiB")
    import yaml  # imported late: only one host has it

    try:
        return cast("object", yaml.safe_load(text))
    except yaml.MarkedYAMLError as exc:
        line = f"line {exc.problem_mark.line + 1}: " if exc.problem_mark is not None else ""
        raise UnreadableFile(f"{line}it is not YAML: {exc.problem}") from None
    except (yaml.YAMLError, ValueError) as exc:  # ValueError: a date that is none
        raise UnreadableFile(f"it is not YAML: {' '.join(str(exc).split())}") from None


def _find_servers(place: ServerTable, root: Mapping[str, Any]) -> Iterator[FoundServer | Trouble]:
    """Yield the servers of a table in a parsed file, and a Trouble for what is no server or no table."""
    table, where = _follow_path(root, place.section)
    if table is None:
        return
    if not isinstance(table, dict):
        yield Trouble(place=place, why=f"`{where}` is no table of servers")
        return
    inputs = dict(_list_inputs(_follow_path(root, place.inputs)[0]))
    off = read_switched_off_names(place)
    for name, entry in cast("dict[object, object]", table).items():
        if isinstance(entry, dict):
            is_off = str(name) in off
            yield FoundServer(place=place, name=str(name), entry=cast("Entry", entry), inputs=inputs, is_off=is_off)
        else:
            yield Trouble(place=place, why=f"`{where}.{str(name)[:MAX_NAME]}` is no server")


def read_switched_off_names(place: ServerTable) -> list[str]:
    """Return the names of servers that a list of the host switches off; empty for a list that cannot be read."""
    if place.off_list is None:
        return []
    with suppress(UnreadableFile):
        listed = _follow_path(read_settings(place.off_list.file) or {}, place.off_list.path)[0]
        names = cast("list[object]", listed) if isinstance(listed, list) else []
        return [each for each in names if isinstance(each, str)]
    return []


def _find_project_servers(place: ServerTable, root: Mapping[str, Any]) -> Iterator[FoundServer | Trouble]:
    """Yield the servers that Claude Code has for single folders."""
    found = root.get("projects")
    projects = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    for folder, project in projects.items():
        if isinstance(project, dict):
            of_folder = replace(
                place,
                title=f"{place.title} ({folder})",
                folder=Path(folder),
                off_list=OffList(file=place.file, path=("projects", folder, "disabledMcpServers")),
            )
            yield from _find_servers(of_folder, cast("dict[str, Any]", project))


def _follow_path(root: Mapping[str, Any], path: tuple[str, ...]) -> tuple[object, str]:
    """Return the value at a path, and the path as text; None as the value if there is none.

    If a value on the way is no table, that value is returned, with the part of the path that leads to it.
    """
    found: object = root
    for number, name in enumerate(path):
        if not isinstance(found, dict):
            return found, ".".join(path[:number])
        found = cast("dict[str, object]", found).get(name)
        if found is None:
            return None, ".".join(path)
    return found, ".".join(path)


def _list_inputs(listed: object) -> Iterator[tuple[str, Entry]]:
    """Yield what a host asks people for, each with its id."""
    for each in cast("list[object]", listed) if isinstance(listed, list) else []:
        about = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        if isinstance(name := about.get("id"), str):
            yield name, about
