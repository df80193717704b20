"""Changes entries of a host's file of settings, and nothing else in it.

Each change is made to the text, which is then parsed: unless it has the same values as before, but for the changed
entries, the change is refused. YAML cannot be read here, so only the plainest form of it is changed.
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

Changes = Mapping[tuple[str, ...], Mapping[str, Any]]
"""Members that are set, or taken out where they are None, by the path of the table that has them.

In TOML and YAML a path is that of a section, whose members are entries, or of an entry, whose members are plain.
"""


class UnchangeableHostFile(Exception):
    """The file cannot be changed; the message says why."""


def render_snippet(kind: str, section: str, name: str, entry: Entry) -> str:
    """Return, for people, the text that a file with this ending (`kind`) has for an entry."""
    return _CHANGES[kind]("", {(section,): {name: entry}})


def preview_changes(file: Path, changes: Changes) -> str:
    """Return the text of a file with changes, without writing it. Raises UnchangeableHostFile, OSError."""
    return _CHANGES[file.suffix](_read_text(file.resolve()) or "", changes)


def change_file(file: Path, changes: Changes, *, private: bool = False) -> tuple[bool, Path | None]:
    """Make changes in a file, which is made if there is none.

    Return whether the file changed, and the path of the backup, None without one. With `private`, only its owner can
    read the file then.
    Raises UnchangeableHostFile, OSError.
    """
    file = file.resolve()  # a link stays a link: what it leads to is replaced
    before = _read_text(file)
    after = _CHANGES[file.suffix](before or "", changes)
    if after == (before or ""):
        if private and before is not None:
            file.chmod(file_replacement.OWNER_ONLY)
        return False, None
    return True, file_replacement.replace_file(file, after, private=private)


def is_readable_by_others(file: Path) -> bool:
    """Return whether others than its owner may read a file; False for one that is not there."""
    try:
        return bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def _read_text(file: Path) -> str | None:
    """Return the text of a file; None if there is no file. Raises UnchangeableHostFile, OSError."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise UnchangeableHostFile("it is too large")
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UnchangeableHostFile("it is not UTF-8") from None


def _apply_members(root: Mapping[str, Any], path: tuple[str, ...], members: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a table with members set, or removed where they are None, in its table at a path.

    Raises UnchangeableHostFile.
    """
    if not path:
        unchanged = {name: value for name, value in root.items() if name not in members}
        return unchanged | {name: value for name, value in members.items() if value is not None}
    table: object = root.get(path[0], {})
    if not isinstance(table, dict):
        raise UnchangeableHostFile(f"`{path[0]}` is no table")
    changed = _apply_members(cast("dict[str, Any]", table), path[1:], members)
    return root if changed == table else {**root, path[0]: changed}


def _check_outcome(after: Mapping[str, Any], expected: Mapping[str, Any], changes: Changes) -> None:
    """Raise UnchangeableHostFile unless a changed file parses to what is expected."""
    if after != expected:
        sections = ", ".join(dict.fromkeys(f"`{path[0]}`" for path in changes if path))
        raise UnchangeableHostFile(f"{sections or 'it'} is written in a way that cannot be changed here")


# JSON


def _change_json(text: str, changes: Changes) -> str:
    """Return a text of JSON with the changes made. Raises UnchangeableHostFile."""
    before = _parse_json(text)
    after, expected = text if text.strip() else "{}\n", before
    for path, members in changes.items():
        changed = _apply_members(expected, path, members)
        if changed == expected:
            continue
        try:
            after = jsonc.change_members(after, path, members)
        except jsonc.Unclear as error:
            raise UnchangeableHostFile(str(error)) from None
        expected = changed
    if expected == before:
        return text
    _check_outcome(_parse_json(after), expected, changes)
    return after


def _parse_json(text: str) -> dict[str, Any]:
    """Return the object of a text of JSON. Raises UnchangeableHostFile."""
    try:
        return parse_settings(text, ".json")
    except UnreadableFile as error:
        raise UnchangeableHostFile(str(error)) from None


# TOML


def _change_toml(text: str, changes: Changes) -> str:
    """Return a text of TOML with the changes made. Raises UnchangeableHostFile."""
    before = _parse_toml(text)
    after, expected = text, before
    for path, members in changes.items():
        changed = _apply_members(expected, path, members)
        if changed == expected:
            continue
        after = _set_tables(after, *path, members) if len(path) == 1 else _set_scalars(after, path, members)
        expected = changed
    if expected == before:
        return text
    # A section without tables is not in the text, but is an empty table in `expected`.
    sections = {path[0]: dict[str, Any]() for path in changes}
    parsed_after = _parse_toml(after, "its tables are written in a way that cannot be changed here")
    _check_outcome({**sections, **parsed_after}, {**sections, **expected}, changes)
    return after


def _set_tables(text: str, section: str, entries: Entries) -> str:
    """Return the text with the tables of entries at its end; those of an entry that is None are taken out."""
    for name, entry in entries.items():
        text = _remove_tables(text, section, name).rstrip() + "\n"
        if entry is not None:
            text = f"{text}\n{_render_table(f'{section}.{_quote_key(name)}', entry)}".lstrip("\n")
    return text


def _set_scalars(text: str, path: tuple[str, ...], members: Mapping[str, Any]) -> str:
    """Return the text with plain members of a table set, in their lines or below its header.

    Raises UnchangeableHostFile if the table has no header of its own.
    """
    section, name = path
    header = re.compile(rf"\s*\[\s*{section}\s*\.\s*{_make_key_pattern(name)}\s*\]")
    lines = text.splitlines()
    begin = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if begin is None:
        raise UnchangeableHostFile(f"`{section}.{name}` is written in a way that cannot be changed here")
    for key, value in members.items():
        end = next((at for at in range(begin + 1, len(lines)) if lines[at].lstrip().startswith("[")), len(lines))
        old = [at for at in range(begin + 1, end) if re.match(rf"\s*{key}\s*=", lines[at])]
        # In place of its line, or as a new line below the header.
        lines[old[0] if old else begin + 1 : old[0] + 1 if old else begin + 1] = [f"{key} = {_render_scalar(value)}"]
    return "\n".join(lines) + "\n"


def _parse_toml(text: str, why: str = "it is not TOML") -> dict[str, Any]:
    """Return the table of a text of TOML. Raises UnchangeableHostFile, whose message begins with `why`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnchangeableHostFile(f"{why}: {error}") from None


def _remove_tables(text: str, section: str, name: str) -> str:
    """Return the text without the tables of an entry and those within them, each up to the next header."""
    header_pattern = re.compile(rf"\s*\[\s*{section}\s*\.\s*{_make_key_pattern(name)}\s*[.\]]")
    remaining_lines: list[str] = []
    is_in_entry = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            is_in_entry = header_pattern.match(line) is not None
        if not is_in_entry:
            remaining_lines.append(line)
    return "".join(remaining_lines)


def _make_key_pattern(name: str) -> str:
    """Return a pattern that matches a key of TOML, bare or quoted."""
    plain = re.escape(name)
    return rf"(?:{plain}|\"{plain}\"|'{plain}')"


def _render_table(path: str, entry: Entry) -> str:
    """Return an entry as a TOML table, with the tables in it below."""
    nested = {key: cast("Entry", value) for key, value in entry.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in entry.items() if key not in nested}
    lines = [f"[{path}]\n", *(f"{_quote_key(key)} = {_render_scalar(value)}\n" for key, value in plain.items())]
    return "".join(lines) + "".join(f"\n{_render_table(f'{path}.{_quote_key(key)}', nested[key])}" for key in nested)


def _quote_key(key: str) -> str:
    """Return a key as TOML writes it: bare where that is allowed, else quoted."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _render_scalar(key)


def _render_scalar(value: object) -> str:
    """Return a string, number, boolean or list of these: the same in TOML, YAML and JSON."""
    return json.dumps(value, ensure_ascii=False)


# YAML

_KEY = re.compile(r"([A-Za-z0-9_.-]+|\"[^\"\\]*\"|'[^']*'):(\s|$)")


def _change_yaml(text: str, changes: Changes) -> str:
    """Return a text of YAML with the changes made. Raises UnchangeableHostFile."""
    for path, members in changes.items():
        for name, value in members.items():
            text = (
                _change_yaml_entry(text, path[0], name, value)
                if len(path) == 1
                else _set_yaml_scalar(text, path, name, value)
            )
    return text


def _set_yaml_scalar(text: str, path: tuple[str, ...], key: str, value: object) -> str:
    """Return the text with a plain member of an entry set, in its line or as the first of the entry.

    Raises UnchangeableHostFile.
    """
    section, name = path
    lines = text.splitlines()
    begin = _find_section(lines, section)
    end = _find_section_end(lines, begin) if begin is not None else 0
    content_lines = [number for number in range((begin or 0) + 1, end) if _has_content(lines[number])]
    depth = _count_indent(lines[content_lines[0]]) if content_lines else 0
    first, after = _find_yaml_entry(lines, content_lines, name, depth) or (0, 0)
    own_lines = [number for number in content_lines if first < number < after]
    if not own_lines:
        raise UnchangeableHostFile(f"`{section}.{name}` is written in a way that cannot be changed here")
    deeper = _count_indent(lines[own_lines[0]])
    old = [at for at in own_lines if _count_indent(lines[at]) == deeper and lines[at].strip().startswith(f"{key}:")]
    at = old[0] if old else own_lines[0]
    lines[at : at + bool(old)] = [f"{' ' * deeper}{key}: {_render_scalar(value)}"]
    return "\n".join(lines) + "\n"


def _change_yaml_entry(text: str, section: str, name: str, entry: Entry | None) -> str:
    """Return the text with one entry of the section set, or taken out if it is None; all else stays, line by line.

    Raises UnchangeableHostFile.
    """
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
    """Return the number of the line where the section begins; None if there is no such section.

    Raises UnchangeableHostFile unless the file and the section are plain block mappings.
    """
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
    """Return whether a line of YAML is neither blank nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _count_indent(line: str) -> int:
    """Return how many spaces a line begins with."""
    return len(line) - len(line.lstrip(" "))


def _render_block(name: str, entry: Entry, depth: int) -> list[str]:
    """Return an entry as lines of YAML, indented by `depth` spaces, and by as many more at each level in it."""
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


_CHANGES: Mapping[str, Callable[[str, Changes], str]] = {
    ".json": _change_json,
    ".jsonc": _change_json,
    ".toml": _change_toml,
    ".yaml": _change_yaml,
}
