"""Reads the state of a server from the output of a host's own command that lists its servers. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hubbub_shared.legible import clean

MAX_LINES: Final = 20
MAX_LINE_CHARS: Final = 500
"""So many lines of a program are shown, so long at most."""

ListedState = Literal["connected", "failed", "needs log-in", "switched off", "not approved", "listed"]
"""`listed`: it is there, and the program does not say whether it works."""

_STATES: Final[Mapping[str, ListedState]] = {
    r"needs (?:auth\w*|log-?in)|not logged in|unauthenticated": "needs log-in",
    r"pending approval|pending|not approved|rejected": "not approved",
    r"disabled|blocked": "switched off",
    r"(?:failed|error|disconnected|not connected|timed? ?out)\b.*": "failed",
    r"connected": "connected",
}
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_DECORATION: Final = re.compile(r"^[^\w/~.]*")
_MARK: Final = r"[^\w\s]*\s*"
_WARNING: Final = re.compile(r"\s*(?:warning|error)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedServer:
    """A server in a host's own list of servers: its state, and the lines about it."""

    state: ListedState
    lines: tuple[str, ...]


def split_lines(output: str) -> list[str]:
    """Return the lines of what a program printed, without what steers a terminal, and cut at MAX_LINE_CHARS."""
    lines = (_ESCAPES.sub("", line).rstrip() for line in output.splitlines())
    return [clean(line[:MAX_LINE_CHARS]) for line in lines]


def find_warnings(lines: list[str]) -> list[str]:
    """Return the lines of a program that warn of something."""
    return [line.strip() for line in lines if _WARNING.match(line)][:MAX_LINES]


def find_listed_server(lines: list[str], name: str) -> ListedServer | None:
    """Return what a list says of a server; None if the server is not in it."""
    for number, line in enumerate(lines):
        rest = _DECORATION.sub("", line)
        if not re.match(rf"{re.escape(name)}(?![\w.-])", rest):
            continue
        about = [" ".join(rest.split()), *_list_details(lines[number + 1 :], line)]
        return ListedServer(state=_find_state(rest[len(name) :]), lines=tuple(about[:MAX_LINES]))
    return None


def _list_details(lines: list[str], first: str) -> list[str]:
    """Return the lines about a server below its first line: those that are indented deeper."""
    depth = _count_depth(first)
    details: list[str] = []
    for line in lines:
        text = _DECORATION.sub("", line)
        if not text or _count_depth(line) <= depth:
            break
        details.append(" ".join(text.split()))
    return details


def _count_depth(line: str) -> int:
    """Return how many characters of decoration and indentation a line begins with."""
    found = _DECORATION.match(line)
    return len(found[0]) if found else 0


def _find_state(rest: str) -> ListedState:
    """Return the state after a server's name: at once, after ` - `, in brackets, or as a column of a table."""
    for before in (rf"^[:\s]*{_MARK}", rf"\s-\s+{_MARK}", r"\((?:[\w ]+,\s*)?", r"\s{2,}"):
        for pattern, state in _STATES.items():
            if re.search(rf"{before}(?:{pattern})(?:$|[\s,.;:()—])", rest.rstrip() + " ", re.IGNORECASE):
                return state
    return "listed"
