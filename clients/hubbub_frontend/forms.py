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
SAMPLE_CHARS = 1000
"""The longest text that is made up: a schema may want any length."""

DEEPEST, MOST_PARTS = 3, 200
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

    Bounds are those of a text's or list's length, or of a number.
    """

    name: str
    title: str
    kind: Kind
    description: str | None = None
    required: bool = False
    default: Any = None
    choices: tuple[tuple[str, str], ...] = ()
    format: str | None = None
    least: float | None = None
    most: float | None = None
    item: "Field | None" = None
    """What each element of a list is, if the schema says so, and the list has no choices."""
    nullable: bool = False
    """Whether null is a value."""

    @property
    def hint(self) -> str:
        """Return the accepted values in words: `whole number, 1 to 8`."""
        unit = {"string": " characters", "choices": " of them"}.get(self.kind, "")
        form = f"such as {EXAMPLES[self.format]}" if self.format in EXAMPLES else ""
        name = {"integer": "whole number", "number": "number", "json": "JSON"}.get(self.kind, "")
        return ", ".join(part for part in (name, form, _describe_bounds(self.least, self.most, unit)) if part)


def fields(schema: object) -> list[Field]:
    """Return the fields of a form, in the order of the schema."""
    form = as_object(schema)
    required = {name for name in as_list(form.get("required")) if isinstance(name, str)}
    properties = as_object(form.get("properties"))
    return [_field(name, normalized_schema(spec, form), name in required, form) for name, spec in properties.items()]


def nested_fields(schema: object) -> list[Field]:
    """Return the fields of a form, and after each object those of its own, named `object.field`, at most MOST_PARTS.

    A part is required if all that it is in is. Definitions that contain themselves are followed DEEPEST times.
    """
    return list(islice(_parts(as_object(schema), "", True, DEEPEST), MOST_PARTS))


def _parts(form: Mapping[str, Any], within: str, required: bool, deeper: int) -> Iterator[Field]:
    for field in fields(form):
        name, wanted = f"{within}{field.name}", required and field.required
        yield replace(field, name=name, title=field.title if field.title != field.name else name, required=wanted)
        own = normalized_schema(as_object(form.get("properties"))[field.name], form)
        names = as_object(own.get("properties"))
        if deeper and field.kind == "json" and names and not any("." in each for each in names):
            yield from _parts({**own, "$defs": form.get("$defs")}, f"{name}.", wanted, deeper - 1)


def parse_value(field: Field, text: str) -> Any:
    """Parse a typed value. Raises ValueError with the reason; the hub checks the rest of the schema."""
    match field.kind:
        case "string":
            value: Any = text
        case "boolean":
            return _parse_boolean(text)
        case "integer":
            value = _parse_number(text, int, "a whole number")
        case "number":
            value = _parse_number(text, float, "a number")
        case "choice":
            value = _resolve_choice(field, text)
        case "choices":
            value = [_resolve_choice(field, part.strip()) for part in text.split(",") if part.strip()]
        case "json":
            return _parse_typed_json(text)
    check_bounds(field, value)
    return value


def check_bounds(field: Field, value: Any) -> None:
    """Check a value of the right type against the bounds. Raises ValueError with the reason."""
    if field.kind == "choice":
        return
    size = value if isinstance(value, (int, float)) else len(value)
    if (field.least is not None and size < field.least) or (field.most is not None and size > field.most):
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
            return [value for value, _ in field.choices[: whole(field.least or 1, 1)]]
        case "boolean":
            return True
        case "integer" | "number":
            with contextlib.suppress(ValueError, IndexError):
                return parse_value(field, field.choices[0][0])
            low = field.least if field.least is not None else min(1, field.most if field.most is not None else 1)
            return math.ceil(low) if field.kind == "integer" else low
        case "json":
            return [example_value(field.item)] if field.item else {}
        case "string":
            made = EXAMPLES.get(field.format or "", "text")
            made = made.ljust(whole(field.least or 0, high=SAMPLE_CHARS) or 0, ".")
            return made[: whole(field.most) if field.most is not None else None]


def value_label(field: Field, value: Any) -> str:
    """Return a value in the words of its form: titles of choices, yes and no."""
    titles = dict(field.choices)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value_label(field, each) for each in cast("list[Any]", value))
    return titles.get(str(value), typed_text(value))


def _field(name: str, spec: Mapping[str, Any], required: bool, form: Mapping[str, Any]) -> Field:
    multiple = spec.get("type") == "array"
    choices = _choices(as_object(spec.get("items")) if multiple else spec)
    kind = _field_kind(spec, choices)
    lowest, highest = {
        "string": ("minLength", "maxLength"),
        "choices": ("minItems", "maxItems"),
        "integer": ("minimum", "maximum"),
        "number": ("minimum", "maximum"),
    }.get(kind, ("", ""))
    return Field(
        name=name,
        title=str(spec.get("title") or name),
        kind=kind,
        description=str(spec["description"]) if spec.get("description") else None,
        required=required,
        default=spec.get("default"),
        choices=choices,
        format=str(spec["format"]) if spec.get("format") else None,
        least=_finite_bound(spec.get(lowest)),
        most=_finite_bound(spec.get(highest)),
        item=_item_field(name, spec, form) if multiple and not choices else None,
        nullable=bool(spec.get("nullable")),
    )


def _item_field(name: str, spec: Mapping[str, Any], form: Mapping[str, Any]) -> Field | None:
    items = normalized_schema(spec.get("items"), form)
    if items.get("type") not in ("string", "number", "integer", "boolean"):
        return None
    return _field(name, items, True, form)


def _field_kind(spec: Mapping[str, Any], choices: tuple[tuple[str, str], ...]) -> Kind:
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
    """Normalise a property: follow one reference to a definition of the same form; `anyOf: [X, null]` and `type: [X,
    null]`, which generators write for optional values, are X."""
    found = as_object(spec)
    shapes = [each for each in as_objects(found.get("anyOf")) if each.get("type") != "null"]
    if len(shapes) == 1 and "const" not in shapes[0]:
        found = {**found, **shapes[0], "nullable": len(as_objects(found.get("anyOf"))) > 1}
    reference = found.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        found = {**as_object(as_object(form.get("$defs")).get(reference.removeprefix("#/$defs/"))), **found}
    types = as_list(found.get("type"))
    if len(kinds := [each for each in types if each != "null"]) == 1:
        found = {**found, "type": kinds[0], "nullable": len(types) > 1 or found.get("nullable")}
    return found


def _choices(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    titled = [each for each in as_objects(spec.get("oneOf")) + as_objects(spec.get("anyOf")) if "const" in each]
    if titled:
        return tuple((str(each["const"]), str(each.get("title") or each["const"])) for each in titled)
    values = [str(value) for value in as_list(spec.get("enum")) if value is not None]
    titles = [str(name) for name in as_list(spec.get("enumNames"))]
    return tuple(zip(values, titles if len(titles) == len(values) else values, strict=True))


def _resolve_choice(field: Field, text: str) -> str:
    """Resolve a choice by its number, value or title."""
    number = whole_text(text)
    if number is not None and 1 <= number <= len(field.choices):
        return field.choices[number - 1][0]
    for value, title in field.choices:
        if text in (value, title):
            return value
    raise ValueError(f"type a number from 1 to {len(field.choices)}")


def _parse_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in YES | NO:
        raise ValueError("type y or n")
    return word in YES


def _parse_number(text: str, kind: type[int] | type[float], name: str) -> int | float:
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"type {name}") from None
    if not is_finite(value):
        raise ValueError(f"type {name}")
    return value


def _parse_typed_json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"type JSON ({error})") from None


def parse_json(text: str) -> Any:
    """Return the value of a JSON document, if it can be sent. Raises ValueError with the reason."""
    if not text.strip():
        raise ValueError("there is nothing")
    try:
        value = payload.loads(text.encode())
        payload.dumps(value)
    except RecursionError:
        raise ValueError("it nests too deep to be sent") from None
    return value


def _has_format(name: str, text: str) -> bool:
    try:
        match name:
            case "email":
                before, at, after = text.rpartition("@")
                return bool(before and at and after) and " " not in text
            case "uri":
                return bool(urlsplit(text).scheme)
            case "date":
                return date.fromisoformat(text).isoformat() == text
            case _:
                return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _describe_bounds(least: float | None, most: float | None, unit: str) -> str:
    match least, most:
        case None, None:
            return ""
        case low, None:
            return f"at least {low:g}{unit}" if low > 1 or not unit else ""
        case None, high:
            return f"at most {high:g}{unit}"
        case low, high:
            return f"{low:g} to {high:g}{unit}"


def _finite_bound(value: object) -> float | None:
    return value if is_finite(value) else None
