"""Beginnings of ids: `calls get lun` is `calls get lunch`, if no other id begins so.

The hub is asked for the ids only when it knows none that is written exactly so. So a whole id costs nothing more.
The id of a claim is a secret that no list has, so it is always written whole.
"""

from typing import Any

from hubbub_cli.output.printer import make_row, note
from hubbub_cli.run.session import Usage
from hubbub_cli.syntax.advice import MAX_RECORDS, NOUNS, Noun, ask_hub

HAVE_IDS = ("APPROVAL_NOT_FOUND", "CALL_NOT_FOUND", "REQUEST_NOT_FOUND", "TASK_NOT_FOUND")
MAX_SHOWN = 10


def complete_ids(ctx: Any, error: Any) -> bool:
    """Replace the beginning of an id among the command's parameters by the whole id, and say so.

    `error` is the refusal by the hub, which knows no such id. Return whether a parameter was replaced. Raises Usage if
    several ids begin in this way.
    """
    noun = NOUNS.get(error.reason) if error.reason in HAVE_IDS else None
    prefix = noun and error.metadata.get(noun.key)
    params = [name for name, value in ctx.params.items() if prefix and value == prefix]
    if not (noun and prefix and params):
        return False
    records = ask_hub(ctx, noun.records) or ()
    matches = [each for each in records if noun.get_name(each).startswith(prefix) and noun.get_name(each) != prefix]
    if len(matches) > 1:
        raise _make_ambiguity_error(noun, prefix, matches)
    for each in matches:
        ctx.params.update(dict.fromkeys(params, noun.get_name(each)))
        if not ctx.obj.json:
            note(f"{prefix} is the {noun.key} {noun.get_name(each)}")
    return bool(matches)


def _make_ambiguity_error(noun: Noun, prefix: str, matches: list[Any]) -> Usage:
    """Return the error for the beginning of several ids, with a line on each."""
    count = f"at least {len(matches)}" if len(matches) >= MAX_RECORDS else str(len(matches))
    problem = Usage(f"{prefix!r} is the beginning of {count} {noun.key}s; write more of the id")
    for each in matches[:MAX_SHOWN]:
        problem.add_note("  ".join(["", *(cell for _, cell in make_row(each) if cell != "-")]))
    if len(matches) > MAX_SHOWN:
        problem.add_note(f"  and {len(matches) - MAX_SHOWN} more: hubbub {noun.lister}")
    return problem
