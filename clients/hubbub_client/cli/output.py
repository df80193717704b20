"""What the commands print: JSON lines for programs, tables and short lines for people."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from hubbub_client.errors import HubbubError
from hubbub_client.events import Event, Logged, Progressed, Removed, Reset, Upsert
from hubbub_client.records import Call, CatalogEntry, PendingRequest, Progress, QueueCounts, Record, Server, Task

if TYPE_CHECKING:
    from rich.console import Console

R = TypeVar("R", bound=Record)

# Wide enough for whole ids where no terminal says how wide it is.
PIPE_WIDTH = 200
# What servers write must not steer the terminal.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SPANS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


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


def clean(text: str) -> str:
    """The text without control characters, which a terminal would obey."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def relative(moment: datetime | None) -> str:
    """How long ago, or in how long: `12s ago`, `in 4m`."""
    if moment is None:
        return "-"
    seconds = (moment - datetime.now(UTC)).total_seconds()
    size, unit = next((each for each in SPANS if abs(seconds) >= each[0]), SPANS[-1])
    amount = f"{int(abs(seconds) // size)}{unit}"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"


def page(url: str) -> str:
    """A page to visit: its whole url, then its host by itself, with a warning of one that may imitate another.

    MCP client/elicitation, url mode: show the full URL, make the domain plain, warn of Punycode.
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return f"{url} (not a url)"
    strange = not host.isascii() or any(label.startswith("xn--") for label in host.split("."))
    warning = "; beware: its letters may only look like those of a name you know" if strange else ""
    return f"{url} (on {host}{warning})"


def question(request: PendingRequest) -> str:
    """What is asked, in one line."""
    params = cast("dict[str, Any]", request.request or {})
    match request.kind:
        case "sampling":
            messages = cast("list[dict[str, Any]]", params.get("messages") or [])
            contents = [message.get("content") for message in messages]
            return "; ".join(_spoken(content) for content in contents)
        case "roots":
            return "which directories may it use?"
        case "elicitation_url":
            return f"{params.get('message', '')} {page(str(params.get('url', '')))}".strip()
        case _:
            return str(params.get("message", ""))


def _spoken(content: object) -> str:
    if isinstance(content, list):
        return " ".join(_spoken(part) for part in cast("list[object]", content))
    if isinstance(content, Mapping):
        part = cast("Mapping[str, object]", content)
        return str(part.get("text") or f"[{part.get('type')}]")
    return ""


def _what(call: Call) -> str:
    params = cast("object", call.params)
    tool = cast("Mapping[str, object]", params).get("name") if isinstance(params, Mapping) else None
    return f"{call.method} {tool}" if tool else call.method


def _in_queue(counts: QueueCounts | None) -> str:
    if counts is None:
        return "-"
    parts = ((counts.queued, "queued"), (counts.in_progress, "in progress"), (counts.waiting_input, "waiting"))
    return ", ".join(f"{count} {name}" for count, name in parts if count) or "idle"


Columns = Mapping[str, Callable[[Any], str | None]]

# For each record: its columns, in a table and in the line of a watch.
COLUMNS: dict[type[Record], Columns] = {
    Server: {
        "name": lambda it: it.name,
        "state": lambda it: it.state,
        "transport": lambda it: it.transport,
        "protocol": lambda it: it.protocol_version,
        "queue": lambda it: _in_queue(it.queue),
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
        "call": _what,
        "state": lambda it: it.state,
        "came": lambda it: relative(it.created_at),
        "asks": lambda it: ", ".join(it.pending_ids),
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
    CatalogEntry: {
        "server": lambda it: it.server,
        "name": lambda it: it.name,
        "uri": lambda it: it.uri,
        "description": lambda it: it.title or it.description,
    },
}


def print_records(kind: type[R], records: Sequence[R], as_json: bool) -> None:
    """A list of records: a line each, or a table."""
    if as_json:
        for record in records:
            print_json(record.to_json())
        return
    from rich.table import Table
    from rich.text import Text

    columns = COLUMNS[kind]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        # Ids are there to be copied: they are never cut.
        table.add_column(name, no_wrap=name in ("id", "name"), overflow="fold")
    for record in records:
        table.add_row(*(Text(_cell(show(record))) for show in columns.values()))
    console().print(table)


def print_record(record: Record, as_json: bool) -> None:
    """One record: a line, or one field per line."""
    shape = record.to_json()
    if as_json:
        print_json(shape)
        return
    width = max(len(name) for name in shape)
    for name, value in shape.items():
        text = json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, (dict, list)) else _cell(value)
        first, *rest = text.splitlines() or [""]
        print(f"{name:{width}}  {clean(first)}", *(f"{'':{width}}  {clean(line)}" for line in rest), sep="\n")


def print_result(result: object, as_json: bool) -> None:
    """An MCP result: a line, or indented on a terminal."""
    if as_json or not sys.stdout.isatty():
        print_json(result)
    else:
        console().print_json(json.dumps(result))


def print_event(event: Event, as_json: bool) -> None:
    """One step of a watch: a line."""
    if as_json:
        print_json(event.to_json())
        return
    match event:
        case Upsert(record=record):
            columns = COLUMNS[type(record)]
            cells = [_cell(show(record)) for show in columns.values()]
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


def describe(progress: Progress) -> str:
    """Progress in words: `3/10 copying`."""
    share = f"{progress.progress:g}" + (f"/{progress.total:g}" if progress.total is not None else "")
    return f"{share} {progress.message or ''}".strip()


def print_counts(counts: Iterable[tuple[str, object]]) -> None:
    """Names and numbers, one per line."""
    for name, value in counts:
        print(f"{name:14} {value}")


def console(stderr: bool = False) -> "Console":
    """A rich console, wide where its width is not known."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else PIPE_WIDTH, highlight=False)


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else clean(str(value)).replace("\n", " ")
