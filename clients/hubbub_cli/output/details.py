"""One record in full, for people.

A call, a server or a task begins with its history in words; then follows one fact per line.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from hubbub_cli.output.printer import cell_of, coloured, print_json, say, show_result, style_of, trouble
from hubbub_client.data.records import Call, PendingRequest, Record, Server, Task
from hubbub_client.payload import as_object
from hubbub_frontend.display.records import (
    call_state,
    describe_call,
    describe_fault,
    describe_queue,
    format_duration,
    local_datetime,
    local_time,
    question_text,
    relative_time,
    request_state,
)
from hubbub_frontend.error_help import help_hint
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_cli.run.session import Settings

R = TypeVar("R", bound=Record)

# Facts of each record, and how they are shown; an empty one is left out.
SERVER: Mapping[str, Callable[[Server], str | None]] = {
    "wanted": lambda it: _wanted(it),
    "what is wrong": lambda it: trouble(it) or None,
    "more": lambda it: it.error and help_hint(it.error.code, it.error.help_url),
    "failed": lambda it: f"{it.attempt} times in a row" if it.attempt else None,
    "again": lambda it: relative_time(it.next_retry_at) if it.next_retry_at else None,
    "server": lambda it: _introduced(it),
    "offers": lambda it: ", ".join(as_object(it.capabilities)),
    "process": lambda it: str(it.pid) if it.pid else None,
    "calls": lambda it: it.queue and _calls(it),
    "configured": lambda it: _configured(it),
    "revision": lambda it: str(it.revision) if it.revision else None,
    "trusted": lambda it: "added by the owner of the hub's machine" if it.trusted else None,
    "defect": lambda it: it.defect,
    "noted": lambda it: "\n".join(it.notes) or None,
}
CALL: Mapping[str, Callable[[Call], str | None]] = {
    "id": lambda it: it.id,
    "method": lambda it: it.method,
    "arguments": lambda it: _asked(it),
    "came": lambda it: _time(it.created_at),
    "began": lambda it: _time(it.started_at),
    "ended": lambda it: _time(it.completed_at),
    "error": lambda it: it.error and describe_fault(it.error),
    "more": lambda it: it.error and help_hint(it.error.code, it.error.help_url),
    "asked": lambda it: "\n".join(it.pending_ids) if it.ended else None,
    "asks": lambda it: None if it.ended else _answers(it.pending_ids),
    "perhaps asks": lambda it: None if it.ended else _answers(it.perhaps_pending_ids),
    "task": lambda it: it.task_id,
    "trace": lambda it: it.trace_id,
    "defect": lambda it: it.defect,
}
TASK: Mapping[str, Callable[[Task], str | None]] = {
    "id": lambda it: it.id,
    "says": lambda it: it.status_message,
    "held by": lambda it: it.role and HELD_BY.get(it.role, it.role),
    "call": lambda it: it.call_id,
    "came": lambda it: _time(it.created_at),
    "changed": lambda it: _time(it.last_updated_at),
    "kept for": lambda it: None if it.ttl_ms is None else format_duration(it.ttl_ms / 1000),
    "polled every": lambda it: None if it.poll_interval_ms is None else format_duration(it.poll_interval_ms / 1000),
    "asks": lambda it: _answers(it.pending_ids),
    "defect": lambda it: it.defect,
}
HELD_BY = {"receiver": "the hub, for the server (receiver)", "client": "the server, for the hub (client)"}
WIDTH = max(map(len, (*SERVER, *CALL, *TASK)))


def print_record(record: Record, as_json: bool) -> None:
    """Print one record: a line of JSON, or for people one field per line, without empty ones."""
    shape = record.to_json()
    if as_json:
        print_json(shape)
        return
    if isinstance(record, (Call, Server, Task)):
        print_details(record)
        return
    told = {name: value for name, value in shape.items() if value not in (None, "", [], {})}
    width = max(len(name) for name in shape)
    for name, value in told.items():
        field = getattr(record, name, None)
        if isinstance(field, datetime):
            text = f"{local_datetime(field)}, {relative_time(field)}"
        elif isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, (dict, list)):
            text = json.dumps(value, indent=2, ensure_ascii=False)
        else:
            text = cell_of(value)
        first, *rest = text.splitlines() or [""]
        say(f"{name:{width}}", coloured(first, style_of(name, first)))
        for line in rest:
            say(f"{'':{width}}", line)


def print_details(record: Call | Server | Task) -> None:
    """Print a call with its result at the end, a server, or a task."""
    if isinstance(record, Task):
        status = (record.status or "unknown").replace("_", " ")
        heading = f"{record.method or 'a task'} on {record.server}: {status}"
        say(coloured(heading, style_of("status", record.status or "")))
        _print_facts(TASK, record)
        return
    if isinstance(record, Server):
        say(coloured(f"{record.name}: {_standing(record)}", style_of("state", record.state)))
        _print_facts(SERVER, record)
        return
    say(coloured(describe_call(record), style_of("state", call_state(record) or "")))
    _print_facts(CALL, record)
    print_end(record)


def print_claim(request: PendingRequest, settings: "Settings") -> None:
    """Print who may answer a pending request now, and what to type next."""
    if settings.json:
        print_json(request.to_json())
        return
    asks = " ".join(question_text(request).split())
    held = request.claim
    if request.state != "open" or held is None or held.id is None:
        state = "free for anybody" if request.state == "open" and held is None else request_state(request)
        say(f"{request.id} is {state}: {asks}")
        return
    say(f"{request.id} is claimed by {held.by} until {local_time(held.expires_at)}: {asks}")
    say(f"{'claim':{WIDTH}}", held.id)
    for label, verb in (("answer it", "answer"), ("keep it", "renew"), ("give it back", "release")):
        say(f"{label:{WIDTH}}", settings.command("inbox", verb, request.id, "--claim", held.id))


def print_end(call: Call) -> None:
    """Print the result of a call, if it has one."""
    if call.result is not None:
        show_result(call.method, call.result)


def _print_facts(facts: Mapping[str, Callable[[R], str | None]], it: R) -> None:
    for label, show in facts.items():
        value = show(it)
        if value:
            first, *rest = value.splitlines() or [""]
            say(f"{label:{WIDTH}}", first)
            for line in rest:
                say(f"{'':{WIDTH}}", line)


def _configured(server: Server) -> str | None:
    """Print the given options of a server, one per line."""
    from hubbub_client.data.specs import ConfiguredServer  # imported late, since it imports gRPC

    if not isinstance(server, ConfiguredServer) or server.spec is None:
        return None
    return "\n".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in server.spec.to_json().items()
        if key != "name"
    )


def _wanted(server: Server) -> str | None:
    if server.desired_state == server.state:
        return None
    on_its_way = server.desired_state == "connected" and not (server.error or server.gave_up)
    return with_hub_options(
        f"{server.desired_state}{f'; follow it: hubbub servers watch {server.name}' if on_its_way else ''}"
    )


def _standing(server: Server) -> str:
    how = ", ".join(each for each in (server.transport, _revision(server)) if each)
    return f"{server.state} ({how})" if how else server.state


def _revision(server: Server) -> str | None:
    return f"MCP {server.protocol_version}" if server.protocol_version else None


def _introduced(server: Server) -> str | None:
    info = as_object(server.server_info)
    return " ".join(str(each) for each in (info.get("title") or info.get("name"), info.get("version")) if each) or None


def _calls(server: Server) -> str | None:
    if (queue := server.queue) is None:
        return None
    ended = ((queue.completed, "completed"), (queue.failed, "failed"), (queue.cancelled, "cancelled"))
    return ", ".join([describe_queue(queue), *(f"{count} {name}" for count, name in ended if count)])


def _asked(call: Call) -> str | None:
    params = as_object(call.params)
    asked = params.get("arguments") if call.method == "tools/call" else call.params
    return json.dumps(asked, ensure_ascii=False) if asked else None


def _time(at: datetime | None) -> str | None:
    return f"{local_datetime(at)}, {relative_time(at)}" if at else None


def _answers(ids: tuple[str, ...]) -> str | None:
    return with_hub_options("\n".join(f"{each}, answer it with: hubbub inbox answer {each}" for each in ids)) or None
