"""Whether what was seen of a fleet over time has grown, or was ever past its bounds."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .looks import Look

QUARTERS = 4
GROWTH = 0.10
"""What memory may have grown by, as a share."""

Read = Callable[[Look], float | None]
"""A number of a look; None if it was not to be seen then."""


@dataclass(frozen=True, slots=True)
class Steady:
    """What must not grow: by more than a share and by more than what is noise."""

    name: str
    read: Read
    noise: float = 0.0
    of: Callable[[Sequence[float]], float] = statistics.median
    """What stands for a quarter."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """What must never be more than this."""

    name: str
    read: Read
    bound: float


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one of them: what stands for the first and for the last quarter, and the most."""

    name: str
    first: float
    last: float
    most: float
    bound: float
    wrong: str


def after_warm_up(looks: Sequence[Look], warm_up_s: float) -> list[Look]:
    """Those that count."""
    return [look for look in looks if look.at_s >= warm_up_s]


def grown(looks: Sequence[Look], what: Steady) -> Row:
    """Compares the last quarter with the first one."""
    first, last = (what.of(_seen(part, what)) for part in _outer(looks))
    bound = first + max(first * GROWTH, what.noise)
    wrong = f"{what.name} has grown from {first:.1f} to {last:.1f}" if last > bound else ""
    return Row(what.name, first, last, max(_seen(looks, what)), bound, wrong)


def bounded(looks: Sequence[Look], what: Bounded) -> Row:
    """Compares the most that was ever seen with its bound."""
    first, last = (statistics.median(_seen(part, what)) for part in _outer(looks))
    most = max(_seen(looks, what))
    wrong = f"{what.name}: {most:.1f} at most, and its bound is {what.bound:.1f}" if most > what.bound else ""
    return Row(what.name, first, last, most, what.bound, wrong)


def table(rows: Sequence[Row]) -> str:
    """All of it, to be read."""
    lines = [f"{'':>28} {'first quarter':>14} {'last quarter':>14} {'most':>10} {'bound':>10}"]
    lines += [
        f"{row.name:>28} {row.first:>14.1f} {row.last:>14.1f} {row.most:>10.1f} {row.bound:>10.1f}"
        f"  {'WRONG' if row.wrong else ''}".rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def _seen(looks: Sequence[Look], what: Steady | Bounded) -> list[float]:
    return [value for look in looks if (value := what.read(look)) is not None] or [0.0]


def _outer(looks: Sequence[Look]) -> tuple[Sequence[Look], Sequence[Look]]:
    """The first and the last quarter."""
    quarter = max(len(looks) // QUARTERS, 1)
    return looks[:quarter], looks[-quarter:]
