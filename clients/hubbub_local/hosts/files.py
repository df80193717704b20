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
from hubbub_local.hosts.servers import UnreadableFile, parse_settings

MAX_BYTES = 64 * 1024 * 1024
"""The largest file that is changed."""

Entry = Mapping[str, Any]
Entries = Mapping[str, Entry | None]
"""Entries of a section by name; None for one that is taken out."""


class UnchangeableHostFile(Exception):
    """The file cannot be changed; the message says why."""


def render_snippet(kind: str, section: str, name: str, entry: Entry) -> str:
    """Return what a file of a kind (its ending) has for an entry, as text for people."""
    return _CHANGES[kind]("", section, {name: entry})


def preview_change(file: Path, section: str, entries: Entries) -> str:
    """Return what a file would be with entries changed. Raises UnchangeableHostFile, OSError."""
    return _CHANGES[file.suffix](_read_text(file.resolve()) or "", section, entries)


def change_entries(file: Path, section: str, entries: Entries, *, private: bool = False) -> tuple[bool, Path | None]:
    """Set or take out entries of a file, which is made if there is none.

    Return whether it is changed, and where the old file is now. With `private`, nobody but its owner can read it then.
    Raises UnchangeableHostFile, OSError.
    """
    return _change_text(file, lambda text, ending: _CHANGES[ending](text, section, entries), private=private)


def preview_members(file: Path, section: str, members: Mapping[str, Any]) -> str:
    """Return what a file of JSON would be with members changed, whatever they are. Raises as `preview_change`."""
    return _change_json(_read_text(file.resolve()) or "", section, members)


def change_members(file: Path, section: str, members: Mapping[str, Any]) -> tuple[bool, Path | None]:
    """Do the same as `change_entries` in a file of JSON, with members that may be of any type."""
    return _change_text(file, lambda text, _ending: _change_json(text, section, members), private=False)


def _change_text(file: Path, change: Callable[[str, str], str], *, private: bool) -> tuple[bool, Path | None]:
    file = file.resolve()  # a link stays one
    before = _read_text(file)
    after = change(before or "", file.suffix)
    if after == (before or ""):
        if private and before is not None:
            file.chmod(file_replacement.OWNER_ONLY)
        return False, None
    return True, file_replacement.replace_file(file, after, private=private)


def is_readable_by_others(file: Path) -> bool:
    """Return whether others than its owner may read a file."""
    try:
        return bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def _read_text(file: Path) -> str | None:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise UnchangeableHostFile("it is too large")
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UnchangeableHostFile("it is not UTF-8") from None


def _change_section(section_value: object, section: str, entries: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a section with entries changed; None if they are as they are to be. Raises UnchangeableHostFile."""
    if not isinstance(section_value, dict):
        raise UnchangeableHostFile(f"`{section}` is no table of servers")
    servers = cast("dict[str, Any]", section_value)
    if all(servers.get(name) == entry for name, entry in entries.items()):
        return None
    others = {name: entry for name, entry in servers.items() if name not in entries}
    return others | {name: entry for name, entry in entries.items() if entry is not None}


# JSON


def _change_json(text: str, section: str, entries: Mapping[str, Any]) -> str:
    before = _parse_json(text)
    expected_section = _change_section(before.get(section, {}), section, entries)
    if expected_section is None:
        return text
    try:
        after = jsonc.change_members(text if text.strip() else "{}\n", section, entries)
    except jsonc.Unclear as error:
        raise UnchangeableHostFile(str(error)) from None
    if _parse_json(after) != {**before, section: expected_section}:
        raise UnchangeableHostFile(f"`{section}` is written in a way that cannot be changed here")
    return after


def _parse_json(text: str) -> dict[str, Any]:
    try:
        return parse_settings(text, ".json")
    except UnreadableFile as error:
        raise UnchangeableHostFile(str(error)) from None


# TOML


def _change_toml(text: str, section: str, entries: Entries) -> str:
    before = _parse_toml(text)
    expected_section = _change_section(before.get(section, {}), section, entries)
    if expected_section is None:
        return text
    after = text
    for name, entry in entries.items():
        after = _remove_tables(after, section, name).rstrip() + "\n"
        if entry is not None:
            after = f"{after}\n{_render_table(f'{section}.{_quote_key(name)}', entry)}".lstrip("\n")
    parsed_after = _parse_toml(after, f"`{section}` is written in a way that cannot be changed here")
    if {section: {}, **parsed_after} != {
        **before,
        section: expected_section,
    }:  # the last table of a section takes the section with it
        raise UnchangeableHostFile(f"`{section}` is written in a way that cannot be changed here")
    return after


def _parse_toml(text: str, why: str = "it is not TOML") -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnchangeableHostFile(f"{why}: {error}") from None


def _remove_tables(text: str, section: str, name: str) -> str:
    """Return the text without the tables of an entry and those within them, each up to the next header."""
    plain = re.escape(name)
    header_pattern = re.compile(rf"\s*\[\s*{section}\s*\.\s*(?:{plain}|\"{plain}\"|'{plain}')\s*[.\]]")
    kept_lines: list[str] = []
    skipping = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            skipping = header_pattern.match(line) is not None
        if not skipping:
            kept_lines.append(line)
    return "".join(kept_lines)


def _render_table(path: str, entry: Entry) -> str:
    nested = {key: cast("Entry", value) for key, value in entry.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in entry.items() if key not in nested}
    lines = [f"[{path}]\n", *(f"{_quote_key(key)} = {_render_scalar(value)}\n" for key, value in plain.items())]
    return "".join(lines) + "".join(f"\n{_render_table(f'{path}.{_quote_key(key)}', nested[key])}" for key in nested)


def _quote_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _render_scalar(key)


def _render_scalar(value: object) -> str:
    """Return a string, number, boolean or list of these: the same in TOML, YAML and JSON."""
    return json.dumps(value, ensure_ascii=False)


# YAML

_KEY = re.compile(r"([A-Za-z0-9_.-]+|\"[^\"\\]*\"|'[^']*'):(\s|$)")


def _change_yaml(text: str, section: str, entries: Entries) -> str:
    for name, entry in entries.items():
        text = _change_yaml_entry(text, section, name, entry)
    return text


def _change_yaml_entry(text: str, section: str, name: str, entry: Entry | None) -> str:
    """Return the text with one entry of the section set or taken out; all else stays, line by line."""
    lines = text.splitlines()
    begin = _find_section(lines, section)
    if begin is None:
        new_section = [f"{section}:", *_render_block(name, entry, 2)] if entry is not None else []
        return "\n".join([*lines, *new_section]) + "\n"
    end = _find_section_end(lines, begin)
    content_lines = [number for number in range(begin + 1, end) if _has_content(lines[number])]
    depth = _count_indent(lines[content_lines[0]]) if content_lines else 2
    is_shallower = any(_count_indent(lines[number]) < depth for number in content_lines)
    if is_shallower or (content_lines and not _KEY.match(lines[content_lines[0]].strip())):
        raise UnchangeableHostFile(f"`{section}` is written in a way that cannot be changed here")
    first, after = _find_yaml_entry(lines, content_lines, name, depth) or (begin + 1, begin + 1)
    new_lines = [] if entry is None else _render_block(name, entry, depth)
    is_not_empty = entry is not None or any(not first <= number < after for number in content_lines)
    lines[begin] = f"{section}:" if is_not_empty else f"{section}: {{}}"
    return "\n".join([*lines[:first], *new_lines, *lines[after:]]) + "\n"


def _find_yaml_entry(lines: list[str], content_lines: list[int], name: str, depth: int) -> tuple[int, int] | None:
    """Return the first line of an entry and the line after its last one; None if there is no such entry."""
    names = (name, f'"{name}"', f"'{name}'")
    first: int | None = None
    after = 0
    for number in content_lines:
        indent = _count_indent(lines[number])
        if first is None:
            if indent == depth and lines[number].strip().partition(":")[0] in names:
                first, after = number, number + 1
        elif indent > depth:
            after = number + 1
        else:
            break
    return None if first is None else (first, after)


def _find_section(lines: list[str], section: str) -> int | None:
    """Return the line where the section begins. Raises UnchangeableHostFile unless it is a plain block mapping."""
    found: int | None = None
    for number, line in enumerate(lines):
        if not _has_content(line) or line.startswith(" ") or (number == 0 and line.strip() == "---"):
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


def _find_section_end(lines: list[str], begin: int) -> int:
    """Return the line after a section: the next one that is not indented."""
    for number in range(begin + 1, len(lines)):
        if _has_content(lines[number]) and _count_indent(lines[number]) == 0:
            return number
    return len(lines)


def _has_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _count_indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _render_block(name: str, entry: Entry, depth: int) -> list[str]:
    space, deeper = " " * depth, " " * 2 * depth
    lines = [f"{space}{name}:"]
    for key, value in entry.items():
        if isinstance(value, Mapping) and value:
            nested = cast("Mapping[str, Any]", value)
            lines.append(f"{deeper}{key}:")
            lines += [f"{deeper}{space}{_render_scalar(each)}: {_render_scalar(nested[each])}" for each in nested]
        else:
            lines.append(f"{deeper}{key}: {_render_scalar(cast('object', value))}")
    return lines


_CHANGES: Mapping[str, Callable[[str, str, Entries], str]] = {
    ".json": _change_json,
    ".jsonc": _change_json,
    ".toml": _change_toml,
    ".yaml": _change_yaml,
}
