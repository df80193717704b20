"""Changes one entry of a host's file of settings, and nothing else in it.

Each change is made to the text, and then read: unless it says what it did before, with the new entry, it is refused.
YAML cannot be read here, so only the plainest form of it is changed.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from hubbub_local import saving

MAX_BYTES = 64 * 1024 * 1024
"""The largest file that is changed."""

Entry = Mapping[str, Any]


class Unchangeable(Exception):
    """The file cannot be changed; the message says why."""


def snippet(kind: str, section: str, name: str, entry: Entry) -> str:
    """Return what a file of a kind (its ending) has for an entry, as text for people."""
    return _CHANGES[kind]("", section, name, entry)


def preview(file: Path, section: str, name: str, entry: Entry) -> str:
    """Return what a file would be with an entry set. Raises Unchangeable, OSError."""
    return _CHANGES[file.suffix](_content(file.resolve()) or "", section, name, entry)


def change(file: Path, section: str, name: str, entry: Entry) -> tuple[bool, Path | None]:
    """Set an entry of a file, which is made if there is none. Return whether it is new, and where the old file is now.

    Raises Unchangeable, OSError.
    """
    file = file.resolve()  # a link stays one
    before = _content(file)
    after = _CHANGES[file.suffix](before or "", section, name, entry)
    if after == before:
        return False, None
    return True, saving.put(file, after)


def _content(file: Path) -> str | None:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise Unchangeable("it is too large")
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise Unchangeable("it is not UTF-8") from None


# JSON


def _json(text: str, section: str, name: str, entry: Entry) -> str:
    settings = _parsed(text) if text.strip() else {}
    found = settings.setdefault(section, {})
    if not isinstance(found, dict):
        raise Unchangeable(f"`{section}` is no object")
    servers = cast("dict[str, Any]", found)
    if servers.get(name) == entry:
        return text
    servers[name] = dict(entry)
    indent = re.search(r"\{\s*?\n([ \t]+)\S", text)
    # Programs that cut texts leave halves of characters, which only escapes can express.
    halves = re.search(r"\\u[dD][89a-fA-F]", text) is not None
    try:
        return json.dumps(settings, indent=indent[1] if indent else 2, ensure_ascii=halves, allow_nan=False) + "\n"
    except ValueError:
        raise Unchangeable("it has a number that cannot be kept as it is") from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        found: object = json.loads(text, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise Unchangeable(f"it is not JSON (with comments, it is not either): {error}") from None
    if not isinstance(found, dict):
        raise Unchangeable("it is no JSON object")
    return cast("dict[str, Any]", found)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name is in an object twice")
    return found


# TOML


def _toml(text: str, section: str, name: str, entry: Entry) -> str:
    before = _loaded(text)
    found = before.get(section, {})
    if not isinstance(found, dict):
        raise Unchangeable(f"`{section}` is no table")
    servers = cast("dict[str, Any]", found)
    if servers.get(name) == entry:
        return text
    kept = _without_tables(text, section, name).rstrip()
    after = f"{kept}\n\n{_table(f'{section}.{name}', entry)}".lstrip("\n")
    wanted = {**before, section: {**servers, name: dict(entry)}}
    if _loaded(after, f"`{section}` is written in a way that cannot be changed here") != wanted:
        raise Unchangeable(f"`{section}` is written in a way that cannot be changed here")
    return after


def _loaded(text: str, why: str = "it is not TOML") -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unchangeable(f"{why}: {error}") from None


def _without_tables(text: str, section: str, name: str) -> str:
    own = re.compile(rf"\s*\[\s*{section}\s*\.\s*(?:{name}|\"{name}\"|'{name}')\s*[.\]]")
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


def _yaml(text: str, section: str, name: str, entry: Entry) -> str:
    lines = text.splitlines()
    begin = _section(lines, section)
    if begin is None:
        end = [f"{section}:", *_block(name, entry, 2)]
        return "\n".join([*lines, *end]) + "\n"
    lines[begin] = f"{section}:"
    inside = [number for number in range(begin + 1, _end(lines, begin)) if _says(lines[number])]
    depth = _depth(lines[inside[0]]) if inside else 2
    if any(_depth(lines[number]) < depth for number in inside) or (inside and not _KEY.match(lines[inside[0]].strip())):
        raise Unchangeable(f"`{section}` is written in a way that cannot be changed here")
    names = (name, f'"{name}"', f"'{name}'")
    old = next((n for n in inside if _depth(lines[n]) == depth and lines[n].strip().partition(":")[0] in names), None)
    if old is None:
        first, last = begin + 1, begin + 1
    else:
        first = old
        last = 1 + max(n for n in inside if n == old or all(_depth(lines[m]) > depth for m in inside if old < m <= n))
    return "\n".join([*lines[:first], *_block(name, entry, depth), *lines[last:]]) + "\n"


def _section(lines: list[str], section: str) -> int | None:
    """Return the line where the section begins. Raises Unchangeable unless the file is a plain block mapping."""
    found: int | None = None
    for number, line in enumerate(lines):
        if not _says(line) or line.startswith(" ") or (number == 0 and line.strip() == "---"):
            continue
        key = _KEY.match(line)
        if key is None or "\t" in line:
            raise Unchangeable("it is YAML of a form that cannot be changed here")
        if key[1].strip("\"'") == section:
            rest = line[key.end(1) + 1 :].partition(" #")[0].strip()
            if found is not None or rest not in ("", "{}", "null", "~"):
                raise Unchangeable(f"`{section}` is written in a way that cannot be changed here")
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


_CHANGES: Mapping[str, Callable[[str, str, str, Entry], str]] = {".json": _json, ".toml": _toml, ".yaml": _yaml}
