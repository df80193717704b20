"""`hubbub calls show --timeline`: where the time of a call went, as a picture for the terminal."""

from rich.text import Text

from hubbub_cli.output.printer import console
from hubbub_client.data.records import Call
from hubbub_frontend.display import text
from hubbub_frontend.display.records import call_state, format_duration
from hubbub_frontend.display.timeline import PartKind, QuestionSpan, Timeline

LABEL = 8
STYLES: dict[PartKind, str] = {"queued": "yellow", "server": "blue", "person": "magenta"}
MARKS = {
    "shown": "○",
    "claimed": "◐",
    "released": "◌",
    "lapsed": "◌",
    "not_counted": "◌",
    "answered": "●",
    "delivered": "✓",
    "late": "✓",
}
OTHER = "✗"


def print_timeline(call: Call, line: Timeline) -> None:
    """Print a row for each kind of part, and one for each pending request with its events."""
    out = console()
    width = max(min(out.width, 100) - LABEL - 2, 10)
    head = f"{call.method} on {call.server}: {call_state(call)} after {format_duration(line.total_s)}"
    out.print(Text(head if call.trace_id is None else f"{head}, trace {call.trace_id}"))
    for kind, style in STYLES.items():
        if line.sum_s(kind):
            bars = [(part.start_s, part.end_s) for part in line.parts if part.kind == kind]
            out.print(Text(kind.ljust(LABEL)) + Text(_bars(bars, line.total_s, width), style))
    for asked in line.questions:
        out.print(Text("asked".ljust(LABEL)) + Text(_marks(asked, line.total_s, width), STYLES["person"]))
        out.print(Text(" " * LABEL + _story(asked)))
    out.print(Text(line.summary))


def _column(at_s: float, total_s: float, width: int) -> int:
    return min(int(at_s / total_s * width) if total_s else 0, width - 1)


def _bars(spans: list[tuple[float, float]], total_s: float, width: int) -> str:
    cells = [" "] * width
    for start, end in spans:
        first, last = _column(start, total_s, width), _column(end, total_s, width)
        cells[first : last + 1] = "█" * (last + 1 - first)
    return "".join(cells)


def _marks(asked: QuestionSpan, total_s: float, width: int) -> str:
    cells = [" "] * width
    first, last = _column(asked.start_s, total_s, width), _column(asked.end_s, total_s, width)
    cells[first : last + 1] = "─" * (last + 1 - first)
    for step in asked.steps:
        cells[_column(step.at_s, total_s, width)] = MARKS.get(step.what, OTHER)
    return "".join(cells)


def _story(asked: QuestionSpan) -> str:
    steps = [
        f"{MARKS.get(step.what, OTHER)} {step.what} {format_duration(step.at_s)}"
        + (f" {text.line(step.by)}" if step.by else "")
        for step in asked.steps
    ]
    return "  ".join([f"{asked.kind} {asked.id}", *steps])
