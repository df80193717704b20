"""Arguments as people type them: `key=value`, `a.b=1`, `list=1 list=2`, `key:=JSON` and `key=@FILE`.

A value is read as its schema says (MCP tools: inputSchema; client/elicitation: requestedSchema).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, cast

from hubbub_client.payload import as_object
from hubbub_frontend.forms import Field, fields, normalized_schema, parse_json, parse_value

AS_JSON, FROM_FILE, PART = ":=", "=@", "."
MAX_NAMED = 20
"""The most names that an error lists."""
MAX_QUOTED = 60
"""The most characters of a value that an error repeats: a file may be long."""

ReadFile = Callable[[str], str]
"""Returns the text of a file. Raises ValueError with the reason."""


class MistypedArgument(ValueError):
    """An argument that cannot be read. The message has its name, the reason and a hint."""


@dataclass(frozen=True, slots=True)
class TypedArgument:
    """One argument as typed: its name, its mark (`=`, AS_JSON or FROM_FILE), and its text."""

    name: str
    mark: str
    text: str


def split_argument(word: str) -> TypedArgument | None:
    """Split `key=value`; None if the word is not of that form."""
    name, equals, text = word.partition("=")
    if not equals or not name or name.lstrip().startswith(("{", "[", '"')):
        return None
    if name.endswith(":"):
        return TypedArgument(name[:-1], AS_JSON, text) if name[:-1] else None
    if text.startswith("@"):
        return TypedArgument(name, FROM_FILE, text[1:])
    return TypedArgument(name, "=", text)


def parse_pairs(text: str, mark: str) -> dict[str, str] | None:
    """Return the names and values of a text with one `NAME{mark}VALUE` per line; None if it has none.

    Blanks around both do not count. Raises ValueError with the number of a line that is not such a pair.
    """
    pairs: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, found_mark, value = line.partition(mark.strip())
        if name.strip() and found_mark:
            pairs[name.strip()] = value.strip()
        elif line.strip():
            raise ValueError(f"line {number} is not NAME{mark}VALUE")
    return pairs or None


def are_key_values(typed_arguments: Sequence[str]) -> bool:
    """Return whether arguments are typed as `key=value`, and not as one JSON object."""
    return bool(typed_arguments) and (len(typed_arguments) > 1 or split_argument(typed_arguments[0]) is not None)


def parse_arguments(typed_arguments: Sequence[str], schema: object, read_file: ReadFile) -> dict[str, Any]:
    """Return the typed arguments by name, each parsed as the schema says. Raises MistypedArgument.

    A name may occur several times if its argument is a list.
    """
    arguments: dict[str, Any] = {}
    seen_names: set[str] = set()
    for word in typed_arguments:
        typed = split_argument(word)
        if typed is None:
            raise MistypedArgument(f"{word!r} is not KEY=VALUE; all arguments are, or one JSON object is")
        target = _resolve_target(arguments, typed, schema)
        field = next((field for field in fields(target.schema) if field.name == target.key), None)
        value = _read_value(typed, field, read_file)
        if isinstance(value, list) and typed.mark != AS_JSON and typed.name in seen_names:
            target.container[target.key] += value
        elif target.key in target.container:
            raise MistypedArgument(f"{typed.name} is given twice; only a list may be")
        else:
            target.container[target.key] = value
            seen_names.add(typed.name)
    return arguments


def missing_fields(arguments: Mapping[str, Any], schema: object) -> list[Field]:
    """Return the required fields of a schema that have no argument."""
    return [field for field in fields(schema) if field.required and field.name not in arguments]


class _Target(NamedTuple):
    """Where a value goes: the object, the schema of that object, and the key in it."""

    container: dict[str, Any]
    schema: object
    key: str


def _resolve_target(arguments: dict[str, Any], typed: TypedArgument, schema: object) -> _Target:
    """Follow the dots of a name into `arguments`, create missing objects, and return where the value goes.

    Raises MistypedArgument.
    """
    container = arguments
    container_schema = schema
    *parents, key = typed.name.split(PART)
    if not all((*parents, key)):
        raise MistypedArgument(f"{typed.name!r} is no name of an argument")
    if parents and typed.name in _properties(schema):  # the schema has a name with a dot in it
        parents, key = [], typed.name
    for parent in parents:
        _check_name(parent, container_schema, typed.mark)
        own_schema = normalized_schema(_properties(container_schema).get(parent), as_object(schema))
        container_schema = {**own_schema, "$defs": as_object(schema).get("$defs")}
        inner: object = container.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise MistypedArgument(f"{parent} is given as a whole, and in parts")
        container = cast("dict[str, Any]", inner)
    _check_name(key, container_schema, typed.mark)
    return _Target(container, container_schema, key)


def _check_name(name: str, schema: object, mark: str) -> None:
    """Raise MistypedArgument for a name that the schema does not have, unless the schema allows any name.

    A value that is typed as JSON (`mark`) may have any name.
    """
    properties = _properties(schema)
    additional = as_object(schema).get("additionalProperties")
    takes_any_name = not properties or additional is True or isinstance(additional, dict)
    if name in properties or takes_any_name or mark == AS_JSON:
        return
    close_matches = get_close_matches(name, list(properties), 1)
    hint = (
        f"did you mean {close_matches[0]}?" if close_matches else f"there are {', '.join(list(properties)[:MAX_NAMED])}"
    )
    raise MistypedArgument(f"there is no argument {name!r}; {hint}")


def _properties(schema: object) -> Mapping[str, Any]:
    """Return the properties that a schema names."""
    return as_object(as_object(schema).get("properties"))


def _read_value(typed: TypedArgument, field: Field | None, read_file: ReadFile) -> Any:
    """Return the typed value: JSON, or a text (perhaps of a file) parsed for `field`. Raises MistypedArgument.

    Text stays as it is if `field` is None: the schema does not name it.
    """
    try:
        if typed.mark == AS_JSON:
            return _parse_json(typed.text, "what follows := is not JSON")
        text = read_file(typed.text) if typed.mark == FROM_FILE else typed.text
        return text if field is None else _parse_text(field, text)
    except ValueError as error:
        raise MistypedArgument(f"{typed.name}: {error}") from None


def _parse_text(field: Field, text: str) -> Any:
    """Parse a text as the value of a field. Raises ValueError.

    A text for a list gives one element, or the whole list as JSON; for `choices`, several elements between commas.
    """
    if field.nullable and text == "null":
        return None
    takes_list = field.item is not None or field.kind == "choices"
    if takes_list and text.startswith("["):
        return _parse_json(text, "what begins with [ is read as a JSON list")
    if field.item is not None:
        return [_parse_text(field.item, text)]
    if field.kind == "choices":
        return [_choice_value(field, part) for part in text.split(",")]
    if field.kind == "choice":
        return _choice_value(field, text)
    return parse_value(field, text)


def _parse_json(text: str, problem: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, which begins with `problem`."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{problem} ({error})") from None


def _choice_value(field: Field, text: str) -> str:
    """Return the choice whose value, or else whose title, is `text`. Raises ValueError if there is none."""
    name = text.strip()
    values = [value for value, _ in field.choices]
    if name in values:
        return name
    for value, title in field.choices:
        if name == title:
            return value
    raise ValueError(f"{name[:MAX_QUOTED]!r} is none of {', '.join(values[:MAX_NAMED])}")
