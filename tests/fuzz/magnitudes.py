"""Numbers and times at and past every bound, and all the fields that could hold one.

The fields are not listed here: they are read from the schemas of MCP and OAuth, from the API's descriptors and from the
models of the settings. A new field is tried from the day on which it is there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

HOLE: Final = "@number@"
"""Stands in a document for the number, or the time, that is tried there."""

WHOLE: Final = (
    0, -1, 1, -(10**9), 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1,
    2**64 - 1, 2**64, 10**18, 10**30, 10**308, 10**309, 10**400, -(10**400), 10**4299, 10**5000,
)  # fmt: skip
REAL: Final = ("0.0", "-0.0", "-0.5", "0.5", "1e-308", "5e-324", "1e-400", "1e15", "1e18", "1e308", "-1e308", "1.8e308")
NO_NUMBER: Final = ("1e400", "-1e400", "1e999", "NaN", "Infinity", "-Infinity")
"""What a parser makes infinity of, and what is no JSON but is written by some (Python's `json.dumps`)."""


def _digits(number: int) -> str:
    """As `str`, which refuses to write very long ones."""
    sign, rest = ("-", -number) if number < 0 else ("", number)
    zeros = 0
    while rest and rest % 10**100 == 0:
        rest, zeros = rest // 10**100, zeros + 100
    return f"{sign}{rest}{'0' * zeros}"


NUMBERS: Final[tuple[str, ...]] = (*map(_digits, WHOLE), *REAL, *NO_NUMBER)
"""As the text of a JSON document has them."""

DATES: Final = (
    "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59-23:59",
    "10000-01-01T00:00:00Z", "+275760-09-13T00:00:00.000Z", "-271821-04-20T00:00:00Z", "0000-00-00T00:00:00Z",
    "1969-12-31T23:59:59Z", "1601-01-01T00:00:00Z", "2038-01-19T03:14:08Z", "2026-02-30T25:61:61Z",
)  # fmt: skip
TIMES: Final[tuple[str, ...]] = (*(json.dumps(date) for date in DATES), *NUMBERS)

HTTP_DATES: Final = (
    "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -2300", "Fri, 31 Dec 9999 23:59:59 -9999",
    "Mon, 01 Jan 0001 00:00:00 GMT", "Mon, 01 Jan 0001 00:00:00 +2300", "Sat, 01 Jan 10000 00:00:00 GMT",
    "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 99999999999999999999 23:59:59 GMT",
    "Fri, 99999999999999999999999 Dec 2026 23:59:59 GMT", "Fri, 31 Dec 2026 23:59:59 +99999999999999999999",
)  # fmt: skip
HEADER_TEXTS: Final = (*NUMBERS, *HTTP_DATES, "999999999", "+5", "5.5", " 5 ", "0x10", "1_000", "٣", "²", "")
"""Numbers in a header are text, so there may be any text; the last ones are digits of another script, and none."""

FLOATS: Final = (
    0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 60.0, 1e-308, 5e-324, 1e15, 2.0**31, 2.0**53, 2.0**63, 2.0**64, 1e308, -1e308,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip


WORST: Final = frozenset(
    {*NUMBERS[18:20], _digits(2**64 - 1), "1e400", "NaN", *HTTP_DATES[1:2], TIMES[4], *FLOATS[14:]}
)
"""What does most harm where nothing bounds it, so it is tried first."""


def within(bits: int, *, signed: bool) -> list[int]:
    """The whole numbers that a field of so many bits can hold."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return sorted({number for number in (*WHOLE, low, high) if low <= number <= high})


def document(template: object, number: str) -> str:
    """The JSON text of a template, with this text where its hole is."""
    return json.dumps(template).replace(json.dumps(HOLE), number)


# What a schema says (JSON Schema, as pydantic writes it)

DEPTH: Final = 9
TIME_ENDINGS: Final = ("at", "modified", "date", "time", "expires")
TEXTS: Final[Mapping[str, str]] = {"uri": "https://example.com/x", "byte": "eA==", "base64": "eA==", "email": "a@b.c"}

Schema = Mapping[str, Any]


def holes(schema: Schema, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each place for a number or a time in what a schema describes: its path, and a document with a hole there."""
    definitions = schema.get("$defs", {})
    seen: set[str] = set()
    for path, made in _holes(schema, definitions, name, DEPTH, frozenset()):
        if path.count(".") > 2 and path.endswith("._meta.*"):
            continue  # one for each message is enough
        if (key := json.dumps([path, made], sort_keys=True, default=str)) not in seen:
            seen.add(key)
            yield path, made


def _holes(
    schema: Schema, definitions: Mapping[str, Schema], name: str, depth: int, inside: frozenset[str]
) -> Iterator[tuple[str, Any]]:
    if (reference := str(schema.get("$ref", "")).rpartition("/")[2]) in definitions:
        if depth and reference not in inside:
            yield from _holes(definitions[reference], definitions, name, depth - 1, inside | {reference})
        return
    for choice in _choices(schema):
        yield from _holes(choice, definitions, name, depth, inside)
    kind = schema.get("type")
    if kind in ("integer", "number") or (kind == "string" and _is_time(schema, name)):
        yield "", HOLE
    elif not schema.keys() & {"type", "anyOf", "oneOf", "allOf", "const", "enum"}:
        yield "", {"any": HOLE}
    elif kind == "array" and depth:
        for path, made in _holes(schema.get("items") or {}, definitions, name, depth - 1, inside):
            yield f"[]{path}", [made]
    elif kind == "object" and depth:
        yield from _of_object(schema, definitions, depth, inside)


def _of_object(
    schema: Schema, definitions: Mapping[str, Schema], depth: int, inside: frozenset[str]
) -> Iterator[tuple[str, Any]]:
    plain = example(schema, definitions)
    for field, inner in (schema.get("properties") or {}).items():
        for path, made in _holes(inner, definitions, field, depth - 1, inside):
            yield f".{field}{path}", {**plain, field: made}
    if more := schema.get("additionalProperties"):
        found = _holes(more, definitions, "x", depth - 1, inside) if isinstance(more, Mapping) else [("", HOLE)]
        for path, made in found:
            yield f".*{path}", {**plain, "x": made}


def _choices(schema: Schema) -> Iterator[Schema]:
    return chain.from_iterable(schema.get(word) or () for word in ("anyOf", "oneOf", "allOf"))


def _is_time(schema: Schema, name: str) -> bool:
    return schema.get("format") in ("date", "date-time") or name.lower().endswith(TIME_ENDINGS)


def is_time(path: str) -> bool:
    """Whether a place may hold a time as text."""
    return path.rpartition(".")[2].lower().endswith(TIME_ENDINGS)


def example(schema: Schema, definitions: Mapping[str, Schema], depth: int = DEPTH) -> Any:
    """A small value that is as the schema wants it."""
    if (reference := str(schema.get("$ref", "")).rpartition("/")[2]) in definitions:
        return example(definitions[reference], definitions, depth - 1) if depth else None
    if "const" in schema:
        return schema["const"]
    if options := schema.get("enum"):
        return options[0]
    for choice in _choices(schema):
        return example(choice, definitions, depth)
    match schema.get("type"):
        case "object":
            fields = schema.get("properties") or {}
            needed = schema.get("required") or ()
            return {field: example(fields.get(field, {}), definitions, depth - 1) for field in needed}
        case "array":
            return []
        case "string":
            return TEXTS.get(schema.get("format", ""), "x")
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return {}


def settings_with(schema: Schema, base: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    """Each number of a model of settings: its path, and the settings `base` with a hole in its place."""
    definitions = schema.get("$defs", {})
    found: list[tuple[str, Any]] = []
    for field, inner in schema["properties"].items():
        for path, made in _holes(inner, definitions, field, DEPTH, frozenset()):
            if made != {"any": HOLE}:
                found.append((f"{field}{path}", {**base, field: made}))
    return found
