"""What the commands print: JSON lines for programs, tables and short lines for people."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from hubbub_client.audit import AuditEntry
from hubbub_client.content import describe_result
from hubbub_client.errors import HubbubError
from hubbub_client.events import Event, Logged, Progressed, Removed, Reset, Upsert
from hubbub_client.payload import as_object
from hubbub_client.records import Call, CatalogEntry, CatalogList, PendingRequest, Record, Server, Task
from hubbub_client.tokens import Caller, Token
from hubbub_client.wording import clean, describe, in_queue, moment, question, relative, what

if TYPE_CHECKING:
    from rich.console import Console

R = TypeVar("R", bound=Record)

# The columns that have a colour.
STATES = frozenset(("state", "status", "freshness", "delivery"))

# Columns whose cells are never broken.
UNCUT = frozenset(("id", "name", "came", "expires", "state", "status"))
NOTHING = "-"

# Wide enough for whole ids where no terminal says how wide it is.
PIPE_WIDTH = 200


def print_json(value: object) -> None:
    """One line on stdout, flushed."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        sys.stdout.write(line + "\n")
    except UnicodeEncodeError:
        sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line for a person, on stderr."""
    print(clean(text), file=sys.stderr, flush=True)


def print_error(error: HubbubError, as_json: bool) -> None:
    """The error as stderr's last line, or for a person with what may help."""
    shape = error.to_json()
    if as_json:
        print(json.dumps(shape), file=sys.stderr, flush=True)
        return
    if error.reason == "USAGE":
        note(f"error: {error.message}\n`--help` after the command shows how it is used")
        return
    note(f"error: {shape['message']} ({error.reason})")
    if error.retry_after_s is not None:
        note(f"try again in {error.retry_after_s:g} s")
    if error.help_url:
        note(f"see {error.help_url}")


Columns = Mapping[str, Callable[[Any], str | None]]

# For each record: its columns, in a table and in the line of a watch.
COLUMNS: dict[type[Record], Columns] = {
    Server: {
        "name": lambda it: it.name,
        "state": lambda it: it.state,
        "transport": lambda it: it.transport,
        "protocol": lambda it: it.protocol_version,
        "queue": lambda it: in_queue(it.queue),
        "retry": lambda it: relative(it.next_retry_at),
        "error": lambda it: it.error and f"{it.error.code}: {it.error.message}",
    },
    PendingRequest: {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "kind": lambda it: it.kind,
        "state": lambda it: it.state,
        "came": lambda it: relative(it.created_at),
        "expires": lambda it: relative(it.deadline) if it.state == "open" else "-",
        "question": question,
    },
    Call: {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "call": lambda it: what(it).removeprefix("tools/call "),
        "state": lambda it: it.state,
        "came": lambda it: relative(it.created_at),
        "asks": lambda it: str(len(it.pending_ids)) if it.state == "waiting_input" else None,
        "error": lambda it: it.error and f"{it.error.code}: {it.error.message}",
    },
    Task: {
        "id": lambda it: it.id,
        "server": lambda it: it.server,
        "role": lambda it: it.role,
        "status": lambda it: it.status,
        "method": lambda it: it.method,
        "came": lambda it: relative(it.created_at),
        "message": lambda it: it.status_message,
    },
    CatalogList: {
        "server": lambda it: it.server,
        "kind": lambda it: it.kind,
        "freshness": lambda it: it.freshness,
        "count": lambda it: str(it.count),
        "fetched": lambda it: relative(it.fetched_at),
        "error": lambda it: it.error and f"{it.error.code}: {it.error.message}",
    },
    Caller: {
        "name": lambda it: it.name,
        "grants": lambda it: _grants(it),
        "credential": lambda it: it.credential,
        "expires": lambda it: relative(it.expires_at),
        "names others": lambda it: "yes" if it.may_name_others else "no",
    },
    Token: {
        "name": lambda it: it.name,
        "grants": lambda it: _grants(it),
        "made": lambda it: relative(it.created_at),
        "by": lambda it: it.created_by,
        "expires": lambda it: relative(it.expires_at),
        "used": lambda it: relative(it.last_used_at),
    },
    CatalogEntry: {
        "server": lambda it: it.server,
        "name": lambda it: it.name,
        "uri": lambda it: it.uri,
        "description": lambda it: it.title or it.description,
    },
    AuditEntry: {
        "came": lambda it: relative(it.created_at),
        "principal": lambda it: it.principal,
        "from": lambda it: it.peer,
        "action": lambda it: it.action,
        "target": lambda it: it.target,
        "outcome": lambda it: it.outcome if it.count == 1 else f"{it.outcome} x {it.count}",
    },
}


def print_records(kind: type[R], records: Sequence[R], as_json: bool) -> None:
    """A list of records: a line each, or a table of the columns in which something stands."""
    if as_json:
        for record in records:
            print_json(record.to_json())
        return
    from rich.table import Table
    from rich.text import Text

    rows = [_cells(record) for record in records]
    if not rows:
        note("there is nothing to show")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = [at for at in range(len(COLUMNS[kind])) if any(row[at][1] != NOTHING for row in rows)]
    for name in (rows[0][at][0] for at in shown):
        # Ids are there to be copied: they are never cut.
        table.add_column(name, no_wrap=name in UNCUT, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[at][1], style=_style(*row[at])) for at in shown))
    console().print(table)


def _grants(of: Caller | Token) -> str:
    return ", ".join(f"{grant.role} of {' '.join(grant.servers)}" for grant in of.grants)


def print_record(record: Record, as_json: bool) -> None:
    """One record: a line, or for people one field per line, without those that have no value."""
    shape = record.to_json()
    if as_json:
        print_json(shape)
        return
    told = {name: value for name, value in shape.items() if value not in (None, "", [], {})}
    width = max(len(name) for name in shape)
    for name, value in told.items():
        field = getattr(record, name, None)
        if isinstance(field, datetime):
            text = f"{moment(field)}, {relative(field)}"
        elif isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, (dict, list)):
            text = json.dumps(value, indent=2, ensure_ascii=False)
        else:
            text = _cell(value)
        first, *rest = text.splitlines() or [""]
        print(
            f"{name:{width}}  {_coloured(name, clean(first))}",
            *(f"{'':{width}}  {clean(line)}" for line in rest),
            sep="\n",
        )


def print_request(request: PendingRequest, as_json: bool) -> None:
    """A pending request: a line, or what it asks as people read it."""
    if as_json:
        print_json(request.to_json())
        return
    from hubbub_client.questions import asked  # it brings rich along

    console().print(asked(request), end="")


def print_result(method: str, result: object, as_json: bool) -> None:
    """An MCP result: a line, or on a terminal what a tool says, and of other methods indented JSON."""
    if as_json or not sys.stdout.isatty():
        print_json(result)
        return
    said = describe_result(method, as_object(result)) if method == "tools/call" else ""
    if said:
        print(said)
        if as_object(result).get("isError"):
            note("the tool says that this is an error")
    else:
        console().print_json(json.dumps(result))


def print_event(event: Event, as_json: bool) -> None:
    """One step of a watch: a line."""
    if as_json:
        print_json(event.to_json())
        return
    match event:
        case Upsert(record=record):
            cells = [_coloured(name, cell) for name, cell in _cells(record)]
        case Removed(id=name):
            cells = [name]
        case Reset(reason=reason):
            cells = [f"{reason}: everything is told once more"]
        case Progressed(progress=progress):
            cells = [progress.call_id, describe(progress)]
        case Logged(log=log):
            cells = [log.call_id, json.dumps(log.params)]
        case _:
            return
    print(f"{datetime.now(UTC).astimezone():%H:%M:%S}  {event.type:8}", *cells, sep="  ", flush=True)


def print_counts(counts: Iterable[tuple[str, object]]) -> None:
    """Names and numbers, one per line."""
    for name, value in counts:
        print(f"{name:14} {value}")


def console(stderr: bool = False) -> "Console":
    """A rich console, wide where its width is not known."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else PIPE_WIDTH, highlight=False)


def _cells(record: Record) -> list[tuple[str, str]]:
    return [(name, _cell(show(record))) for name, show in COLUMNS[type(record)].items()]


def _style(column: str, cell: str) -> str:
    """The colour of a state; other columns have none."""
    if column not in STATES:
        return ""
    from hubbub_client.text import STYLES

    return STYLES.get(cell, "")


def _coloured(column: str, cell: str) -> str:
    """A cell of a line by itself, in its colour where stdout shows colours."""
    if not sys.stdout.isatty() or not (style := _style(column, cell)):
        return cell
    from rich.text import Text

    target = console()
    with target.capture() as captured:
        target.print(Text(cell, style=style), end="")
    return captured.get()


def _cell(value: object) -> str:
    return NOTHING if value is None or value == "" else clean(str(value)).replace("\n", " ")
