"""Text of agents: without the escape sequences of terminals, and bounded.

ECMA-48 has the sequences: CSI, control strings (OSC, DCS, APC, PM, SOS), and two-byte ones; each also with its C1 code.
"""

import re
from typing import Final

STRING_CHARACTERS: Final = 4096
"""The most characters of a control string: what begins one and never ends it does not hide all that follows.

None has the beginning of another one in it, so that a text of nothing but beginnings is read once.
"""

_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}[@-~]?"
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])(?:[^\x07\x1b\x90\x98\x9c-\x9f]{{0,{STRING_CHARACTERS}}}(?:\x07|\x1b\\|\x9c))?"
    r"|\x1b[ -/]{0,16}[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def strip_escapes(text: str) -> str:
    """Return the text without escape sequences and control characters; tabs and line feeds stay."""
    return _ESCAPES.sub("", text)


def shorten(text: str, limit: int) -> str:
    """Return the beginning of a text, with an ellipsis where it goes on."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def make_line(value: object, limit: int) -> str:
    """Return a value of an agent as one line of at most `limit` characters; "" if it is no text.

    No more than its first 4 * `limit` characters are looked at, however long the agent's text is.
    """
    return shorten(" ".join(strip_escapes(value[: 4 * limit]).split()), limit) if isinstance(value, str) else ""


def count_bytes(text: str) -> int:
    """Return how many bytes a text has as UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


class TextTail:
    """The end of a text that grows; `omitted` counts the characters that were dropped from its beginning."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[str] = []
        self._characters = 0
        self.omitted = 0

    def append(self, text: str) -> None:
        """Add a text at the end. Drop the beginning only now and then, so that the time per character stays small."""
        self._parts.append(text)
        self._characters += len(text)
        if self._characters > 2 * self._max_bytes or len(self._parts) > 1024:
            whole = "".join(self._parts)
            tail = whole[-self._max_bytes :]
            self.omitted += len(whole) - len(tail)
            self._parts, self._characters = [tail], len(tail)

    def read(self) -> str:
        """Return the end of the text, at most `max_bytes` of UTF-8, without escape sequences."""
        text = strip_escapes("".join(self._parts))
        raw = text.encode(errors="replace")
        return text if len(raw) <= self._max_bytes else raw[-self._max_bytes :].decode(errors="ignore")

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return self._characters == 0
