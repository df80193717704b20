"""Decoding of stored records. A record that does not validate is repaired as far as possible.

A store may contain records written by an older or newer version, or edited by hand. A number out of bounds is clamped;
any other invalid field is dropped. A record that is still invalid is unreadable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json

T = TypeVar("T")

ROUNDS: Final = 5
"""How often a record is repaired: dropping a field can make others invalid."""

PROBLEMS: Final = 20
"""How many problems of a record are repaired per round."""

NAMED: Final = 3
"""How many problems the record's `defect` names."""

MISSING: Final = ("missing", "missing_argument", "missing_keyword_only_argument")
"""pydantic's error types for a missing field."""

LONGEST: Final = 300
"""Longest `defect`, in characters."""


@dataclass(frozen=True, slots=True)
class RepairRule:
    """How records of a noun are repaired: `stand_ins` replace invalid fields, so that nothing acts on the record.

    Fields in `vital` are never dropped or replaced, since they carry permission or identity.
    """

    stand_ins: Mapping[str, object] = field(default_factory=dict[str, object])
    vital: frozenset[str] = frozenset()


class UnreadableRecord(ValueError):
    """Too little of a record is valid; the message names the problems."""


def decode_record(adapter: TypeAdapter[T], value: bytes, rule: RepairRule) -> tuple[T, str]:
    """Decode a stored record; return the record and a text about its problems, "" if all of it was valid.

    Numbers out of bounds are clamped, and other invalid fields replaced or dropped, as `rule` says. Raises
    UnreadableRecord if too little of the record is valid.
    """
    try:
        return adapter.validate_json(value), ""
    except ValidationError as exc:
        problems = _list_problems(exc)
    summary = _summarize(problems)
    try:
        raw: object = from_json(value)
    except ValueError as exc:
        raise UnreadableRecord(str(exc)) from None
    if not isinstance(raw, dict):
        raise UnreadableRecord(summary)
    repaired = cast("dict[str, Any]", raw)
    for _ in range(ROUNDS):
        for problem in problems:
            if not _repair_problem(repaired, problem, rule):
                raise UnreadableRecord(summary)
        try:
            return adapter.validate_python(repaired | {"defect": summary}), summary
        except ValidationError as exc:
            problems = _list_problems(exc)
    raise UnreadableRecord(summary)


def _list_problems(exc: ValidationError) -> list[ErrorDetails]:
    """Return the problems that pydantic has found, PROBLEMS at most."""
    return exc.errors(include_url=False, include_input=False)[:PROBLEMS]


def _summarize(problems: list[ErrorDetails]) -> str:
    """Return the first NAMED problems in one line, LONGEST characters at most."""
    lines = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems[:NAMED]]
    return "; ".join(lines)[:LONGEST]


def _repair_problem(raw: dict[str, Any], problem: ErrorDetails, rule: RepairRule) -> bool:
    """Repair one problem of a decoded record in place; return False if the record cannot be repaired.

    It cannot be repaired if the field is one of `vital`, or is missing and has no stand-in.
    """
    path = problem["loc"]
    context: Mapping[str, Any] = problem.get("ctx", {})
    bound = context.get("le", context.get("ge"))  # pydantic names the bound that a number exceeds
    if bound is not None and (container := _find_container(raw, path)) is not None:
        container[path[-1]] = bound
        return True
    name = str(path[0]) if path else ""
    if not name or name in rule.vital:
        return False
    if name in rule.stand_ins:
        raw[name] = rule.stand_ins[name]
        return True
    raw.pop(name, None)
    return problem["type"] not in MISSING


def _find_container(raw: dict[str, Any], path: tuple[int | str, ...]) -> Any:
    """Return the object or array that contains the value at a path; None if the value is missing or null."""
    container: Any = raw
    try:
        for key in path[:-1]:
            container = container[key]
        return None if container[path[-1]] is None else container
    except (KeyError, IndexError, TypeError):
        return None


def replace_surrogates(value: Any) -> Any:
    """Return a record, or a part of one, with U+FFFD in place of each lone surrogate.

    Servers may send lone surrogates in JSON, but UTF-8, in which records are stored, has none.
    """
    match value:
        case str():
            return type(value)(value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        case dict():
            items = cast("dict[Any, Any]", value).items()
            return {replace_surrogates(key): replace_surrogates(inner) for key, inner in items}
        case list():
            return [replace_surrogates(inner) for inner in cast("list[Any]", value)]
        case tuple():
            return tuple(replace_surrogates(inner) for inner in cast("tuple[Any, ...]", value))
        case BaseModel():
            return value.model_copy(
                update={name: replace_surrogates(getattr(value, name)) for name in value.model_fields_set}
            )
        case _ if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value,
                **{each.name: replace_surrogates(getattr(value, each.name)) for each in fields(value) if each.init},
            )
        case _:
            return value
