"""All output of the commands: JSON lines for programs, tables and short lines for people.

Text of others passes through `clean`; a test over the sources holds the other modules to this one. JSON keeps its
value; at a terminal, control characters are escaped.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from hubbub_client.data.records import PendingRequest, Record, Server
from hubbub_client.payload import as_object
from hubbub_frontend.display.content import describe_result
from hubbub_frontend.display.hosts import stream_state
from hubbub_frontend.display.records import (
    call_state,
    describe_fault,
    describe_queue,
    last_stderr_line,
    question_text,
    relative_time,
    request_state,
    short_call_title,
)
from hubbub_frontend.error_help import help_hint
from hubbub_frontend.shell_commands import with_hub_options
from hubbub_shared.legible import clean, escaped

if TYPE_CHECKING:  # at run time only what a command uses, since all of it takes time
    from rich.console import Console
    from rich.text import Text

    from hubbub_client.data.records import Call
    from hubbub_client.errors import HubbubError
    from hubbub_client.services.tokens import Caller, Token

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
        line = escaped(line)
    try:
        sys.stdout.write(line + "\n")
    except UnicodeEncodeError:
        sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_replace_non_finite(each) for each in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(*columns: "str | Text") -> None:
    """Print a line for people on stdout, flushed; a `Text` in its colour, if stdout shows colours."""
    shown = [clean(each) if isinstance(each, str) else _render_coloured(each) for each in columns]
    _write(sys.stdout, "  ".join(shown) + "\n")


def note(text: str, end: str = "\n") -> None:
    """Print a line for people on stderr; commands in it name the hub."""
    _write(sys.stderr, clean(with_hub_options(text)) + end)


def _write(stream: TextIO, text: str) -> None:
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


def print_usage(error: Exception, problem: str, as_json: bool) -> None:
    """Print a wrong command line as `print_error` prints errors."""
    if as_json:
        fields: dict[str, object] = {"code": "INVALID_ARGUMENT", "reason": "USAGE", "message": problem, "metadata": {}}
        _write(sys.stderr, json.dumps(fields) + "\n")
    else:
        from hubbub_cli.syntax.usage import plain_message

        note(f"error: {plain_message(error)}")
        _print_notes(error)


def _print_notes(error: Exception) -> None:
    for each in getattr(error, "__notes__", ()):
        note(each)


def describe_trouble(server: Server) -> str:
    """Return what is wrong with a server, and which command helps; empty if nothing is wrong."""
    parts = [describe_fault(server.error)] if server.error else []
    if server.error and last_stderr_line(server.error):
        parts.append(with_hub_options(f"more: hubbub logs {server.name}"))
    if server.gave_up:
        parts.append(with_hub_options(f"gave up; try again: hubbub servers connect {server.name}"))
    return "; ".join(parts)


Columns = Mapping[str, Callable[[Any], str | None]]

# Columns of each class of records, in tables and in the lines of a watch.
COLUMNS: dict[str, Columns] = {
    "Server": {
        "name": lambda it: it.name,
        "state": lambda it: it.state,
        "transport": lambda it: it.transport,
        "protocol": lambda it: it.protocol_version,
        "queue": lambda it: describe_queue(it.queue),
        "retry": lambda it: "gave up" if it.gave_up else relative_time(it.next_retry_at),
        "error": lambda it: describe_trouble(it) or None,
    },
    "PendingRequest": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "kind": lambda it: it.kind,
        "state": request_state,
        "came": lambda it: relative_time(it.created_at),
        "expires": lambda it: relative_time(it.deadline) if it.state == "open" else "-",
        "question": question_text,
    },
    "Call": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "call": lambda it: short_call_title(it),
        "state": call_state,
        "came": lambda it: relative_time(it.created_at),
        "asks": lambda it: str(len(it.pending_ids)) if it.state == "waiting_input" else None,
        "error": lambda it: it.error and describe_fault(it.error),
    },
    "Task": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "role": lambda it: it.role,
        "status": lambda it: it.status,
        "method": lambda it: it.method,
        "came": lambda it: relative_time(it.created_at),
        "message": lambda it: it.status_message,
    },
    "CatalogList": {
        "server": lambda it: it.server,
        "kind": lambda it: it.kind,
        "freshness": lambda it: it.freshness,
        "count": lambda it: str(it.count),
        "fetched": lambda it: relative_time(it.fetched_at),
        "error": lambda it: it.error and describe_fault(it.error),
    },
    "Caller": {
        "name": lambda it: it.name,
        "grants": lambda it: _describe_grants(it),
        "credential": lambda it: it.credential,
        "expires": lambda it: relative_time(it.expires_at),
        "names others": lambda it: "yes" if it.may_name_others else "no",
    },
    "Token": {
        "name": lambda it: it.name,
        "grants": lambda it: _describe_grants(it),
        "made": lambda it: relative_time(it.created_at),
        "by": lambda it: it.created_by,
        "expires": lambda it: relative_time(it.expires_at),
        "used": lambda it: relative_time(it.last_used_at),
    },
    "RememberedApproval": {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "tool": lambda it: it.tool,
        "caller": lambda it: it.caller,
        "rule": lambda it: it.rule,
        "by": lambda it: ", ".join(it.approved_by),
        "came": lambda it: relative_time(it.created_at),
        "expires": lambda it: relative_time(it.expires_at),
        "only with": lambda it: None if it.arguments is None else json.dumps(it.arguments, ensure_ascii=False),
    },
    "ApprovalRule": {
        "rule": lambda it: it.name,
        "servers": lambda it: " ".join(it.servers),
        "tools": lambda it: " ".join(it.tools),
        "when": lambda it: it.when,
        "action": lambda it: it.action,
        "needed": lambda it: str(it.needed) if it.action == "ask" and it.needed > 1 else None,
        "approvers": lambda it: ", ".join(it.approvers),
        "message": lambda it: it.message,
        "made by": lambda it: it.preset,
    },
    "ReplayedCalls": {
        "calls": lambda it: str(it.calls),
        "action": lambda it: it.action,
        "rule": lambda it: it.rule or "(default)",
        "server": lambda it: it.server,
        "tool": lambda it: it.tool,
        "callers": lambda it: ", ".join(it.callers),
        "approvers": lambda it: ", ".join(it.approvers),
        "failed": lambda it: str(it.problems) if it.problems else None,
        "newest": lambda it: it.newest_call_id,
    },
    "CatalogEntry": {
        "server": lambda it: it.server,
        "kind": lambda it: it.kind if it.kind != "tool" else None,
        "name": lambda it: it.name,
        "uri": lambda it: it.uri,
        "description": lambda it: it.title or it.description,
    },
    "ConnectedHost": {
        "host": lambda it: " ".join(filter(None, (it.name, it.version))),
        "principal": lambda it: it.principal,
        "sees": lambda it: it.endpoint,
        "protocol": lambda it: it.protocol_version,
        "by": lambda it: it.transport,
        "since": lambda it: relative_time(it.created_at),
        "last seen": lambda it: relative_time(it.last_used_at),
        "stream": stream_state,
        "open": lambda it: str(len(it.requests)) if it.requests else None,
        "waits for": lambda it: ", ".join(id_ for each in it.requests for id_ in each.pending_request_ids),
    },
    "FleetMember": {
        "name": lambda it: it.name,
        "state": lambda it: "overdue" if it.overdue else it.state,
        "address": lambda it: it.address,
        "version": lambda it: it.version,
        "heard": lambda it: f"{it.silent_ms / 1000:.1f} s ago",
        "lag": lambda it: str(it.lag) if it.state != "gone" else None,
        "servers": lambda it: ", ".join(it.servers) or None,
    },
    "UnownedServer": {
        "unowned": lambda it: it.server,
        "for": lambda it: f"{it.since_ms / 1000:.0f} s",
        "why": lambda it: it.why,
    },
    "Verdict": {
        "case": lambda it: it.case,
        "result": lambda it: it.result,
        "expected": lambda it: it.expected,
        "got": lambda it: it.got,
        "rule": lambda it: it.rule,
        "why": lambda it: it.why,
        "cost": lambda it: it.cost and f"{it.cost:.6g}",
    },
    "AuditEntry": {
        "came": lambda it: relative_time(it.created_at),
        "principal": lambda it: it.principal,
        "from": lambda it: it.peer,
        "action": lambda it: it.action,
        "target": lambda it: it.target,
        "outcome": lambda it: it.outcome if it.count == 1 else f"{it.outcome} x {it.count}",
    },
}

# What records are called where there are none.
NOUNS = {
    "ApprovalRule": "rules",
    "AuditEntry": "entries of the audit log",
    "Call": "calls",
    "CatalogEntry": "entries of the catalog",
    "CatalogList": "lists of the catalog",
    "ConnectedHost": "hosts",
    "FleetMember": "members",
    "PendingRequest": "pending requests",
    "RememberedApproval": "remembered approvals",
    "ReplayedCalls": "calls",
    "Server": "servers",
    "Task": "tasks",
    "Token": "tokens",
    "UnownedServer": "servers without an owner",
    "Verdict": "cases",
}
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
    """Return a table as rich lays it out for no terminal, since importing rich takes longer than to ask the hub.

    None if only rich can: for letters that are not ASCII, whose widths differ, and lines too long for PIPE_WIDTH.
    """
    lines = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + len(GAP) * (len(widths) - 1) > PIPE_WIDTH or not all(map(str.isascii, (*names, *chain(*rows)))):
        return None
    return "".join(GAP.join(map(str.ljust, line, widths)) + "\n" for line in lines)


def _takes_plain_text() -> bool:
    """Return whether stdout is no terminal, nor stands for one as rich sees it."""
    return not (sys.stdout.isatty() or any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE")))


def _describe_grants(of: "Caller | Token") -> str:
    return ", ".join(f"{grant.role} of {' '.join(grant.servers)}" for grant in of.grants)


def print_request(request: PendingRequest, call: "Call | None") -> None:
    """Print for people what a pending request asks, and what the `call` that asks was sent with."""
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
    """Return a rich console that is wide if the width is unknown. Everything printed on it is cleaned."""
    from hubbub_cli.output.screen import Screen  # imported here, since it imports rich

    stream = sys.stderr if stderr else sys.stdout
    return Screen(stderr=stderr, width=None if stream.isatty() else PIPE_WIDTH, highlight=False)


def colour_text(text: str, style: str) -> "str | Text":
    """Return a coloured text, for `say`."""
    if not style or not sys.stdout.isatty():
        return text
    from rich.text import Text

    return Text(text, style=style)


def _render_coloured(text: "Text") -> str:
    capturing_console = console()
    with capturing_console.capture() as captured:
        capturing_console.print(text, end="", soft_wrap=True)
    return captured.get()


def make_row(record: Record) -> list[tuple[str, str]]:
    """Return the columns of a record, each with its name."""
    return [(name, make_cell(show(record))) for name, show in COLUMNS[type(record).__name__].items()]


def find_style(column: str, cell: str) -> str:
    """Return the colour of a state; empty for other columns."""
    if column not in COLOURED_COLUMNS:
        return ""
    from hubbub_frontend.display.text import STYLES

    return STYLES.get(cell, "")


def make_cell(value: object) -> str:
    """Return a value as one line of a table."""
    return NOTHING if value is None or value == "" else clean(str(value)).replace("\n", " ")
