"""What was noted about a server, for its operator: what it does otherwise than it should, one text for each matter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from hubbubd.redaction import REDACTION

MOST: Final = 20
"""The most notes about one server; once there are so many, further matters are not noted."""

LONGEST: Final = 500
"""Characters of a note."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Note:
    """A note. `attempt` is the number of the attempt to connect at which the note was made."""

    text: str
    lasting: bool
    attempt: int


class ServerNotes:
    """The notes about one server. `changed` is called after each change of `texts`."""

    def __init__(self, server: str, changed: Callable[[], None]) -> None:
        self._server = server
        self._changed = changed
        self._kept: dict[str, _Note] = {}
        self._attempt = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """The notes that hold, the matter that was noted first at the beginning."""
        return tuple(note.text for note in self._kept.values())

    def note(self, kind: str, text: str | None, *, lasting: bool = False) -> None:
        """Note a `text` about the matter `kind`; None removes its note. A `lasting` note outlives the connection."""
        before = self._kept.get(kind)
        if text is None:
            if before is not None:
                del self._kept[kind]
                self._changed()
            return
        after = _Note(_shorten(text), lasting, self._attempt)
        if after == before or (before is None and len(self._kept) >= MOST):
            return
        self._kept[kind] = after
        if before is None:  # once for each matter: a server can make a text change as often as it likes
            log.warning("server noted", server=self._server, kind=kind, note=after.text)
        if before is None or before.text != after.text:
            self._changed()

    def begin_attempt(self) -> None:
        """Begin an attempt to connect: what is noted from now on is about the connection that it makes."""
        self._attempt += 1

    def drop_outdated(self) -> None:
        """Drop the notes about earlier connections, but for lasting ones, as a new connection was made."""
        held = {kind: note for kind, note in self._kept.items() if note.lasting or note.attempt == self._attempt}
        if len(held) < len(self._kept):
            self._kept = held
            self._changed()


def _shorten(text: str) -> str:
    """Return a note's text redacted, and cut to LONGEST characters."""
    whole = REDACTION.redact_text(text[: 2 * LONGEST].encode("utf-8", "replace").decode())
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 3]}..."
