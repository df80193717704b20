"""The stderr of a stdio server: its last lines are kept, and each line is passed on, rate-limited."""

import re
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from hubbubd.redaction import REDACTION

TAIL_LINES: Final = 50
"""The last lines of stderr, which are kept to be shown with a fault."""

TAIL_CHARACTERS: Final = 2000
"""Characters of a line that are kept."""

BURST_LINES: Final = 200
"""Lines passed on per second; further ones are only counted, and their number is passed on with the next line."""

HELD_LINES: Final = 500
"""The most lines that are held back while a server is asked what it speaks; a log keeps no more either."""

NAMED_WITHIN: Final = 50
"""Lines after which a complaint that has not named the probe is about something else."""

log = structlog.get_logger(__name__)

_PROBE: Final = "server/discover"
_COMPLAINT: Final = re.compile(
    rf"error|exception|fail|invalid|not found|traceback|unknown|unrecogni|unsupported|{_PROBE}", re.IGNORECASE
)
"""How a server begins to write about a request that it does not know."""

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

    def forget(self, count: int) -> None:
        """Keep the last lines no longer, this many."""
        for _ in range(min(count, len(self._kept))):
            self._kept.pop()

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


class Fold:
    """Makes one line of those that a server writes because it does not know the probe (`negotiation.Negotiation`).

    They would look like a failure of the server, and push out of its log what matters. From the first complaint on,
    lines are held back until it is known how the probe ended. `forget` takes how many of the last lines to forget.
    """

    def __init__(self, tell: OnLine, forget: Callable[[int], None], server: str) -> None:
        self._tell = tell
        self._forget = forget
        self._server = server
        self._held: list[str] = []
        self._open = False

    def line(self, line: str) -> None:
        """Take the next line, and pass it on or hold it back."""
        if not self._open or not (self._held or _COMPLAINT.search(line)):
            self._tell(line)
            return
        self._held.append(line)
        about_else = len(self._held) == NAMED_WITHIN and _begin(self._held) == NAMED_WITHIN
        if about_else or len(self._held) == HELD_LINES:
            self._pass_on()

    def hold(self) -> None:
        """Hold lines back from now on: the probe is sent."""
        self._open = True

    def release(self) -> None:
        """Pass on what is held back, and hold nothing any more: the lines may say why the server does not connect."""
        self._open = False
        self._pass_on()

    def fold(self) -> None:
        """Tell of the lines about the probe in one, and of others as they are: the server has connected without it.

        The hub's own log has them all, at level debug.
        """
        begun = _begin(self._held)
        folded = self._held[begun:]
        del self._held[begun:]
        self.release()
        if folded:
            self._forget(len(folded))
            log.debug("stderr about the probe", server=self._server, lines=folded)
            count = "1 line is" if len(folded) == 1 else f"{len(folded)} lines are"
            self._tell(f"({count} left out: this server does not know {_PROBE}, which the hub asks first)")

    def _pass_on(self) -> None:
        held, self._held = self._held, []
        for line in held:
            self._tell(line)


def _begin(lines: list[str]) -> int:
    """Return where the complaint begins that names the probe; their number if none does."""
    named = next((at for at, line in enumerate(lines) if _PROBE in line), len(lines))
    if named == len(lines):
        return named
    # An indented line goes on with what is above it.
    heads = (at for at in range(named) if _COMPLAINT.search(lines[at]) and not lines[at][:1].isspace())
    return max(heads, default=named)


def _cut(line: bytes) -> bytes:
    """Limit a line to the bytes that the kept characters can take."""
    return line[: 4 * TAIL_CHARACTERS].removesuffix(b"\r")


def _text(line: bytes) -> str:
    return REDACTION.text(line.decode("utf-8", "replace"))[:TAIL_CHARACTERS]
