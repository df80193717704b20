"""The lines of a watch: a heading, then one line for each step, in columns that stay where they are."""

import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

from hubbub_cli.output.columns import describe_trouble
from hubbub_cli.output.printer import (
    GAP,
    NOTHING,
    colour_text,
    find_style,
    make_cell,
    note,
    print_json,
    say,
)
from hubbub_client.payload import as_object
from hubbub_frontend.display.records import (
    call_state,
    describe_call,
    describe_fault,
    describe_progress,
    describe_queue,
    describe_request,
    format_log_line,
    local_time,
    request_state,
)

if TYPE_CHECKING:
    from hubbub_client.data.records import Call, Record
    from hubbub_client.data.watch_events import WatchStep

HOW_TO_END = "Ctrl-C ends this watch"

# Widths to begin with; a wider cell widens its column for the lines that follow.
MIN_WIDTHS = {"server": 8, "name": 8, "state": 12, "status": 9, "freshness": 9, "kind": 8, "role": 8, "queue": 9}

# Columns of a terminal below which a last column is not folded.
MIN_FOLD_COLUMNS = 16

# Columns of each class of records. No time is relative, since lines stay on the screen.
COLUMNS: Mapping[str, Mapping[str, Callable[[Any], str | None]]] = {
    "Server": {
        "name": lambda it: it.name,
        "state": lambda it: it.state,
        "queue": lambda it: describe_queue(it.queue),
        "what is wrong": lambda it: describe_trouble(it),
    },
    "PendingRequest": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "state": request_state,
        "what": describe_request,
    },
    "Call": {"id": lambda it: it.id, "what": describe_call},
    "Task": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "role": lambda it: it.role,
        "status": lambda it: it.status,
        "what": lambda it: ": ".join(filter(None, (it.method, it.status_message))),
    },
    "CatalogList": {
        "server": lambda it: it.server,
        "kind": lambda it: it.kind,
        "freshness": lambda it: it.freshness,
        "count": lambda it: str(it.count),
        "fetched": lambda it: local_time(it.fetched_at),
        "what is wrong": lambda it: it.error and describe_fault(it.error),
    },
}


class Rows:
    """Prints rows as they come, below a heading. The last column has no width."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._widths = [max(len(name), MIN_WIDTHS.get(name, 0)) for name in names[:-1]]
        self._has_heading = False

    def print(self, cells: Sequence[str], state: str = "") -> None:
        """Print a row, and the heading before the first row. The last of fewer cells than columns takes the rest.

        A cell in a column of states has the colour of its state. With `state`, the last cell has the colour of this
        state.
        """
        shown_cells = [make_cell(cell) for cell in cells]
        for number, cell in enumerate(shown_cells[:-1]):
            self._widths[number] = max(self._widths[number], _count_columns(cell))
        if not self._has_heading:
            self._has_heading = True
            say(*(colour_text(name, "bold") for name in (*map(_pad_text, self._names, self._widths), self._names[-1])))
        *first_cells, last_cell = shown_cells
        named = zip(self._names, first_cells, self._widths, strict=False)
        columns = [colour_text(_pad_text(cell, width), find_style(name, cell)) for name, cell, width in named]
        if last_cell == NOTHING:  # an empty last cell is left out, with the padding before it
            say(*columns[:-1], first_cells[-1])
            return
        lines = _fold_text(last_cell, sum(self._widths[: len(first_cells)]) + len(GAP) * len(first_cells))
        say(*columns, colour_text(lines, find_style("state", state)))


class Lines:
    """Prints the steps of one watch of records: JSON lines, or rows for people."""

    def __init__(self, empty: str | None = None, *, as_json: bool) -> None:
        """`empty` tells people that there is nothing yet, before how to end the watch; None: they see nothing."""
        self._empty = empty
        self._as_json = as_json
        self._rows: dict[str, Rows] = {}

    def print_step(self, event: "WatchStep") -> None:
        """Print a step. For people, a step that changes nothing prints nothing."""
        if self._as_json:
            print_json(event.to_json())
            return
        from hubbub_client.data.watch_events import Logged, Progressed, Removed, Reset, Synced, Upsert

        match event:
            case Upsert(record=record):
                self._print_record(record)
            case Removed(id=name):
                self._print_line(name, "is gone")
            case Reset(reason=reason):
                note(f"{reason}: all records follow again")
            case Progressed(progress=progress):
                self._print_line(progress.call_id, describe_progress(progress))
            case Logged(log=log):
                self._print_line(log.call_id, format_log_line(as_object(log.params)))
            case Synced() if self._empty and not self._rows:
                note(f"{self._empty}; {HOW_TO_END}")
                self._empty = None
            case _:
                pass

    def _print_record(self, record: "Record") -> None:
        """Print a record as a row, with the time now."""
        name = type(record).__name__
        columns = COLUMNS[name]
        rows = self._rows.setdefault(name, Rows(("time", *columns)))
        state = (call_state(cast("Call", record)) or "") if name == "Call" else ""
        rows.print((_format_now(), *(show(record) or "" for show in columns.values())), state)

    def _print_line(self, about: str, what: str) -> None:
        """Print a line about something that is no record, such as progress.

        It stands in the columns of the first kind of records that was printed; before any, in columns of its own.
        """
        rows = next(iter(self._rows.values()), None) or self._rows.setdefault("", Rows(("time", "id", "what")))
        rows.print((_format_now(), about, what))


async def print_steps(steps: "AsyncGenerator[WatchStep]", lines: Lines) -> None:
    """Print each step of a watch, until cancelled."""
    async with aclosing(steps):
        async for step in steps:
            lines.print_step(step)


def _fold_text(text: str, indent: int) -> str:
    """Return the text of a last column; at a terminal folded between words, its lines indented by `indent`."""
    columns = get_terminal_size().columns - indent
    if not sys.stdout.isatty() or not text.isascii() or columns < MIN_FOLD_COLUMNS:
        return text
    return ("\n" + " " * indent).join(wrap(text, columns, break_long_words=False, break_on_hyphens=False))


def _format_now() -> str:
    """Return the time now, as the clock of this machine shows it."""
    return local_time(datetime.now(UTC)) or ""


def _pad_text(text: str, width: int) -> str:
    """Return a text with spaces after it, as wide as `width` columns of a terminal."""
    return text + " " * (width - _count_columns(text))


def _count_columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # imported here, since most texts do not need it

    return cell_len(text)
