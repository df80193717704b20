"""Records as the store keeps them: written, and read. One that does not fit is taken as far as it does.

A store may hold what an older hub, a newer one, or an edit by hand has written. A number outside its bounds becomes
the nearest bound; anything else that does not fit is left out. What cannot be left out makes the record unreadable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, from_json

from hubbubd import payload

T = TypeVar("T")

ROUNDS: Final = 5
"""How often a record is mended: what was left out may be missed."""

PROBLEMS: Final = 20
"""How many mistakes of one record are mended in a round."""

TOLD: Final = 3
"""How many of them are told."""

MISSING: Final = ("missing", "missing_argument", "missing_keyword_only_argument")
"""What pydantic says of a field that must be there."""

LONGEST: Final = 300
"""The longest text that tells of them."""


@dataclass(frozen=True, slots=True)
class Mending:
    """How records of a noun are mended. `stead` has values for fields that do not fit, so that nothing acts on the
    record; fields in `vital` are never left out, since what they say is permission or identity.
    """

    stead: Mapping[str, object] = field(default_factory=dict[str, object])
    vital: frozenset[str] = frozenset()


class Unreadable(ValueError):
    """Too little of a record fits; the text says what does not."""


def read(adapter: TypeAdapter[T], value: bytes, how: Mending) -> tuple[T, str]:
    """The record, and what of it did not fit (empty for a sound one). Raises Unreadable."""
    try:
        return adapter.validate_json(value), ""
    except ValidationError as exc:
        problems = _problems(exc)
    told = _told(problems)
    try:
        raw: object = from_json(value)
    except ValueError as exc:
        raise Unreadable(str(exc)) from None
    if not isinstance(raw, dict):
        raise Unreadable(told)
    mended = cast("dict[str, Any]", raw)
    for _ in range(ROUNDS):
        for problem in problems:
            if not _mend(mended, problem, how):
                raise Unreadable(told)
        try:
            return adapter.validate_python(mended | {"defect": told}), told
        except ValidationError as exc:
            problems = _problems(exc)
    raise Unreadable(told)


def write(adapter: TypeAdapter[T], record: T) -> bytes:
    """As the store keeps it. Half of a surrogate pair, which a server may send and UTF-8 cannot hold, becomes �."""
    try:
        return adapter.dump_json(record)
    except PydanticSerializationError:
        return payload.dumps(_whole_text(adapter.dump_python(record, mode="json")))


def _problems(exc: ValidationError) -> list[ErrorDetails]:
    return exc.errors(include_url=False, include_input=False)[:PROBLEMS]


def _told(problems: list[ErrorDetails]) -> str:
    lines = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems[:TOLD]]
    return "; ".join(lines)[:LONGEST]


def _mend(raw: dict[str, Any], problem: ErrorDetails, how: Mending) -> bool:
    """Changes what a problem is about; False when that must not be."""
    place = problem["loc"]
    context: Mapping[str, Any] = problem.get("ctx", {})
    bound = context.get("le", context.get("ge"))
    if bound is not None and (around := _around(raw, place)) is not None:
        around[place[-1]] = bound
        return True
    name = str(place[0]) if place else ""
    if not name or name in how.vital:
        return False
    if name in how.stead:
        raw[name] = how.stead[name]
        return True
    raw.pop(name, None)
    return problem["type"] not in MISSING


def _around(raw: dict[str, Any], place: tuple[int | str, ...]) -> Any:
    """The object or array that has the value at a place; None when there is none."""
    around: Any = raw
    try:
        for step in place[:-1]:
            around = around[step]
        return None if around[place[-1]] is None else around
    except (KeyError, IndexError, TypeError):
        return None


def _whole_text(value: Any) -> Any:
    """The JSON value with every string in a form that UTF-8 can hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_whole_text(key): _whole_text(inner) for key, inner in items}
    if isinstance(value, list):
        return [_whole_text(inner) for inner in cast("list[Any]", value)]
    return value
