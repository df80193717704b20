"""Steps: changes that wait in write-behind, each made of what the store has by then."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from hubbubd.frozen import carry_over_changes

T = TypeVar("T")

FEW = 4
"""How many steps wait for a record unmerged; beyond that, a step that begins where the last one ended joins it."""

STEPS = 256
"""How many steps wait for a record; beyond that all are merged into one, which changes the same fields."""

Step = Callable[[T | None], T | None]
"""Returns what becomes of a record; the same object if there is nothing to do, None if it is deleted. Has no effects.

A step may be called more than once, each time with the record that is stored by then (None: there is none).
"""


def delete(_: object) -> None:
    """Return None: as a step, this deletes the record, whatever has become of it."""


@dataclass(slots=True)
class PendingSteps(Generic[T]):
    """The steps that wait for a record, each with its number, and the record that they make."""

    steps: list[tuple[int, Step[T]]]
    record: T | None

    def merge(self, stored: T | None, *, is_certain: bool) -> None:
        """Merge the last two steps if the second begins where the first ends; else merge all if more than STEPS wait.

        Merging all makes one step that changes the `stored` record to what these steps make of it now. No commit with
        some of the steps may be under way. Without `is_certain` a commit with some of them was given up and may still
        happen: then the last two are not merged, as it may contain only the first of them.
        """
        (_, previous), (newest_number, last) = self.steps[-2:]
        merged = _merge_steps(previous, last) if is_certain else None
        if merged is not None:
            self.steps[-2:] = [(newest_number, merged)]
        elif len(self.steps) > STEPS:
            self.steps[:] = [(newest_number, partial(carry_over_changes, stored, self.record))]


def _merge_steps(first: Step[T], then: Step[T]) -> Step[T] | None:
    """Merge two steps `partial(how, before, after)` into one, if the second begins with what the first has made.

    Return None if they do not fit together.
    """
    if not (isinstance(first, partial) and isinstance(then, partial)) or first.func is not then.func:
        return None
    match first.args, then.args:
        # By identity: the second step was planned from the very record that the first one makes.
        case (before, between), (start, after) if between is start is not None:
            return cast("Step[T]", partial(cast("Any", first).func, before, after))
        case _:
            return None
