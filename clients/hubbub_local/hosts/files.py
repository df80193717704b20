"""Changes entries of a host's file of settings, and nothing else in it.

Each change is made to the text, and then read: unless it says what it did before, with the changed entries, it is
refused. YAML cannot be read here, so only the plainest form of it is changed.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from hubbub_local import file_replacement
from hubbub_local.hosts import jsonc
from hubbub_local.hosts.servers import UnreadableFile, parsed

MAX_BYTES = 64 * 1024 * 1024
"""The largest file that is changed."""

Entry = Mapping[str, Any]
Entries = Mapping[str, Entry | None]
"""Entries of a section by name; None for one that is taken out."""


class UnchangeableHostFile(Exception):
    """The file cannot be changed; the message says why."""


def snippet(kind: str, section: str, name: str, entry: Entry) -> str:
    """Return what a file of a kind (its ending) has for an entry, as text for people."""
    return _CHANGES[kind]("", section, {name: entry})


def preview(file: Path, section: str, entries: Entries) -> str:
    """Return what a file would be with entries changed. Raises UnchangeableHostFile, OSError."""
    return _CHANGES[file.suffix](_content(file.resolve()) or "", section, entries)


def change(file: Path, section: str, entries: Entries, *, private: bool = False) -> tuple[bool, Path | None]:
    """Set or take out entries of a file, which is made if there is none.

    Return whether it is changed, and where the old file is now. With `private`, nobody but its owner can read it then.
    Raises UnchangeableHostFile, OSError.
    """
    file = file.resolve()  # a link stays one
    before = _content(file)
    after = _CHANGES[file.suffix](before or "", section, entries)
    if after == (before or ""):
        if private and before is not None:
            file.chmod(file_replacement.OWNER_ONLY)
        return False, None
    return True, file_replacement.put(file, after, private=private)


def is_open(file: Path) -> bool:
    """Return whether others than its owner may read a file."""
    try:
        return bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def _content(file: Path) -> str | None:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise UnchangeableHostFile("it is too large")
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UnchangeableHostFile("it is not UTF-8") from None


def _with(found: object, section: str, entries: Entries) -> Mapping[str, Any] | None:
    """Return a section with entries changed; None if they are as they are to be. Raises UnchangeableHostFile."""
    if not isinstance(found, dict):
        raise UnchangeableHostFile(f"`{section}` is no table of servers")
    servers = cast("dict[str, Any]", found)
    if all(servers.get(name) == entry for name, entry in entries.items()):
        return None
    kept = {name: entry for name, entry in servers.items() if name not in entries}
    return kept | {name: dict(entry) for name, entry in entries.items() if entry is not None}


# JSON


def _json(text: str, section: str, entries: Entries) -> str:
    before = _parsed(text)
    wanted = _with(before.get(section, {}), section, entries)
    if wanted is None:
        return text
    try:
        after = jsonc.changed(text if text.strip() else "{}\n", section, entries)
    except jsonc.Unclear as error:
        raise UnchangeableHostFile(str(error)) from None
    if _parsed(after) != {**before, section: wanted}:
        raise UnchangeableHostFile(f"`{section}` is written in a way that cannot be changed here")
    return after


def _parsed(text: str) -> dict[str, Any]:
    try:
        return parsed(text, ".json")
    except UnreadableFile as error:
        raise UnchangeableHostFile(str(error)) from None


# TOML


def _toml(text: str, section: str, entries: Entries) -> str:
    before = _loaded(text)
    wanted = _with(before.get(section, {}), section, entries)
    if wanted is None:
        return text
    after = text
    for name, entry in entries.items():
        after = _without_tables(after, section, name).rstrip() + "\n"
        if entry is not None:
            after = f"{after}\n{_table(f'{section}.{_quoted_key(name)}', entry)}".lstrip("\n")
    said = _loaded(after, f"`{section}` is written in a way that cannot be changed here")
    if {section: {}, **said} != {**before, section: wanted}:  # the last table of a section takes the section with it
        raise UnchangeableHostFile(f"`{section}` is written in a way that cannot be changed here")
    return after


def _loaded(text: str, why: str = "it is not TOML") -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnchangeableHostFile(f"{why}: {error}") from None


def _without_tables(text: str, section: str, name: str) -> str:
    plain = re.escape(name)
    own = re.compile(rf"\s*\[\s*{section}\s*\.\s*(?:{plain}|\"{plain}\"|'{plain}')\s*[.\]]")
    kept: list[str] = []
    skipping = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            skipping = own.match(line) is not None
        if not skipping:
            kept.append(line)
    return "".join(kept)


def _table(path: str, entry: Entry) -> str:
    nested = {key: cast("Entry", value) for key, value in entry.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in entry.items() if key not in nested}
    lines = [f"[{path}]\n", *(f"{_quoted_key(key)} = {_scalar(value)}\n" for key, value in plain.items())]
    return "".join(lines) + "".join(f"\n{_table(f'{path}.{_quoted_key(key)}', nested[key])}" for key in nested)


def _quoted_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _scalar(key)


def _scalar(value: object) -> str:
    """Return a string, number, boolean or list of these: the same in TOML, YAML and JSON."""
    return json.dumps(value, ensure_ascii=False)


# YAML

_KEY = re.compile(r"([A-Za-z0-9_.-]+|\"[^\"\\]*\"|'[^']*'):(\s|$)")


def _yaml(text: str, section: str, entries: Entries) -> str:
    for name, entry in entries.items():
        text = _yaml_one(text, section, name, entry)
    return text


def _yaml_one(text: str, section: str, name: str, entry: Entry | None) -> str:
    lines = text.splitlines()
    begin = _section(lines, section)
    if begin is None:
        end = [f"{section}:", *_block(name, entry, 2)] if entry is not None else []
        return "\n".join([*lines, *end]) + "\n"
    inside = [number for number in range(begin + 1, _end(lines, begin)) if _says(lines[number])]
    depth = _depth(lines[inside[0]]) if inside else 2
    if any(_depth(lines[number]) < depth for number in inside) or (inside and not _KEY.match(lines[inside[0]].strip())):
        raise UnchangeableHostFile(f"`{section}` is written in a way that cannot be changed here")
    names = (name, f'"{name}"', f"'{name}'")
    old = next((n for n in inside if _depth(lines[n]) == depth and lines[n].strip().partition(":")[0] in names), None)
    if old is None:
        first, last = begin + 1, begin + 1
    else:
        first = old
        last = 1 + max(n for n in inside if n == old or all(_depth(lines[m]) > depth for m in inside if old < m <= n))
    fresh = [] if entry is None else _block(name, entry, depth)
    stays = entry is not None or any(not first <= number < last for number in inside)
    lines[begin] = f"{section}:" if stays else f"{section}: {{}}"
    return "\n".join([*lines[:first], *fresh, *lines[last:]]) + "\n"


def _section(lines: list[str], section: str) -> int | None:
    """Return the line where the section begins. Raises UnchangeableHostFile unless it is a plain block mapping."""
    found: int | None = None
    for number, line in enumerate(lines):
        if not _says(line) or line.startswith(" ") or (number == 0 and line.strip() == "---"):
            continue
        key = _KEY.match(line)
        if key is None or "\t" in line:
            raise UnchangeableHostFile("it is YAML of a form that cannot be changed here")
        if key[1].strip("\"'") == section:
            rest = line[key.end(1) + 1 :].partition(" #")[0].strip()
            if found is not None or rest not in ("", "{}", "null", "~"):
                raise UnchangeableHostFile(f"`{section}` is written in a way that cannot be changed here")
            found = number
    return found


def _end(lines: list[str], begin: int) -> int:
    """Return the line after a section: the next one that is not indented."""
    after = (number for number in range(begin + 1, len(lines)) if _says(lines[number]) and _depth(lines[number]) == 0)
    return next(after, len(lines))


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _block(name: str, entry: Entry, depth: int) -> list[str]:
    space, deeper = " " * depth, " " * 2 * depth
    lines = [f"{space}{name}:"]
    for key, value in entry.items():
        if isinstance(value, Mapping) and value:
            nested = cast("Mapping[str, Any]", value)
            lines.append(f"{deeper}{key}:")
            lines += [f"{deeper}{space}{_scalar(each)}: {_scalar(nested[each])}" for each in nested]
        else:
            lines.append(f"{deeper}{key}: {_scalar(cast('object', value))}")
    return lines


_CHANGES: Mapping[str, Callable[[str, str, Entries], str]] = {
    ".json": _json,
    ".jsonc": _json,
    ".toml": _toml,
    ".yaml": _yaml,
}
