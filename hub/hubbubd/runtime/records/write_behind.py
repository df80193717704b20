"""Steps: what waits in write-behind, to be made of whatever is there by then."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from hubbubd.frozen import carried_over

T = TypeVar("T")

FEW = 4
"""How many steps wait for a record as they are; of more, one that goes on from the last is joined with it."""

STEPS = 256
"""How many steps wait for a record; more are joined into one, which changes the same fields."""

Step = Callable[[T | None], T | None]
"""Returns what becomes of a record; the same object if there is nothing to do, None if it is deleted. Has no effects.

It may be asked more than once, each time for what is there by then.
"""


def gone(_: object) -> None:
    """Delete the record, whatever has become of it."""


@dataclass(slots=True)
class PendingSteps(Generic[T]):
    """The steps that wait for a record, each with its number, and what they make of it."""

    steps: list[tuple[int, Step[T]]]
    record: T | None

    def join(self, stored: T | None, *, sure: bool) -> None:
        """Join the last step with the one before it, or all that are made of the `stored` record if they are too many.

        No commit with some of them may be under way. It is not `sure` if one may still happen that was given up.
        """
        (_, before), (newest, last) = self.steps[-2:]
        joined = _joined(before, last) if sure else None
        if joined is not None:
            self.steps[-2:] = [(newest, joined)]
        elif len(self.steps) > STEPS:
            self.steps[:] = [(newest, partial(carried_over, stored, self.record))]


def _joined(first: Step[T], then: Step[T]) -> Step[T] | None:
    """Return one step for two changes `partial(how, before, after)` of which the second goes on where the first ended.

    None if they are not.
    """
    if not (isinstance(first, partial) and isinstance(then, partial)) or first.func is not then.func:
        return None
    match first.args, then.args:
        case (before, between), (known, after) if between is known is not None:
            return cast("Step[T]", partial(cast("Any", first).func, before, after))
        case _:
            return None
