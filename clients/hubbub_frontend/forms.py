"""Fields of a form, made from its schema (MCP client/elicitation: requested schema; tools: inputSchema).

Schemas of servers are not trusted: an unknown shape becomes a field for JSON.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from hubbub_client import payload
from hubbub_client.numbers import is_finite, whole, whole_text
from hubbub_client.payload import as_list, as_object, as_objects

Kind = Literal["string", "number", "integer", "boolean", "choice", "choices", "json"]

YES, NO = frozenset(("y", "yes", "true")), frozenset(("n", "no", "false"))
MAX_SAMPLE_CHARS = 1000
"""The longest text that is made up: a schema may want any length."""

MAX_DEPTH, MAX_NESTED = 3, 200
"""How deep objects within a form are taken apart, and into how many fields: a definition may contain itself."""

# Example of each format, for hints.
EXAMPLES = {
    "email": "name@example.com",
    "uri": "https://example.com",
    "date": "2026-12-31",
    "date-time": "2026-12-31T18:30:00Z",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field; `choices` pairs each value with its title.

    `minimum` and `maximum` bound a number, or the length of a text or list.
    """

    name: str
    title: str
    kind: Kind
    description: str | None = None
    required: bool = False
    default: Any = None
    choices: tuple[tuple[str, str], ...] = ()
    format: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    item: "Field | None" = None
    """What each element of a list is, if the schema says so, and the list has no choices."""
    nullable: bool = False
    """Whether null is a value."""

    @property
    def hint(self) -> str:
        """Return the accepted values in words: `whole number, 1 to 8`."""
        name = {"integer": "whole number", "number": "number", "json": "JSON"}.get(self.kind, "")
        sample = f"such as {EXAMPLES[self.format]}" if self.format in EXAMPLES else ""
        unit = {"string": " characters", "choices": " of them"}.get(self.kind, "")
        bounds = _describe_bounds(self.minimum, self.maximum, unit)
        return ", ".join(part for part in (name, sample, bounds) if part)


def fields(schema: object) -> list[Field]:
    """Return the fields of a form, in the order of the schema."""
    form = as_object(schema)
    required = {name for name in as_list(form.get("required")) if isinstance(name, str)}
    properties = as_object(form.get("properties"))
    return [
        _create_field(name, normalized_schema(spec, form), form, required=name in required)
        for name, spec in properties.items()
    ]


def prompt_fields(prompt: Mapping[str, Any]) -> list[Field]:
    """Return the arguments of a prompt as fields."""
    return [_argument_field(argument) for argument in as_objects(prompt.get("arguments"))]


def _argument_field(argument: Mapping[str, Any]) -> Field:
    """Return an argument of a prompt as a field."""
    name = str(argument.get("name") or "-")
    description = argument.get("description")
    return Field(
        name=name,
        title=str(argument.get("title") or name),
        kind="string",
        description=str(description) if description else None,
        required=argument.get("required") is True,
    )


def nested_fields(schema: object) -> list[Field]:
    """Return the fields of a form, and after each object the fields of that object, named `object.field`; at most
    MAX_NESTED fields.

    A field is required only if it and every object around it are required. Objects are followed MAX_DEPTH levels deep,
    since a definition may contain itself.
    """
    return list(islice(_walk_fields(as_object(schema), prefix="", required=True, depth=MAX_DEPTH), MAX_NESTED))


def _walk_fields(form: Mapping[str, Any], *, prefix: str, required: bool, depth: int) -> Iterator[Field]:
    """Yield the fields of a form, and after each object the fields of that object.

    `prefix` is put before each name; `required`: the form itself is required; `depth`: how many more levels to follow.
    """
    for field in fields(form):
        name = f"{prefix}{field.name}"
        is_required = required and field.required
        title = name if field.title == field.name else field.title
        yield replace(field, name=name, title=title, required=is_required)
        field_schema = normalized_schema(as_object(form.get("properties"))[field.name], form)
        nested_names = as_object(field_schema.get("properties"))
        # If a name has a dot in it, `object.field` could mean that name as well: such objects are not followed.
        has_dotted_name = any("." in nested_name for nested_name in nested_names)
        if depth and field.kind == "json" and nested_names and not has_dotted_name:
            nested_form = {**field_schema, "$defs": form.get("$defs")}
            yield from _walk_fields(nested_form, prefix=f"{name}.", required=is_required, depth=depth - 1)


def parse_value(field: Field, text: str) -> Any:
    """Return the value that a person typed for a field. Raises ValueError with the reason.

    Checks the type, bounds and format; the hub checks the rest of the schema.
    """
    match field.kind:
        case "string":
            value: Any = text
        case "boolean":
            word = text.strip().lower()
            if word not in YES | NO:
                raise ValueError("type y or n")
            return word in YES
        case "integer":
            value = _parse_number(text, int, "a whole number")
        case "number":
            value = _parse_number(text, float, "a number")
        case "choice":
            value = _resolve_choice(field, text)
        case "choices":
            value = [_resolve_choice(field, part.strip()) for part in text.split(",") if part.strip()]
        case "json":
            try:
                return parse_json(text)
            except ValueError as error:
                raise ValueError(f"type JSON ({error})") from None
    check_bounds(field, value)
    return value


def check_bounds(field: Field, value: Any) -> None:
    """Check a value of the right type: its size or length, and its format. Raises ValueError with the reason."""
    if field.kind == "choice":  # has no bounds
        return
    size = value if isinstance(value, (int, float)) else len(value)
    is_too_small = field.minimum is not None and size < field.minimum
    is_too_large = field.maximum is not None and size > field.maximum
    if is_too_small or is_too_large:
        raise ValueError(f"must be a {field.hint}" if field.kind in ("integer", "number") else f"give {field.hint}")
    if isinstance(value, str) and field.format in EXAMPLES and not _has_format(field.format, value):
        raise ValueError(f"must look like {EXAMPLES[field.format]}")


def typed_text(value: Any) -> str:
    """Return a value as a person would type it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def example_value(field: Field) -> Any:
    """Return a value that the field takes: its default, its first choice, or one made up within its bounds."""
    if field.default is not None:
        return field.default
    match field.kind:
        case "choice":
            return field.choices[0][0]
        case "choices":
            count = whole(field.minimum or 1, 1)
            return [value for value, _ in field.choices[:count]]
        case "boolean":
            return True
        case "integer" | "number":
            return _example_number(field)
        case "json":
            return [example_value(field.item)] if field.item else {}
        case "string":
            least_chars = whole(field.minimum or 0, high=MAX_SAMPLE_CHARS) or 0
            most_chars = whole(field.maximum) if field.maximum is not None else None
            return EXAMPLES.get(field.format or "", "text").ljust(least_chars, ".")[:most_chars]


def _example_number(field: Field) -> Any:
    """Return a number that the field takes: the first choice, else the least number.

    Without choices and a least number, return 1, or the greatest number if that is below 1.
    """
    if field.choices:
        with contextlib.suppress(ValueError):  # a server's choice for a number may be no number
            return parse_value(field, field.choices[0][0])
    number = field.minimum
    if number is None:
        number = 1 if field.maximum is None else min(1, field.maximum)
    return math.ceil(number) if field.kind == "integer" else number


def value_label(field: Field, value: Any) -> str:
    """Return a value as its form shows it: the title of a choice, yes or no, else as a person would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value_label(field, element) for element in cast("list[Any]", value))
    return dict(field.choices).get(str(value), typed_text(value))


def _create_field(name: str, spec: Mapping[str, Any], form: Mapping[str, Any], *, required: bool) -> Field:
    """Make a field of a normalised property of a form."""
    is_list = spec.get("type") == "array"
    choices = _choices(as_object(spec.get("items")) if is_list else spec)
    kind = _field_kind(spec, choices)
    minimum_key, maximum_key = {
        "string": ("minLength", "maxLength"),
        "choices": ("minItems", "maxItems"),
        "integer": ("minimum", "maximum"),
        "number": ("minimum", "maximum"),
    }.get(kind, ("", ""))
    minimum, maximum = spec.get(minimum_key), spec.get(maximum_key)
    return Field(
        name=name,
        title=str(spec.get("title") or name),
        kind=kind,
        description=str(spec["description"]) if spec.get("description") else None,
        required=required,
        default=spec.get("default"),
        choices=choices,
        format=str(spec["format"]) if spec.get("format") else None,
        minimum=minimum if is_finite(minimum) else None,
        maximum=maximum if is_finite(maximum) else None,
        item=_item_field(name, spec, form) if is_list and not choices else None,
        nullable=bool(spec.get("nullable")),
    )


def _item_field(name: str, spec: Mapping[str, Any], form: Mapping[str, Any]) -> Field | None:
    """Return the field of each element of a list; None if the elements are not text, numbers or booleans."""
    items = normalized_schema(spec.get("items"), form)
    if items.get("type") not in ("string", "number", "integer", "boolean"):
        return None
    return _create_field(name, items, form, required=True)


def _field_kind(spec: Mapping[str, Any], choices: tuple[tuple[str, str], ...]) -> Kind:
    """Return the kind of field that a normalised schema describes."""
    match spec.get("type"):
        case "array":
            return "choices" if choices else "json"
        case "string" | None if choices:
            return "choice"
        case "object":
            return "json"
        case "number" | "integer" | "boolean" as kind:
            return kind
        case _:
            return "string"


def normalized_schema(spec: object, form: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a property in a simple form: a reference to a definition of `form` is resolved once.

    `anyOf: [X, null]` and `type: [X, null]`, which generators write for optional values, become X and `nullable`.
    """
    schema = as_object(spec)
    alternatives = as_objects(schema.get("anyOf"))
    not_null = [each for each in alternatives if each.get("type") != "null"]
    if len(not_null) == 1 and "const" not in not_null[0]:
        schema = {**schema, **not_null[0], "nullable": len(alternatives) > 1}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        definition = as_object(form.get("$defs")).get(reference.removeprefix("#/$defs/"))
        schema = {**as_object(definition), **schema}
    types = as_list(schema.get("type"))
    not_null_types = [each for each in types if each != "null"]
    if len(not_null_types) == 1:
        schema = {**schema, "type": not_null_types[0], "nullable": len(types) > 1 or schema.get("nullable")}
    return schema


def _choices(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the values of a choice, each with its title; empty if the schema names no values to choose from."""
    alternatives = as_objects(spec.get("oneOf")) + as_objects(spec.get("anyOf"))
    constants = [each for each in alternatives if "const" in each]
    if constants:
        return tuple((str(each["const"]), str(each.get("title") or each["const"])) for each in constants)
    values = [str(value) for value in as_list(spec.get("enum")) if value is not None]
    titles = [str(name) for name in as_list(spec.get("enumNames"))]
    return tuple(zip(values, titles if len(titles) == len(values) else values, strict=True))


def _resolve_choice(field: Field, text: str) -> str:
    """Return the value of the choice with this number (from 1), value or title. Raises ValueError if there is none."""
    number = whole_text(text)
    if number is not None and 1 <= number <= len(field.choices):
        return field.choices[number - 1][0]
    for value, title in field.choices:
        if text in (value, title):
            return value
    raise ValueError(f"type a number from 1 to {len(field.choices)}")


def _parse_number(text: str, kind: type[int] | type[float], name: str) -> int | float:
    """Parse a finite number. Raises ValueError, which tells a person to type `name`."""
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not is_finite(value):
        raise ValueError(f"type {name}")
    return value


def parse_json(text: str) -> Any:
    """Return the value of a JSON document, if it can be sent. Raises ValueError with the reason."""
    if not text.strip():
        raise ValueError("there is nothing")
    try:
        value = payload.loads(text.encode())
        payload.dumps(value)  # raises ValueError for what can be read but not sent, such as NaN
    except RecursionError:
        raise ValueError("it nests too deep to be sent") from None
    return value


def _has_format(name: str, text: str) -> bool:
    """Return whether a text has a format of JSON Schema, one of EXAMPLES."""
    try:
        match name:
            case "email":
                mailbox, at, domain = text.rpartition("@")
                return bool(mailbox and at and domain) and " " not in text
            case "uri":
                return bool(urlsplit(text).scheme)
            case "date":
                return date.fromisoformat(text).isoformat() == text
            case _:  # date-time
                return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _describe_bounds(minimum: float | None, maximum: float | None, unit: str) -> str:
    """Return bounds in words; empty if there are none, or if they only forbid an empty text or list."""
    match minimum, maximum:
        case None, None:
            return ""
        case low, None:
            return f"at least {low:g}{unit}" if low > 1 or not unit else ""
        case None, high:
            return f"at most {high:g}{unit}"
        case low, high:
            return f"{low:g} to {high:g}{unit}"
