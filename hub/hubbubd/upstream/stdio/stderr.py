"""The stderr of a stdio server: its last lines are kept, and each line is passed on, rate-limited."""

from collections import deque
from collections.abc import Callable
from typing import Final

from hubbubd.redaction import REDACTION

TAIL_LINES: Final = 50
"""The last lines of stderr, which are kept to be shown with a fault."""

TAIL_CHARACTERS: Final = 2000
"""Characters of a line that are kept."""

BURST_LINES: Final = 200
"""Lines passed on per second; further ones are only counted, and their number is passed on with the next line."""

OnLine = Callable[[str], None]


class Tail:
    """The last lines of a stream. `clock` returns monotonic seconds."""

    def __init__(self, on_line: OnLine | None, clock: Callable[[], float]) -> None:
        self._kept: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._begun = b""
        self._on_line = on_line
        self._clock = clock
        self._told = 0
        self._since = clock()

    def lines(self) -> tuple[str, ...]:
        """Return the last lines, an unfinished one included: at most 50, of at most 2000 characters."""
        kept = [*self._kept, self._begun] if self._begun else self._kept
        return tuple(_text(line) for line in kept)[-TAIL_LINES:]

    def feed(self, chunk: bytes) -> None:
        """Add a chunk; an empty one is the end of the stream."""
        text = self._begun + chunk
        if not chunk and text:
            text += b"\n"
        count = text.count(b"\n")
        # Of many lines only those that are kept or passed on are examined.
        *ended, begun = text.rsplit(b"\n", TAIL_LINES + 1)
        self._begun = _cut(begun)
        self._kept.extend(map(_cut, ended[-TAIL_LINES:]))
        if self._on_line is not None and count:
            self._tell(text, count, self._on_line)

    @property
    def flooded(self) -> bool:
        """Whether this second has had more lines than are passed on."""
        return self._told > BURST_LINES

    def _tell(self, text: bytes, count: int, on_line: OnLine) -> None:
        now = self._clock()
        if now - self._since >= 1.0:
            if self._told > BURST_LINES:
                on_line(f"({self._told - BURST_LINES} lines are left out)")
            self._since, self._told = now, 0
        passed_on = min(max(BURST_LINES - self._told, 0), count)
        for line in text.split(b"\n", passed_on)[:passed_on]:
            on_line(_text(_cut(line)))
        self._told += count


def _cut(line: bytes) -> bytes:
    """Limit a line to the bytes that the kept characters can take."""
    return line[: 4 * TAIL_CHARACTERS].removesuffix(b"\r")


def _text(line: bytes) -> str:
    return REDACTION.text(line.decode("utf-8", "replace"))[:TAIL_CHARACTERS]
