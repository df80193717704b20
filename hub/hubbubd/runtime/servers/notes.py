"""Notes about a server, for its operator: how it deviates from what it should do, one text for each kind of note."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from hubbubd.redaction import REDACTION

MAX_NOTES: Final = 20
"""The most notes about one server; once there are so many, no further kinds are noted."""

MAX_CHARS: Final = 500
"""The most characters of a note."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Note:
    """A note. `attempt` is the number of the last attempt to connect when it was made; see `ServerNotes.note`."""

    text: str
    lasting: bool
    attempt: int


class ServerNotes:
    """The notes about one server. `on_change` is called after each change of `texts`."""

    def __init__(self, server: str, on_change: Callable[[], None]) -> None:
        self._server = server
        self._on_change = on_change
        self._notes: dict[str, _Note] = {}
        self._attempt = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the notes, in the order in which their kinds were first noted."""
        return tuple(note.text for note in self._notes.values())

    def note(self, kind: str, text: str | None, *, lasting: bool = False) -> None:
        """Set the note of a kind to `text`; None removes it. A `lasting` note outlives the connection."""
        before = self._notes.get(kind)
        if text is None:
            if before is not None:
                del self._notes[kind]
                self._on_change()
            return
        after = _Note(_shorten(text), lasting, self._attempt)
        if after == before or (before is None and len(self._notes) >= MAX_NOTES):
            return
        self._notes[kind] = after
        if before is None:  # once for each kind: a server can make a text change as often as it likes
            log.warning("server noted", server=self._server, kind=kind, note=after.text)
        if before is None or before.text != after.text:
            self._on_change()

    def begin_attempt(self) -> None:
        """Begin an attempt to connect: notes from now on are about the connection that results."""
        self._attempt += 1

    def drop_outdated(self) -> None:
        """Drop the notes about earlier connections, except lasting ones; to be called once a new connection is made."""
        current = {kind: note for kind, note in self._notes.items() if note.lasting or note.attempt == self._attempt}
        if len(current) < len(self._notes):
            self._notes = current
            self._on_change()


def _shorten(text: str) -> str:
    """Return a note's text redacted, and cut to MAX_CHARS characters."""
    redacted = REDACTION.redact_text(text[: 2 * MAX_CHARS].encode("utf-8", "replace").decode())
    return redacted if len(redacted) <= MAX_CHARS else f"{redacted[: MAX_CHARS - 3]}..."
