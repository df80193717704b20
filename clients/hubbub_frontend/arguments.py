"""Arguments as people type them: `key=value`, `a.b=1`, `list=1 list=2`, `key:=JSON` and `key=@FILE`.

A value is read as its schema says (MCP tools: inputSchema; client/elicitation: requestedSchema).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from hubbub_client.payload import as_object
from hubbub_frontend.forms import Field, fields, normalized_schema, parse_json, parse_value

AS_JSON, FROM_FILE, PART = ":=", "=@", "."
MAX_NAMED = 20
"""The most names that an error lists."""
MAX_QUOTED = 60
"""The most characters of a value that an error repeats: a file may be long."""

Read = Callable[[str], str]
"""Returns the text of a file. Raises ValueError with the reason."""


class Mistyped(ValueError):
    """An argument that cannot be read. The message says which, why, and what would do."""


@dataclass(frozen=True, slots=True)
class TypedArgument:
    """One argument as typed: its name, how it is given, and its text."""

    name: str
    how: str
    text: str


def split_argument(word: str) -> TypedArgument | None:
    """Split `key=value`; None if the word is not of that form."""
    before, equals, text = word.partition("=")
    if not equals or not before or before.lstrip().startswith(("{", "[", '"')):
        return None
    if before.endswith(":"):
        return TypedArgument(before[:-1], AS_JSON, text) if before[:-1] else None
    if text.startswith("@"):
        return TypedArgument(before, FROM_FILE, text[1:])
    return TypedArgument(before, "=", text)


def are_key_values(words: Sequence[str]) -> bool:
    """Return whether arguments are given as `key=value`, and not as one JSON object."""
    return bool(words) and (len(words) > 1 or split_argument(words[0]) is not None)


def parse_arguments(words: Sequence[str], schema: object, read: Read) -> dict[str, Any]:
    """Return the arguments that the words say. Raises Mistyped."""
    found: dict[str, Any] = {}
    lists: set[str] = set()
    for word in words:
        each = split_argument(word)
        if each is None:
            raise Mistyped(f"{word!r} is not KEY=VALUE; all arguments are, or one JSON object is")
        place, form, name = _resolve_target(found, each, schema)
        field = next((field for field in fields(form) if field.name == name), None)
        value = _read_value(each, field, read)
        if isinstance(value, list) and each.how != AS_JSON and each.name in lists:
            place[name] += value
        elif name in place:
            raise Mistyped(f"{each.name} is given twice; only a list may be")
        else:
            place[name] = value
            lists.add(each.name)
    return found


def missing_fields(given: Mapping[str, Any], schema: object) -> list[Field]:
    """Return the fields that are required and not given."""
    return [field for field in fields(schema) if field.required and field.name not in given]


def _resolve_target(found: dict[str, Any], each: TypedArgument, schema: object) -> tuple[dict[str, Any], object, str]:
    """Return the object that a name, with its dots, leads to, the schema of that object, and the name in it."""
    form: object = schema
    place = found
    *parents, last = each.name.split(PART)
    if not all((*parents, last)):
        raise Mistyped(f"{each.name!r} is no name of an argument")
    if parents and each.name in _properties(form):  # a name that has a dot in it
        parents, last = [], each.name
    for parent in parents:
        _check_name(parent, form, each.how)
        form = {
            **normalized_schema(_properties(form).get(parent), as_object(schema)),
            "$defs": as_object(schema).get("$defs"),
        }
        inner: object = place.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise Mistyped(f"{parent} is given as a whole, and in parts")
        place = cast("dict[str, Any]", inner)
    _check_name(last, form, each.how)
    return place, form, last


def _check_name(name: str, form: object, how: str) -> None:
    """Raise Mistyped for a name that the schema does not have, if it names all that there are."""
    known = _properties(form)
    extra = as_object(form).get("additionalProperties")
    if name in known or not known or extra is True or isinstance(extra, dict) or how == AS_JSON:
        return
    near = get_close_matches(name, list(known), 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(list(known)[:MAX_NAMED])}"
    raise Mistyped(f"there is no argument {name!r}; {hint}")


def _properties(form: object) -> Mapping[str, Any]:
    return as_object(as_object(form).get("properties"))


def _read_value(each: TypedArgument, field: Field | None, read: Read) -> Any:
    text = each.text
    try:
        if each.how == FROM_FILE:
            text = read(text)
        if each.how == AS_JSON:
            return parse_json(text)
        if field is None:
            return text
        return _parse_text(field, text)
    except ValueError as error:
        raise Mistyped(f"{each.name}: {_describe_error(error, each)}") from None


def _parse_text(field: Field, text: str) -> Any:
    if field.nullable and text == "null":
        return None
    if field.item is not None:
        return _parse_list(text) if text.startswith("[") else [_parse_text(field.item, text)]
    if field.kind == "choices" and text.startswith("["):
        return _parse_list(text)
    if field.kind in ("choice", "choices"):
        # By value or title. A number is a value here, as there is no list to count in.
        chosen = [_choice_value(field, part) for part in (text.split(",") if field.kind == "choices" else [text])]
        return chosen if field.kind == "choices" else chosen[0]
    return parse_value(field, text)


def _parse_list(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"what begins with [ is read as a JSON list ({error})") from None


def _choice_value(field: Field, text: str) -> str:
    wanted = text.strip()
    for value, title in (*((value, value) for value, _ in field.choices), *field.choices):
        if wanted == title:
            return value
    raise ValueError(f"{wanted[:MAX_QUOTED]!r} is none of {', '.join(value for value, _ in field.choices[:MAX_NAMED])}")


def _describe_error(error: ValueError, each: TypedArgument) -> str:
    if each.how == AS_JSON:
        return f"what follows := is not JSON ({error})"
    return str(error)
