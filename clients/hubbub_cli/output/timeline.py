"""`hubbub calls show --timeline`: where the time of a call went, as a picture for the terminal."""

from rich.text import Text

from hubbub_cli.output.printer import console
from hubbub_client.data.records import Call
from hubbub_frontend.display import text
from hubbub_frontend.display.records import call_state, format_duration
from hubbub_frontend.display.timeline import PartKind, QuestionSpan, Timeline

LABEL_WIDTH = 8
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
OTHER_MARK = "✗"


def print_timeline(call: Call, line: Timeline) -> None:
    """Print how the time of a call was spent: a row of bars for each kind of part, which is queue, server or person.

    Then come two rows for each pending request of the call, with its events, and the summary.
    """
    out = console()
    width = max(min(out.width, 100) - LABEL_WIDTH - 2, 10)
    head = f"{call.method} on {call.server}: {call_state(call)} after {format_duration(line.total_s)}"
    out.print(Text(head if call.trace_id is None else f"{head}, trace {call.trace_id}"))
    for kind, style in STYLES.items():
        if line.sum_s(kind):
            bars = [(part.start_s, part.end_s) for part in line.parts if part.kind == kind]
            out.print(Text(kind.ljust(LABEL_WIDTH)) + Text(_draw_bars(bars, line.total_s, width), style))
    for question in line.questions:
        out.print(Text("asked".ljust(LABEL_WIDTH)) + Text(_draw_marks(question, line.total_s, width), STYLES["person"]))
        out.print(Text(" " * LABEL_WIDTH + _describe_question(question)))
    out.print(Text(line.summary))


def _find_column(at_s: float, total_s: float, width: int) -> int:
    """Return the column, from 0, of the moment `at_s` in a row whose `width` columns stand for `total_s` seconds."""
    return min(int(at_s / total_s * width) if total_s else 0, width - 1)


def _draw_bars(spans: list[tuple[float, float]], total_s: float, width: int) -> str:
    """Return a row with a bar for each span."""
    cells = [" "] * width
    for start, end in spans:
        first, last = _find_column(start, total_s, width), _find_column(end, total_s, width)
        cells[first : last + 1] = "█" * (last + 1 - first)
    return "".join(cells)


def _draw_marks(question: QuestionSpan, total_s: float, width: int) -> str:
    """Return a row with a line for a question, and a mark for each of its events."""
    cells = [" "] * width
    first, last = _find_column(question.start_s, total_s, width), _find_column(question.end_s, total_s, width)
    cells[first : last + 1] = "─" * (last + 1 - first)
    for step in question.steps:
        cells[_find_column(step.at_s, total_s, width)] = MARKS.get(step.what, OTHER_MARK)
    return "".join(cells)


def _describe_question(question: QuestionSpan) -> str:
    """Return a question's kind and id, and each of its events with its mark, its time, and who it was by."""
    steps = [
        f"{MARKS.get(step.what, OTHER_MARK)} {step.what} {format_duration(step.at_s)}"
        + (f" {text.line(step.by)}" if step.by else "")
        for step in question.steps
    ]
    return "  ".join([f"{question.kind} {question.id}", *steps])
