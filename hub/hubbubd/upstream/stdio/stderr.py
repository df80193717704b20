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
"""A complaint that has not named the probe within so many lines is about something else."""

log = structlog.get_logger(__name__)

_PROBE: Final = "server/discover"
_COMPLAINT: Final = re.compile(
    rf"error|exception|fail|invalid|not found|traceback|unknown|unrecogni|unsupported|{_PROBE}", re.IGNORECASE
)
"""How a server begins to write about a request that it does not know."""

OnLine = Callable[[str], None]


class Tail:
    """The last lines of a stream; each is passed on to `on_line`, if any. `clock` returns monotonic seconds."""

    def __init__(self, on_line: OnLine | None, clock: Callable[[], float]) -> None:
        self._last_lines: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._unfinished_line = b""
        self._on_line = on_line
        self._clock = clock
        self._passed_on = 0
        self._second_started_at = clock()

    def lines(self) -> tuple[str, ...]:
        """Return the last lines, an unfinished one included: at most 50, of at most 2000 characters."""
        last_lines = [*self._last_lines, self._unfinished_line] if self._unfinished_line else self._last_lines
        return tuple(_decode_line(line) for line in last_lines)[-TAIL_LINES:]

    def drop_last_lines(self, count: int) -> None:
        """Drop this many of the last lines."""
        for _ in range(min(count, len(self._last_lines))):
            self._last_lines.pop()

    def feed(self, chunk: bytes) -> None:
        """Add a chunk; an empty one is the end of the stream."""
        data = self._unfinished_line + chunk
        if not chunk and data:
            data += b"\n"
        count = data.count(b"\n")
        # Of many lines only those that are kept or passed on are examined.
        *finished, unfinished = data.rsplit(b"\n", TAIL_LINES + 1)
        self._unfinished_line = _limit_line(unfinished)
        self._last_lines.extend(map(_limit_line, finished[-TAIL_LINES:]))
        if self._on_line is not None and count:
            self._pass_on_lines(data, count, self._on_line)

    @property
    def is_flooded(self) -> bool:
        """Whether this second has had more lines than are passed on."""
        return self._passed_on > BURST_LINES

    def _pass_on_lines(self, data: bytes, count: int, on_line: OnLine) -> None:
        """Pass on the lines of a chunk, BURST_LINES per second at most."""
        now = self._clock()
        if now - self._second_started_at >= 1.0:
            if self._passed_on > BURST_LINES:
                on_line(f"({self._passed_on - BURST_LINES} lines are left out)")
            self._second_started_at, self._passed_on = now, 0
        passed_on = min(max(BURST_LINES - self._passed_on, 0), count)
        for line in data.split(b"\n", passed_on)[:passed_on]:
            on_line(_decode_line(_limit_line(line)))
        self._passed_on += count


class Fold:
    """Folds the lines that a server writes because it does not know the probe (`negotiation.Negotiation`) into one.

    They would look like a failure of the server, and fill its log. From the first complaint on, lines are held back
    until it is known how the probe ended. `drop_last_lines` drops so many of the last lines of the tail.
    """

    def __init__(self, on_line: OnLine, drop_last_lines: Callable[[int], None], server: str) -> None:
        self._pass_on_line = on_line
        self._drop_last_lines = drop_last_lines
        self._server = server
        self._held_lines: list[str] = []
        self._is_probing = False

    def add_line(self, line: str) -> None:
        """Pass the next line on, or hold it back; held lines that turn out to be about something else are passed on."""
        if not self._is_probing or not (self._held_lines or _COMPLAINT.search(line)):
            self._pass_on_line(line)
            return
        self._held_lines.append(line)
        is_about_else = len(self._held_lines) == NAMED_WITHIN and _complaint_start(self._held_lines) == NAMED_WITHIN
        if is_about_else or len(self._held_lines) == HELD_LINES:
            self._pass_on_held_lines()

    def hold(self) -> None:
        """Hold lines back from the first complaint on, until `release` or `fold`: the probe is sent next."""
        self._is_probing = True

    def release(self) -> None:
        """Pass on the lines that are held back, and all later ones: they may say why the server does not connect."""
        self._is_probing = False
        self._pass_on_held_lines()

    def fold(self) -> None:
        """Pass on the held lines. One line stands for all those about the probe; the hub's log has them at debug."""
        start = _complaint_start(self._held_lines)
        folded = self._held_lines[start:]
        del self._held_lines[start:]
        self.release()
        if folded:
            self._drop_last_lines(len(folded))
            log.debug("stderr about the probe", server=self._server, lines=folded)
            count = "1 line is" if len(folded) == 1 else f"{len(folded)} lines are"
            self._pass_on_line(f"({count} left out: this server does not know {_PROBE}, which the hub asks first)")

    def _pass_on_held_lines(self) -> None:
        """Pass on the lines that are held back."""
        lines, self._held_lines = self._held_lines, []
        for line in lines:
            self._pass_on_line(line)


def _complaint_start(lines: list[str]) -> int:
    """Return the index of the line where the complaint about the probe begins; the number of lines if there is none."""
    probe_line = next((at for at, line in enumerate(lines) if _PROBE in line), len(lines))
    if probe_line == len(lines):
        return probe_line
    # An indented line goes on with what is above it.
    starts = (at for at in range(probe_line) if _COMPLAINT.search(lines[at]) and not lines[at][:1].isspace())
    return max(starts, default=probe_line)


def _limit_line(line: bytes) -> bytes:
    """Cut a line to as many bytes as TAIL_CHARACTERS characters can take."""
    return line[: 4 * TAIL_CHARACTERS].removesuffix(b"\r")


def _decode_line(line: bytes) -> str:
    """Return a line as text, redacted, of at most TAIL_CHARACTERS."""
    return REDACTION.redact_text(line.decode("utf-8", "replace"))[:TAIL_CHARACTERS]
