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
    for at, (piece, skipped) in enumerate(split_into_pieces(document, PIECE)):
        if piece is not document:
            yield
            if at == 0:
                _require_valid(validate, *next(split_into_pieces(document, _FIRST)))
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
        for part, before in split_into_pieces(piece, PIECE // _MANY):
            try:
                validate(part)
            except ValidationError as part_error:
                return describe_problems(part_error, tuple(map(sum, zip_longest(skipped, before, fillvalue=0))))
    return describe_problems(exc, skipped)


def describe_problems(exc: ValidationError, skipped: tuple[int, ...] = ()) -> str:
    """Describe the first few errors of a piece, in one line.

    `skipped` says, for each list on the path to the piece's entries, how many entries were left out before them.
    """
    errors = exc.errors(include_url=False, include_context=False, include_input=False)[:_SHOWN]
    lines = [(_error_path(problem["loc"], skipped), problem["msg"][:_SHOWN_CHARACTERS]) for problem in errors]
    return "; ".join(f"{place}: {what}" if place else what for place, what in lines)


def _error_path(steps: tuple[int | str, ...], skipped: tuple[int, ...]) -> str:
    """Return where an error is, as a dotted path; indexes count the entries that were left out before."""
    before = iter(skipped)
    named = (str(step + next(before, 0)) if isinstance(step, int) else step for step in steps)
    return ".".join(named)[:_SHOWN_CHARACTERS]


def split_into_pieces(document: Any, size: int, depth: int = 0) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Split a document into pieces of about `size` values; all pieces are valid exactly if the document is.

    Yield each piece with, for each list on the path to it, the number of entries before those in the piece.
    """
    if depth == DEEPEST or count_values(document) < size:
        yield document, ()
    elif isinstance(document, list):
        yield from _split_list(cast("list[Any]", document), size, depth)
    else:
        yield from _split_object(cast("dict[str, Any]", document), size, depth)


def _split_list(entries: list[Any], size: int, depth: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Split a list as `split_into_pieces` does: into parts of it, and each piece of a large entry as a list of one."""
    start, group_weight = 0, 0
    for at, entry in enumerate(entries):
        entry_weight = count_values(entry)
        if group_weight and group_weight + entry_weight >= size:
            yield entries[start:at], (start,)
            start, group_weight = at, 0
        if entry_weight < size:
            group_weight += entry_weight
            continue
        for piece, skipped in split_into_pieces(entry, size, depth + 1):
            yield [piece], (at, *skipped)
        start = at + 1
    if group_weight:
        yield entries[start:], (start,)


def _split_object(members: dict[str, Any], size: int, depth: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Split an object as `split_into_pieces` does; each piece also has, reduced, members that a schema may require."""
    frame = _reduce_members(members, _ReductionBudget(_FRAME))
    group, group_weight = dict(frame), 0
    for name, member in members.items():
        entry_weight = count_values(member)
        if group_weight and group_weight + entry_weight >= size:
            yield group, ()
            group, group_weight = dict(frame), 0
        if entry_weight < size:
            group[name] = member
            group_weight += entry_weight
            continue
        for piece, skipped in split_into_pieces(member, size, depth + 1):
            yield {**frame, name: piece}, skipped
    if group_weight:
        yield group, ()


class _ReductionBudget:
    """The number of values that the reduced members of one object may still have."""

    def __init__(self, values: int) -> None:
        self._values = values

    def spend(self) -> None:
        """Count one value. Raises Mismatch when there are too many."""
        self._values -= 1
        if self._values < 0:
            raise Mismatch("it has too many large members in one object")


def _reduce_members(members: dict[str, Any], budget: _ReductionBudget) -> dict[str, Any]:
    """Return the members without which an object may be invalid, reduced: those that some schema requires.

    An object without such members keeps its first member, as some schema may forbid an empty object.
    """
    frame = {name: _reduce_value(members[name], budget) for name in required_names() if name in members}
    if not frame and members:
        name = next(iter(members))
        frame[name] = _reduce_value(members[name], budget)
    return frame


def _reduce_value(value: Any, budget: _ReductionBudget) -> Any:
    """Return a smaller value that is valid if this one is: lists have one entry, objects their required members."""
    budget.spend()
    if count_values(value, _SMALL) < _SMALL:
        return value
    if isinstance(value, list):
        return [_reduce_value(entry, budget) for entry in cast("list[Any]", value)[:1]]
    return _reduce_members(cast("dict[str, Any]", value), budget)


def count_values(value: Any, limit: int = PIECE) -> int:
    """Return the number of values in a document; if it has at least `limit` values, any number of `limit` or more."""
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
        if count >= limit:
            break
        values += children
    return count


@cache
def required_names() -> frozenset[str]:
    """Return the names of members that some schema requires or discriminates by."""
    names: set[str] = set()
    pending: list[type[BaseModel]] = [BaseModel]
    while pending:
        model = pending.pop()
        pending.extend(model.__subclasses__())
        if model.__module__.partition(".")[0] not in ("mcp_types", "hubbubd"):
            continue
        for name, field in model.model_fields.items():
            if field.is_required() or get_origin(field.annotation) is Literal:
                names.update((field.alias or name, name))
    return frozenset(names)
