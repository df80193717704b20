"""What hosts cannot do, whose it is, and what their users need to know. An entry that has come true otherwise is wrong.

A sentence is for the users of the program; the table of docs/hosts/README.md has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Owner = Literal["host", "hub", "by design"]


@dataclass(frozen=True, slots=True)
class Known:
    """Something that is known not to work."""

    program: str
    stops: Sequence[str]
    owner: Owner
    sentence: str
    over: Sequence[str] = ("http", "bridge")


KNOWN: Sequence[Known] = ()


def find_known(program: str, over: str, stop: str) -> Known | None:
    """Return what is known of a stop."""
    return next((each for each in KNOWN if each.program == program and over in each.over and stop in each.stops), None)
