"""The newest revision that a client has seen, so that no other member of its hub shows it anything older.

The metadata `hubbub-revision` has it both ways: the history (the id of the store), a space, and the number. A client
that has seen nothing sends a dash, which asks for the revision.
"""

from base64 import urlsafe_b64decode
from collections.abc import Iterable
from typing import Any, Final

from hubbub_client import numbers

KEY: Final = "hubbub-revision"
NOTHING: Final = "-"
MAX_HISTORY: Final = 64


class SeenRevision:
    """The newest revision seen, of the history that was seen last."""

    def __init__(self) -> None:
        self._history = ""
        self._revision = 0

    def metadata(self) -> tuple[str, str]:
        """Return the metadata entry with the newest revision seen, or a dash, which asks the hub for its revision."""
        return KEY, f"{self._history} {self._revision}" if self._history else NOTHING

    def note_revision(self, text: str) -> None:
        """Note the revision that a member sent; a text that is no revision is ignored."""
        history, _, number = text.partition(" ")
        revision = numbers.whole_text(number)
        if revision is None or not (history.isascii() and history.isalnum()) or len(history) > MAX_HISTORY:
            return
        if history == self._history:
            self._revision = max(self._revision, revision)
        else:  # the members have turned to another history: revisions of the old one mean nothing there
            self._history, self._revision = history, revision

    def note_token(self, token: str) -> None:
        """Note the revision in a resume token, up to which its watch has streamed changes."""
        try:
            parts = urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)).decode("ascii").split(" ")
        except ValueError:
            return
        if len(parts) == 4:  # history, filter, revision, whether a snapshot goes on
            self.note_revision(f"{parts[0]} {parts[2]}")

    def note_metadata(self, metadata: Iterable[tuple[str, Any]] | None) -> None:
        """Note the revision in the trailing metadata of an RPC."""
        for key, value in metadata or ():
            if key == KEY and isinstance(value, str):
                self.note_revision(value)
