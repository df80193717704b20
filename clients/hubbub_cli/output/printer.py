"""All output of the commands: JSON lines for programs, tables and short lines for people.

Text of others passes through `clean`; a test over the sources holds the other modules to this one. JSON keeps its
value; at a terminal, control characters are escaped.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from hubbub_cli.output.columns import COLUMNS, NOUNS
from hubbub_client.data.records import PendingRequest, Record, Server
from hubbub_client.payload import as_object
from hubbub_frontend.display.content import describe_result
from hubbub_frontend.error_help import help_hint
from hubbub_frontend.shell_commands import with_hub_options
from hubbub_shared.legible import clean, escape_json

if TYPE_CHECKING:  # at run time only what a command uses, since all of it takes time
    from rich.console import Console
    from rich.text import Text

    from hubbub_client.data.records import Call
    from hubbub_client.errors import HubbubError

R = TypeVar("R", bound=Record)

# Columns that are coloured.
COLOURED_COLUMNS = frozenset(("state", "status", "freshness", "delivery"))

# Columns whose cells are never wrapped.
UNWRAPPED_COLUMNS = frozenset(("id", "name", "came", "expires", "state", "status"))
NOTHING = "-"

# Wide enough for whole ids if no terminal gives a width.
PIPE_WIDTH = 200
GAP = "  "


def print_json(value: object) -> None:
    """Print one JSON line on stdout, flushed.

    NaN and infinities are null. Control characters are escaped at a terminal.
    """
    try:
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        value = _replace_non_finite(value)
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if sys.stdout.isatty():
        line = escape_json(line)
    try:
        sys.stdout.write(line + "\n")
    except UnicodeEncodeError:  # the locale lacks a letter of it: all but ASCII is escaped
        sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _replace_non_finite(value: Any) -> Any:
    """Return a value with None in place of NaN and infinities."""
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_replace_non_finite(each) for each in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(*columns: "str | Text") -> None:
    """Print a line for people on stdout, flushed; a `Text` in its colour, if stdout shows colours."""
    rendered = [clean(each) if isinstance(each, str) else _render_coloured(each) for each in columns]
    _write(sys.stdout, "  ".join(rendered) + "\n")


def note(text: str, end: str = "\n") -> None:
    """Print a line for people on stderr; commands of `hubbub` in it get the options that name the hub."""
    _write(sys.stderr, clean(with_hub_options(text)) + end)


def _write(stream: TextIO, text: str) -> None:
    """Write a text to a stream, with `?` for letters that its encoding lacks, and flush it."""
    try:
        stream.write(text)
    except UnicodeEncodeError:  # the locale has no such letters
        stream.write(text.encode("ascii", "replace").decode())
    stream.flush()


def print_error(error: "HubbubError", as_json: bool) -> None:
    """Print the error as the last line of stderr; for people with what was perhaps meant, and where to read more."""
    fields = error.to_json()
    if as_json:
        _write(sys.stderr, json.dumps(fields) + "\n")
        return
    first, _, rest = str(fields["message"]).partition("\n")
    note(f"error: {first} ({error.reason})")
    if rest.strip():  # settings to paste
        note(rest.rstrip())
    if error.retry_after_s is not None:
        note(f"try again in {error.retry_after_s:g} s")
    _print_notes(error)
    if more := help_hint(error.reason, error.help_url):
        note(f"more: {more}")


def print_usage_error(error: Exception, problem: str, as_json: bool) -> None:
    """Print what is wrong with a command line: `problem` as JSON, or for people `error` in plain words, with notes."""
    if as_json:
        fields: dict[str, object] = {"code": "INVALID_ARGUMENT", "reason": "USAGE", "message": problem, "metadata": {}}
        _write(sys.stderr, json.dumps(fields) + "\n")
    else:
        from hubbub_cli.syntax.usage import make_plain_message

        note(f"error: {make_plain_message(error)}")
        _print_notes(error)


def _print_notes(error: Exception) -> None:
    for each in getattr(error, "__notes__", ()):
        note(each)


ADD_A_SERVER = "add one: hubbub servers add NAME -- COMMAND ARGS; those of other programs: hubbub init"


def print_records(kind: type[R], records: Sequence[R], as_json: bool) -> None:
    """Print records: one JSON line each, or a table of the columns that are not empty."""
    if as_json:
        for record in records:
            print_json(record.to_json())
        return
    rows = [make_row(record) for record in records]
    if not rows:
        note(f"no {NOUNS[kind.__name__]} found")
        if kind is Server:
            note(ADD_A_SERVER)
        return
    filled_columns = [at for at in range(len(COLUMNS[kind.__name__])) if any(row[at][1] != NOTHING for row in rows)]
    names = [rows[0][at][0] for at in filled_columns]
    shown_rows = [[row[at][1] for at in filled_columns] for row in rows]
    print_table(names, shown_rows)


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells, as `make_cell` makes them, below the names of their columns."""
    plain = lay_out_plain_table(names, rows) if _takes_plain_text() else None
    if plain is not None:
        _write(sys.stdout, plain)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        # Ids are there to be copied, so they are never truncated.
        table.add_column(name, no_wrap=name in UNWRAPPED_COLUMNS, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=find_style(name, cell)) for name, cell in zip(names, row, strict=True)))
    console().print(table)


def lay_out_plain_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """Return a table in the layout that rich has where there is no terminal: importing rich would take too long.

    None if rich has to lay it out: for letters that are not ASCII, whose widths differ, and for lines longer than
    PIPE_WIDTH.
    """
    lines = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + len(GAP) * (len(widths) - 1) > PIPE_WIDTH or not all(map(str.isascii, (*names, *chain(*rows)))):
        return None
    return "".join(GAP.join(map(str.ljust, line, widths)) + "\n" for line in lines)


def _takes_plain_text() -> bool:
    """Return whether stdout gets plain text: it is no terminal, and no variable has rich treat it as one."""
    return not (sys.stdout.isatty() or any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE")))


def print_request(request: PendingRequest, call: "Call | None") -> None:
    """Print for people what a pending request asks, and the arguments of the `call` that asks."""
    from hubbub_frontend.display.questions import render_request  # imported here, since it imports rich

    console().print(render_request(request, call), end="")


def print_result(method: str, result: object, as_json: bool) -> None:
    """Print an MCP result: a line of JSON, or at a terminal the text of a tool, and indented JSON of other methods."""
    if as_json or not sys.stdout.isatty():
        print_json(result)
        return
    print_result_for_people(method, result)
    if method == "tools/call" and as_object(result).get("isError"):
        note("the tool says that this is an error")


def print_result_for_people(method: str, result: object) -> None:
    """Print an MCP result for people: the text of a tool, and indented JSON of other methods."""
    text = describe_result(method, as_object(result)) if method == "tools/call" else ""
    if text:
        say(text)
    else:
        console().print_json(json.dumps(_replace_non_finite(result)))


def print_page(text: str) -> None:
    """Print a page of the documents: laid out at a terminal, else the Markdown as it is."""
    if not sys.stdout.isatty():
        say(text.rstrip())
        return
    from rich.markdown import Markdown

    console().print(Markdown(text))


def print_counts(counts: Iterable[tuple[str, object]]) -> None:
    """Print names and numbers, one pair per line."""
    for name, value in counts:
        say(f"{name:14} {value}")


def console(stderr: bool = False) -> "Console":
    """Make a rich console that is wide if the width is unknown. Everything printed on it is cleaned."""
    from hubbub_cli.output.screen import Screen  # imported here, since it imports rich

    stream = sys.stderr if stderr else sys.stdout
    return Screen(stderr=stderr, width=None if stream.isatty() else PIPE_WIDTH, highlight=False)


def colour_text(text: str, style: str) -> "str | Text":
    """Return a text in a colour, for `say`; as it is if stdout is no terminal."""
    if not style or not sys.stdout.isatty():
        return text
    from rich.text import Text

    return Text(text, style=style)


def _render_coloured(text: "Text") -> str:
    """Return a coloured text with the escape sequences of its colours."""
    capturing_console = console()
    with capturing_console.capture() as captured:
        capturing_console.print(text, end="", soft_wrap=True)
    return captured.get()


def make_row(record: Record) -> list[tuple[str, str]]:
    """Return the cells of a record in a table, each after the name of its column."""
    return [(name, make_cell(show(record))) for name, show in COLUMNS[type(record).__name__].items()]


def find_style(column: str, cell: str) -> str:
    """Return the colour of a cell in a column of states; empty for other columns, and for a state without a colour."""
    if column not in COLOURED_COLUMNS:
        return ""
    from hubbub_frontend.display.text import STYLES

    return STYLES.get(cell, "")


def make_cell(value: object) -> str:
    """Return a value as the text of one cell of a table, in one line; `-` for None and for an empty text."""
    return NOTHING if value is None or value == "" else clean(str(value)).replace("\n", " ")
