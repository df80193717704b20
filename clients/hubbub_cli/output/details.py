"""One record in full, for people.

A call, a server or a task begins with its history in words; then follows one fact per line.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from hubbub_cli.output.columns import describe_trouble
from hubbub_cli.output.printer import (
    colour_text,
    find_style,
    make_cell,
    print_json,
    print_result_for_people,
    say,
)
from hubbub_client.data.records import Call, PendingRequest, Record, Server, Task
from hubbub_client.payload import as_object
from hubbub_frontend.display.records import (
    BY_APP,
    call_state,
    describe_call,
    describe_fault,
    describe_queue,
    format_duration,
    local_datetime,
    local_time,
    question_line,
    relative_time,
    request_state,
)
from hubbub_frontend.error_help import help_hint
from hubbub_frontend.shell_commands import with_hub_options

if TYPE_CHECKING:
    from hubbub_cli.run.session import Settings

R = TypeVar("R", bound=Record)

# Facts of each record, and how they are shown; an empty one is left out.
SERVER_FACTS: Mapping[str, Callable[[Server], str | None]] = {
    "wanted": lambda it: _describe_desired_state(it),
    "what is wrong": lambda it: describe_trouble(it) or None,
    "more": lambda it: it.error and help_hint(it.error.code, it.error.help_url),
    "failed": lambda it: f"{it.attempt} times in a row" if it.attempt else None,
    "again": lambda it: relative_time(it.next_retry_at) if it.next_retry_at else None,
    "server": lambda it: _describe_server_info(it),
    "offers": lambda it: ", ".join(as_object(it.capabilities)),
    "process": lambda it: str(it.pid) if it.pid else None,
    "calls": lambda it: it.queue and _describe_calls(it),
    "configured": lambda it: _list_configured_options(it),
    "revision": lambda it: str(it.revision) if it.revision else None,
    "trusted": lambda it: "added by the owner of the hub's machine" if it.trusted else None,
    "defect": lambda it: it.defect,
    "noted": lambda it: "\n".join(it.notes) or None,
}
CALL_FACTS: Mapping[str, Callable[[Call], str | None]] = {
    "id": lambda it: it.id,
    "method": lambda it: it.method,
    "arguments": lambda it: _describe_arguments(it),
    "came": lambda it: _describe_time(it.created_at),
    "began": lambda it: _describe_time(it.started_at),
    "ended": lambda it: _describe_time(it.completed_at),
    "error": lambda it: it.error and describe_fault(it.error),
    "more": lambda it: it.error and help_hint(it.error.code, it.error.help_url),
    "asked": lambda it: "\n".join(it.pending_ids) if it.ended else None,
    "asks": lambda it: None if it.ended else _list_answer_commands(it.pending_ids),
    "perhaps asks": lambda it: None if it.ended else _list_answer_commands(it.perhaps_pending_ids),
    "approval": lambda it: _describe_approval(it),
    "changed to": lambda it: _describe_changed_arguments(it),
    "through": lambda it: it.origin and " ".join(filter(None, (it.origin.host, it.origin.profile))),
    "made by": lambda it: BY_APP if it.origin and it.origin.app else None,
    "task": lambda it: it.task_id,
    "trace": lambda it: it.trace_id,
    "defect": lambda it: it.defect,
}
TASK_FACTS: Mapping[str, Callable[[Task], str | None]] = {
    "id": lambda it: it.id,
    "says": lambda it: it.status_message,
    "held by": lambda it: it.role and HOLDERS.get(it.role, it.role),
    "call": lambda it: it.call_id,
    "came": lambda it: _describe_time(it.created_at),
    "changed": lambda it: _describe_time(it.last_updated_at),
    "kept for": lambda it: None if it.ttl_ms is None else format_duration(it.ttl_ms / 1000),
    "polled every": lambda it: None if it.poll_interval_ms is None else format_duration(it.poll_interval_ms / 1000),
    "asks": lambda it: _list_answer_commands(it.pending_ids),
    "defect": lambda it: it.defect,
}
HOLDERS = {"receiver": "the hub, for the server (receiver)", "client": "the server, for the hub (client)"}
LABEL_WIDTH = max(map(len, (*SERVER_FACTS, *CALL_FACTS, *TASK_FACTS)))


def print_record(record: Record, as_json: bool) -> None:
    """Print one record: a line of JSON, or for people one field per line, without empty fields.

    For people, a call, a server or a task is printed as a heading and facts instead.
    """
    fields = record.to_json()
    if as_json:
        print_json(fields)
        return
    if isinstance(record, (Call, Server, Task)):
        print_details(record)
        return
    filled_fields = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    width = max(len(name) for name in fields)
    for name, value in filled_fields.items():
        field = getattr(record, name, None)
        if isinstance(field, datetime):
            text = f"{local_datetime(field)}, {relative_time(field)}"
        elif isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, (dict, list)):
            text = json.dumps(value, indent=2, ensure_ascii=False)
        else:
            text = make_cell(value)
        first, *rest = text.splitlines() or [""]
        say(f"{name:{width}}", colour_text(first, find_style(name, first)))
        for line in rest:
            say(f"{'':{width}}", line)


def print_details(record: Call | Server | Task) -> None:
    """Print a call with its result at the end, a server, or a task."""
    if isinstance(record, Task):
        status = (record.status or "unknown").replace("_", " ")
        heading = f"{record.method or 'a task'} on {record.server}: {status}"
        say(colour_text(heading, find_style("status", record.status or "")))
        _print_facts(TASK_FACTS, record)
        return
    if isinstance(record, Server):
        say(colour_text(f"{record.name}: {_describe_state(record)}", find_style("state", record.state)))
        _print_facts(SERVER_FACTS, record)
        return
    say(colour_text(describe_call(record), find_style("state", call_state(record) or "")))
    _print_facts(CALL_FACTS, record)
    print_call_result(record)


def print_claim(request: PendingRequest, settings: "Settings") -> None:
    """Print who may answer a pending request now, by its claim, and for one's own claim the commands to type next."""
    if settings.json:
        print_json(request.to_json())
        return
    one_line = question_line(request)
    claim = request.claim
    if request.state != "open" or claim is None or claim.id is None:
        state = "free for anybody" if request.state == "open" and claim is None else request_state(request)
        say(f"{request.id} is {state}: {one_line}")
        return
    say(f"{request.id} is claimed by {claim.by} until {local_time(claim.expires_at)}: {one_line}")
    say(f"{'claim':{LABEL_WIDTH}}", claim.id)
    for label, verb in (("answer it", "answer"), ("keep it", "renew"), ("give it back", "release")):
        say(f"{label:{LABEL_WIDTH}}", settings.command("inbox", verb, request.id, "--claim", claim.id))


def print_call_result(call: Call) -> None:
    """Print the result of a call, if it has one."""
    if call.result is not None:
        print_result_for_people(call.method, call.result)


def _print_facts(facts: Mapping[str, Callable[[R], str | None]], record: R) -> None:
    """Print the facts of a record that are not empty, a line each."""
    for label, show in facts.items():
        value = show(record)
        if value:
            first, *rest = value.splitlines() or [""]
            say(f"{label:{LABEL_WIDTH}}", first)
            for line in rest:
                say(f"{'':{LABEL_WIDTH}}", line)


def _list_configured_options(server: Server) -> str | None:
    """Return the configured options of a server, one per line; None if they are not known."""
    from hubbub_client.data.specs import ConfiguredServer  # imported late, since it imports gRPC

    if not isinstance(server, ConfiguredServer) or server.spec is None:
        return None
    return "\n".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in server.spec.to_json().items()
        if key != "name"
    )


def _describe_desired_state(server: Server) -> str | None:
    """Return the wanted state of a server; None if the server is in that state.

    While the hub still connects the server, the command that shows its further states is added.
    """
    if server.desired_state == server.state:
        return None
    is_connecting = server.desired_state == "connected" and not (server.error or server.gave_up)
    return with_hub_options(
        f"{server.desired_state}{f'; follow it: hubbub servers watch {server.name}' if is_connecting else ''}"
    )


def _describe_state(server: Server) -> str:
    """Return the state of a server, with its transport and its MCP revision in brackets if they are known."""
    protocol = f"MCP {server.protocol_version}" if server.protocol_version else None
    details = ", ".join(filter(None, (server.transport, protocol)))
    return f"{server.state} ({details})" if details else server.state


def _describe_server_info(server: Server) -> str | None:
    """Return the title, else the name, and the version that a server gives itself; None if it gives neither."""
    info = as_object(server.server_info)
    return " ".join(str(each) for each in (info.get("title") or info.get("name"), info.get("version")) if each) or None


def _describe_calls(server: Server) -> str | None:
    """Return how many calls of a server wait, are under way, and have ended; None if that is not known."""
    if (queue := server.queue) is None:
        return None
    ended = ((queue.completed, "completed"), (queue.failed, "failed"), (queue.cancelled, "cancelled"))
    return ", ".join([describe_queue(queue), *(f"{count} {name}" for count, name in ended if count)])


def _describe_arguments(call: Call) -> str | None:
    """Return the arguments of a tool's call, or the params of another request, as JSON; None without any."""
    params = as_object(call.params)
    arguments = params.get("arguments") if call.method == "tools/call" else call.params
    return json.dumps(arguments, ensure_ascii=False) if arguments else None


def _describe_approval(call: Call) -> str | None:
    """Return who has approved a call, and by which rule; None if it needed no approval."""
    approval = call.approval
    if approval is None:
        return None
    rule = f"rule {approval.rule!r}"
    if approval.remembered_id:
        return f"remembered as {approval.remembered_id}, {rule}"
    by = f"by {', '.join(approval.approved_by)}" if approval.granted else "not given"
    return f"{by}, {rule}"


def _describe_changed_arguments(call: Call) -> str | None:
    """Return the arguments that were approved in place of the call's own, as JSON; None if they were not changed."""
    changed = call.approval and call.approval.changed_arguments
    return None if changed is None else json.dumps(changed, ensure_ascii=False)


def _describe_time(at: datetime | None) -> str | None:
    return f"{local_datetime(at)}, {relative_time(at)}" if at else None


def _list_answer_commands(ids: tuple[str, ...]) -> str | None:
    """Return for each pending request the command that answers it, a line each; None if there are no requests."""
    return with_hub_options("\n".join(f"{each}, answer it with: hubbub inbox answer {each}" for each in ids)) or None
