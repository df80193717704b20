"""Changes members of an object in a text of JSON, which may have comments and a comma too many; all else stays.

This finds places in the text and does not judge it: a caller reads what came of a change, and compares.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_TOKEN: Final = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<mark>[{}\[\],:])|(?P<plain>[^\s{}\[\],:"/]+)',
    re.DOTALL,
)
INDENT: Final = "  "
"""What a level is indented by, in a file that does not show it."""

Entry = Mapping[str, Any]


class Unclear(Exception):
    """The text has another form than an object with members; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A member: where its name begins, where its value is, and where it ends."""

    name: str
    begin: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class _Object:
    """An object: where it begins, the end of its last token or comment (`last`), and where its closing brace is."""

    begin: int
    members: Sequence[_Member]
    last: int
    close: int
    comma: int | None
    """Where a comma stands after the last member; None if there is none."""

    def find_member(self, name: str) -> _Member | None:
        """Return the member with a name; None if there is none. Raises Unclear if there are two."""
        found = [each for each in self.members if each.name == name]
        if len(found) > 1:
            raise Unclear(f"`{name}` is in it twice")
        return found[0] if found else None


def change_members(text: str, path: Sequence[str], members: Mapping[str, Any]) -> str:
    """Return a text with members of the object at a path set, or taken out where they are None. Raises Unclear."""
    unit = _find_indent(text)
    for name, value in members.items():
        table, depth = _read_object(text, 0), 1
        for part in path:
            inside = table.find_member(part)
            if inside is None:
                if value is not None:
                    nested = _nest_members(path[depth:], {name: value})
                    text = _set_member(text, table, part, nested, unit, depth)
                break
            table, depth = _read_object(text, inside.value), depth + 1
        else:
            text = (
                _remove_member(text, table, name)
                if value is None
                else _set_member(text, table, name, value, unit, depth)
            )
    return text


def _nest_members(path: Sequence[str], members: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object that has members at a path, and nothing else."""
    for part in reversed(path):
        members = {part: members}
    return members


def _set_member(text: str, table: _Object, name: str, value: Any, unit: str, depth: int) -> str:
    """Return the text with a member of an object set, at its end if it is new.

    A member stands `depth` times the indentation `unit` to the right.
    """
    rendered = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", "\n" + unit * depth)
    if (old := table.find_member(name)) is not None:
        return text[: old.value] + rendered + text[old.end :]
    line = f"\n{unit * depth}{json.dumps(name)}: {rendered}"
    before, gap = text[: table.last], text[table.last : table.close]
    if table.members and table.comma is None:
        end = table.members[-1].end
        before = f"{text[:end]},{text[end : table.last]}"
    closing = gap if "\n" in gap else f"\n{unit * (depth - 1)}"
    return f"{before}{line}{closing}{text[table.close :]}"


def _remove_member(text: str, table: _Object, name: str) -> str:
    """Return the text without a member, and without the comma that belonged to it."""
    old = table.find_member(name)
    if old is None:
        return text
    number = table.members.index(old)
    if number + 1 < len(table.members):
        return text[: old.begin] + text[table.members[number + 1].begin :]
    if number:
        end = table.members[number - 1].end
        return text[:end] + text[old.end if table.comma is None else table.comma :]
    end = old.end if table.comma is None else table.comma + 1
    return text[: table.begin + 1] + text[end:]


def _read_object(text: str, at: int) -> _Object:
    """Return the object that begins at an index of a text, after comments. Raises Unclear."""
    depth, last, begin = 0, at, at
    members: list[_Member] = []
    name: tuple[str, int] | None = None
    value: int | None = None
    end, comma = at, None
    for token in _TOKEN.finditer(text, at):
        kind, word = token.lastgroup, token[0]
        if kind == "comment":
            last = token.end()
            continue
        if depth == 0:
            if word != "{":
                break
            depth, begin, last = 1, token.start(), token.end()
            continue
        if depth == 1 and word in (",", "}"):
            if name is not None and value is not None:
                members.append(_Member(name[0], name[1], value, end))
                name, value, comma = None, None, None
            if word == "}":
                return _Object(begin, members, last, token.start(), comma)
            comma = token.start()
        elif depth == 1 and name is None:
            name = (_read_name(word), token.start())
        elif depth == 1 and value is None and word != ":":
            value = token.start()
        depth += (word in ("{", "[")) - (word in ("}", "]"))
        last = end = token.end()
    raise Unclear("it is no JSON object")


def _read_name(word: str) -> str:
    """Return the name of a member without its quotes."""
    try:
        name: object = json.loads(word)
    except ValueError:
        return word
    return name if isinstance(name, str) else word


def _find_indent(text: str) -> str:
    """Return what a level of a text is indented by."""
    found = re.search(r"\{\s*?\n([ \t]+)\S", text)
    return found[1] if found else INDENT
