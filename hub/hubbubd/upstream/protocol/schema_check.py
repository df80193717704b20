"""Validates what servers send against a schema, piece by piece; the only use of pydantic on their data.

pydantic collects every error of its input, several per wrong entry, and blocks the event loop meanwhile. So a large
document is validated as many small ones. Each piece has some of the document's entries, and of the rest only as much as
a schema may require; validation stops at the first invalid piece. No knowledge is needed of where a document may be
long.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import zip_longest
from typing import Any, Final, Literal, cast, get_origin

from pydantic import BaseModel, ValidationError

PIECE: Final = 250
"""About how many values of a document are validated at once."""

DEEPEST: Final = 12
"""Nesting depth down to which documents are split. No schema describes deeper levels."""

_FIRST: Final = 20
"""How many values are validated before all others: most invalid documents are invalid from their beginning."""

_FRAME: Final = 4 * PIECE
"""The most values of the parts that are repeated in each piece of an object."""

_SMALL: Final = 8
"""A value with fewer values in it is not reduced."""

_MANY: Final = 50
"""From so many errors on a piece is split further before they are listed, as listing them takes long."""

_SHOWN: Final = 3
"""How many errors are reported."""

_SHOWN_CHARACTERS: Final = 300
"""Longest path, and longest message, of a reported error: the server chooses the names of members."""


class Mismatch(Exception):
    """The document is invalid; the message names the first few errors."""


def check(validate: Callable[[Any], object], document: Any) -> Iterator[None]:
    """Validate a document, yielding before each piece of a long one, so that the event loop can run others.

    Raises Mismatch, and whatever `validate` raises other than ValidationError.
    """
    for at, (piece, skipped) in enumerate(pieces(document, PIECE)):
        if piece is not document:
            yield
            if at == 0:
                _require_valid(validate, *next(pieces(document, _FIRST)))
        _require_valid(validate, piece, skipped)


def _require_valid(validate: Callable[[Any], object], piece: Any, skipped: tuple[int, ...]) -> None:
    """Raise Mismatch if a piece is invalid."""
    try:
        validate(piece)
    except ValidationError as exc:
        raise Mismatch(_describe_first_problems(validate, piece, skipped, exc)) from None


def _describe_first_problems(
    validate: Callable[[Any], object], piece: Any, skipped: tuple[int, ...], exc: ValidationError
) -> str:
    """Describe the errors of an invalid piece; of many, those of its first invalid part."""
    if exc.error_count() > _MANY:
        for part, before in pieces(piece, PIECE // _MANY):
            try:
                validate(part)
            except ValidationError as fewer:
                return describe_problems(fewer, tuple(map(sum, zip_longest(skipped, before, fillvalue=0))))
    return describe_problems(exc, skipped)


def describe_problems(exc: ValidationError, skipped: tuple[int, ...] = ()) -> str:
    """Describe the first few errors of a piece, in one line.

    `skipped` says, for each list on the path to the piece's entries, how many entries were left out before them.
    """
    found = exc.errors(include_url=False, include_context=False, include_input=False)[:_SHOWN]
    lines = [(_error_path(problem["loc"], skipped), problem["msg"][:_SHOWN_CHARACTERS]) for problem in found]
    return "; ".join(f"{place}: {what}" if place else what for place, what in lines)


def _error_path(steps: tuple[int | str, ...], skipped: tuple[int, ...]) -> str:
    """Return where an error is, as a dotted path; indexes count the entries that were left out before."""
    before = iter(skipped)
    named = (str(step + next(before, 0)) if isinstance(step, int) else step for step in steps)
    return ".".join(named)[:_SHOWN_CHARACTERS]


def pieces(document: Any, size: int, depth: int = 0) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Split a document into pieces of about `size` values that together are valid exactly if it is.

    Each comes with how many entries were left out before its own, for each of the lists on the path to it.
    """
    if depth == DEEPEST or weight(document) < size:
        yield document, ()
    elif isinstance(document, list):
        yield from _list_pieces(cast("list[Any]", document), size, depth)
    else:
        yield from _object_pieces(cast("dict[str, Any]", document), size, depth)


def _list_pieces(entries: list[Any], size: int, depth: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Split a list as `pieces` does: into parts of it, and each piece of a large entry as a list of one."""
    start, filled = 0, 0
    for at, entry in enumerate(entries):
        entry_weight = weight(entry)
        if filled and filled + entry_weight >= size:
            yield entries[start:at], (start,)
            start, filled = at, 0
        if entry_weight < size:
            filled += entry_weight
            continue
        for piece, skipped in pieces(entry, size, depth + 1):
            yield [piece], (at, *skipped)
        start = at + 1
    if filled:
        yield entries[start:], (start,)


def _object_pieces(members: dict[str, Any], size: int, depth: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Split an object as `pieces` does; each piece also has, reduced, the members that a schema may require."""
    frame = _required_members(members, _ReductionBudget(_FRAME))
    group, filled = dict(frame), 0
    for name, member in members.items():
        entry_weight = weight(member)
        if filled and filled + entry_weight >= size:
            yield group, ()
            group, filled = dict(frame), 0
        if entry_weight < size:
            group[name] = member
            filled += entry_weight
            continue
        for piece, skipped in pieces(member, size, depth + 1):
            yield {**frame, name: piece}, skipped
    if filled:
        yield group, ()


class _ReductionBudget:
    """How many more values the reduced members of one object may have."""

    def __init__(self, values: int) -> None:
        self._values = values

    def spend(self) -> None:
        """Count one value. Raises Mismatch when there are too many."""
        self._values -= 1
        if self._values < 0:
            raise Mismatch("it has too many large members in one object")


def _required_members(members: dict[str, Any], budget: _ReductionBudget) -> dict[str, Any]:
    """Return the members without which an object may be invalid, reduced: those that some schema requires.

    An object without any of these keeps its first member, as some schema may forbid an empty object.
    """
    frame = {name: _reduced_value(members[name], budget) for name in required_names() if name in members}
    if not frame and members:
        name = next(iter(members))
        frame[name] = _reduced_value(members[name], budget)
    return frame


def _reduced_value(value: Any, budget: _ReductionBudget) -> Any:
    """Return a smaller value that is valid if this one is: each list has one entry, each object what is required."""
    budget.spend()
    if weight(value, _SMALL) < _SMALL:
        return value
    if isinstance(value, list):
        return [_reduced_value(entry, budget) for entry in cast("list[Any]", value)[:1]]
    return _required_members(cast("dict[str, Any]", value), budget)


def weight(value: Any, enough: int = PIECE) -> int:
    """Count the values in a document; stop at `enough`, and then return any number that is not below it."""
    count = 1
    values: list[Any] = [value]
    for inner in values:  # the loop extends it; a hot path of every call, therefore without function calls
        kind: type[object] = inner.__class__
        if kind is dict:
            children = inner.values()
        elif kind is list:
            children = inner
        else:
            continue
        count += len(children)
        if count >= enough:
            break
        values += children
    return count


@cache
def required_names() -> frozenset[str]:
    """Return the names of members that some schema requires or discriminates by."""
    names: set[str] = set()
    waiting: list[type[BaseModel]] = [BaseModel]
    while waiting:
        model = waiting.pop()
        waiting.extend(model.__subclasses__())
        if model.__module__.partition(".")[0] not in ("mcp_types", "hubbubd"):
            continue
        for name, field in model.model_fields.items():
            if field.is_required() or get_origin(field.annotation) is Literal:
                names.update((field.alias or name, name))
    return frozenset(names)
