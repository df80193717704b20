"""Beginnings of ids: `calls get lun` is `calls get lunch`, if no other id begins so.

The hub is asked for the ids only when it knows none that is written exactly so. So a whole id costs nothing more.
The id of a claim is a secret that no list has, so it is always written whole.
"""

from typing import Any

from hubbub_cli.output.printer import note, row_of
from hubbub_cli.run.session import Usage
from hubbub_cli.syntax.advice import MOST_LOOKED_AT, NOUNS, Noun, asked

HAVE_IDS = ("CALL_NOT_FOUND", "REQUEST_NOT_FOUND", "TASK_NOT_FOUND")
MOST_SHOWN = 10


def complete(ctx: Any, error: Any) -> bool:
    """Replace the beginning of an id among the parameters by the id; return whether there was one.

    `error` is the hub's refusal of it. Raises Usage if several ids begin so.
    """
    noun = NOUNS.get(error.reason) if error.reason in HAVE_IDS else None
    wrong = noun and error.metadata.get(noun.key)
    params = [name for name, value in ctx.params.items() if wrong and value == wrong]
    if not (noun and wrong and params):
        return False
    records = asked(ctx, noun.records) or ()
    found = [each for each in records if noun.name_of(each).startswith(wrong) and noun.name_of(each) != wrong]
    if len(found) > 1:
        raise _ambiguous(noun, wrong, found)
    for each in found:
        ctx.params.update(dict.fromkeys(params, noun.name_of(each)))
        if not ctx.obj.json:
            note(f"{wrong} is the {noun.key} {noun.name_of(each)}")
    return bool(found)


def _ambiguous(noun: Noun, wrong: str, found: list[Any]) -> Usage:
    """Return the error for the beginning of several ids, with a line on each."""
    many = f"at least {len(found)}" if len(found) >= MOST_LOOKED_AT else str(len(found))
    problem = Usage(f"{wrong!r} is the beginning of {many} {noun.key}s; write more of the id")
    for each in found[:MOST_SHOWN]:
        problem.add_note("  ".join(["", *(cell for _, cell in row_of(each) if cell != "-")]))
    if len(found) > MOST_SHOWN:
        problem.add_note(f"  and {len(found) - MOST_SHOWN} more: hubbub {noun.lister}")
    return problem
