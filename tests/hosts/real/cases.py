"""What a program's model calls, and what people do about it: approved in time or late, changed, denied."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REASON = "not on a Friday"
CHANGED = "changed by ada"
FETCH = "hubbub_result"
ASK = "hubbub_ask"
"""Of all that is called here the one tool whose request is a form; the others' are approvals."""

QUESTION = {"message": "Which colour?", "choices": ["red", "blue"]}

Decide = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of a tool."""

    name: str
    tool: str
    arguments: Mapping[str, Any]
    hears: str
    """What the model must see."""
    decide: Decide | None = None
    """What people do about it; None if they must not be asked."""
    sent: Mapping[str, Any] | None = None
    """What the server must receive, once."""
    file: tuple[str, str | None] | None = None
    """A file of the program's folder and what must be in it afterwards; None if it must not be there."""
    late: str = ""
    """What the model sees first, if people decide only then."""


async def _approve(request: Any) -> None:
    await request.approve()


async def _deny(request: Any) -> None:
    await request.deny(REASON)


async def _choose(request: Any) -> None:
    await request.accept({"answer": "blue"})


def _change(**arguments: Any) -> Decide:
    async def change(request: Any) -> None:
        await request.approve({**request.approval.arguments, **arguments})

    return change


def of_servers() -> Sequence[Case]:
    """Calls of a server's tool that is not marked read-only."""

    def case(name: str, text: str, decide: Decide, hears: str, sent: str | None, late: str = "") -> Case:
        received = {"text": sent} if sent else None
        arguments = {"text": text}
        return Case(
            name=name, tool="plain__echo", arguments=arguments, decide=decide, hears=hears, sent=received, late=late
        )

    return (
        case("in time", "one", _approve, "one", "one"),
        case("changed", "two", _change(text=CHANGED), CHANGED, CHANGED),
        case("denied", "three", _deny, f"A person said no to this call: {REASON}", None),
        case("after the ticket", "four", _approve, "four", "four", late=FETCH),
        Case(name="question", tool=ASK, arguments=QUESTION, decide=_choose, hears="blue"),
    )


def of_claude_code(folder: str) -> Sequence[Case]:
    """Claude Code's own tools, about which it asks by a prompt tool or a hook."""

    def bash(name: str, file: str, decide: Decide, hears: str, written: str | None, late: str = "") -> Case:
        command = f"echo {name} > {file} && cat {file}"
        arguments = {"command": command, "description": "Write a file"}
        return Case(
            name=f"Bash {name}",
            tool="Bash",
            arguments=arguments,
            decide=decide,
            hears=hears,
            file=(file, written),
            late=late,
        )

    def edit(name: str, old: str, new: str, decide: Decide, hears: str, written: str) -> Case:
        arguments = {"file_path": f"{folder}/notes.txt", "old_string": old, "new_string": new}
        file = ("notes.txt", written)
        return Case(name=f"Edit {name}", tool="Edit", arguments=arguments, decide=decide, hears=hears, file=file)

    notes = {"file_path": f"{folder}/notes.txt"}
    changed = _change(command=f"echo '{CHANGED}' > two.txt && cat two.txt")
    return (
        bash("approved", "one.txt", _approve, "approved", "approved\n"),
        bash("changed", "two.txt", changed, CHANGED, f"{CHANGED}\n"),
        bash("denied", "three.txt", _deny, REASON, None),
        bash("late", "four.txt", _approve, "late", "late\n", late="Nobody answered"),
        Case(name="Read, unasked", tool="Read", arguments=notes, hears="first"),
        edit("approved", "first", "second", _approve, "updated", "second\n"),
        edit("denied", "second", "third", _deny, REASON, "second\n"),
    )


NOTES = "first\n"
"""What is in notes.txt before."""
