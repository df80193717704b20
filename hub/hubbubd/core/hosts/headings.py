"""Headings of Markdown and HTML, taken off text of servers that stands under headings of the hub's own.

Else a server could end its part and begin one in another server's name. CommonMark 0.31, 4.2 and 4.3.
"""

import re
from typing import Final

_LINE_START: Final = re.compile(r"[\W_]*\d{0,9}[\W_]*")
"""What may stand before the first word of a line: marks of lists and quotes, invisible characters, and those of a
heading."""

_MARKS: Final = str.maketrans("", "", "#\uff03\ufe5f")
_UNDERLINE: Final = re.compile(r"\s*(=+|-+)\s*")
_ELEMENT: Final = re.compile(r"<\s*/?\s*h[1-6]\b[^<>]{0,200}>?", re.IGNORECASE)


def without_headings(text: str) -> str:
    """Return a text whose lines are no headings: their words stay."""
    lines = (line for line in _ELEMENT.sub("", text).splitlines() if not _UNDERLINE.fullmatch(line))
    return "\n".join(map(_strip_marks, lines))


def _strip_marks(line: str) -> str:
    """Return a line without the number signs before its first word, which would make it a heading."""
    start = _LINE_START.match(line)
    end = start.end() if start is not None else 0
    return line[:end].translate(_MARKS) + line[end:]
