"""An elicitation's form as questions for a terminal (MCP 2025-11-25, client/elicitation: requested schema)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

Kind = Literal["string", "number", "integer", "boolean", "choice", "choices"]

YES, NO = frozenset(("y", "yes", "true")), frozenset(("n", "no", "false"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One question; `choices` pairs each value with its title."""

    name: str
    title: str
    kind: Kind
    description: str | None = None
    required: bool = False
    default: Any = None
    choices: tuple[tuple[str, str], ...] = ()


def fields(schema: Mapping[str, Any]) -> list[Field]:
    """The questions of a form, in its order."""
    required = schema.get("required") or ()
    properties = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties") or {})
    return [_field(name, spec, name in required) for name, spec in properties.items()]


def parse(field: Field, text: str) -> Any:
    """The value that was typed. Raises ValueError with what is wrong; the hub checks the rest of the schema."""
    match field.kind:
        case "string":
            return text
        case "boolean":
            word = text.lower()
            if word not in YES | NO:
                raise ValueError("type y or n")
            return word in YES
        case "integer":
            return _number(text, int, "a whole number")
        case "number":
            return _number(text, float, "a number")
        case "choice":
            return _choice(field, text)
        case "choices":
            return [_choice(field, part.strip()) for part in text.split(",") if part.strip()]


def _field(name: str, spec: Mapping[str, Any], required: bool) -> Field:
    multiple = spec.get("type") == "array"
    choices = _choices(spec.get("items") or {} if multiple else spec)
    kind = "choices" if multiple else "choice" if choices else spec.get("type")
    return Field(
        name=name,
        title=str(spec.get("title") or name),
        kind=cast("Kind", kind) if kind in Kind.__args__ else "string",
        description=spec.get("description"),
        required=required,
        default=spec.get("default"),
        choices=choices,
    )


def _choices(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    titled = cast("Sequence[Mapping[str, Any]]", spec.get("oneOf") or spec.get("anyOf") or ())
    if titled:
        return tuple(
            (str(each["const"]), str(each.get("title") or each["const"])) for each in titled if "const" in each
        )
    values = [str(value) for value in spec.get("enum") or ()]
    names = [str(name) for name in spec.get("enumNames") or ()]
    return tuple(zip(values, names if len(names) == len(values) else values, strict=True))


def _choice(field: Field, text: str) -> str:
    """A choice by its number, its value or its title."""
    if text.isdecimal() and 1 <= int(text) <= len(field.choices):
        return field.choices[int(text) - 1][0]
    for value, title in field.choices:
        if text in (value, title):
            return value
    raise ValueError(f"type a number from 1 to {len(field.choices)}")


def _number(text: str, kind: type[int] | type[float], name: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"type {name}") from None
