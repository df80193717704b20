"""The newest revision that a client has seen, so that no other member of its hub shows it anything older.

The metadata `hubbub-revision` has it both ways: the history (the id of the store), a space, and the number. A client
that has seen nothing sends a dash, which asks to be told.
"""

from base64 import urlsafe_b64decode
from collections.abc import Iterable
from typing import Any, Final

from hubbub_client import numbers

KEY: Final = "hubbub-revision"
NOTHING: Final = "-"
MAX_HISTORY: Final = 64


class Seen:
    """The newest revision seen, of the history that was seen last."""

    def __init__(self) -> None:
        self._history = ""
        self._revision = 0

    def metadata(self) -> tuple[str, str]:
        """Return the entry to send."""
        return KEY, f"{self._history} {self._revision}" if self._history else NOTHING

    def note(self, text: str) -> None:
        """Take what a member says; what is no revision is passed over."""
        history, _, number = text.partition(" ")
        revision = numbers.whole_text(number)
        if revision is None or not (history.isascii() and history.isalnum()) or len(history) > MAX_HISTORY:
            return
        if history == self._history:
            self._revision = max(self._revision, revision)
        else:  # the members have turned to another history: revisions of the old one mean nothing there
            self._history, self._revision = history, revision

    def note_token(self, token: str) -> None:
        """As `note`, of a resume token, which names the history and the revision up to which changes were shown."""
        try:
            parts = urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)).decode("ascii").split(" ")
        except ValueError:
            return
        if len(parts) == 4:  # history, filter, revision, whether a snapshot goes on
            self.note(f"{parts[0]} {parts[2]}")

    def note_metadata(self, metadata: Iterable[tuple[str, Any]] | None) -> None:
        """As `note`, of the metadata at the end of an RPC."""
        for key, value in metadata or ():
            if key == KEY and isinstance(value, str):
                self.note(value)
