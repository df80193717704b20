"""Steps: changes that wait in write-behind. Each is a function of the record that is stored by then."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from hubbubd.frozen import carry_over_changes

T = TypeVar("T")

MAX_UNMERGED_STEPS = 4
"""How many steps wait for a record unmerged; beyond that, a step that begins where the last one ends is merged."""

MAX_STEPS = 256
"""How many steps wait for a record; beyond that all are merged into one step that changes the same fields."""

Step = Callable[[T | None], T | None]
"""Returns the record after the step: the same object if there is nothing to do, None to delete it. No side effects.

A step may be called more than once, each time with the record that is stored by then (None: there is none).
"""


def delete(_: object) -> None:
    """Return None: as a step, this deletes the record in any state."""


@dataclass(slots=True)
class PendingSteps(Generic[T]):
    """The steps that wait for a record, each with its number, and the record after all steps."""

    steps: list[tuple[int, Step[T]]]
    record: T | None

    def merge(self, stored: T | None, *, is_certain: bool) -> None:
        """Merge the last two steps if the second begins where the first ends; else all if more than MAX_STEPS wait.

        The merge of all is one step that changes the same fields of the `stored` record as all these steps. No commit
        of some of the steps may be under way. Without `is_certain` such a commit was given up and may still happen:
        then the last two are not merged, as that commit may contain only the first of them.
        """
        (_, previous), (newest_number, last) = self.steps[-2:]
        merged = _merge_steps(previous, last) if is_certain else None
        if merged is not None:
            self.steps[-2:] = [(newest_number, merged)]
        elif len(self.steps) > MAX_STEPS:
            self.steps[:] = [(newest_number, partial(carry_over_changes, stored, self.record))]


def _merge_steps(first: Step[T], then: Step[T]) -> Step[T] | None:
    """Merge two steps `partial(function, before, after)` into one if the second begins with the result of the first.

    Return None if they cannot be merged.
    """
    if not (isinstance(first, partial) and isinstance(then, partial)) or first.func is not then.func:
        return None
    match first.args, then.args:
        # By identity: the second step was planned from the very record that the first one makes.
        case (before, middle), (start, after) if middle is start is not None:
            return cast("Step[T]", partial(cast("Any", first).func, before, after))
        case _:
            return None
