"""Records in words, the same on the command line and on screens."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from hubbub_client.data.approvals import ApprovalRequest, read_approval
from hubbub_client.data.records import (
    Call,
    Claim,
    Fault,
    PendingRequest,
    Progress,
    QueueCounts,
    Server,
    ServerEvent,
)
from hubbub_client.numbers import is_finite
from hubbub_client.payload import as_list, as_object, as_objects
from hubbub_frontend.display.code_spans import fold_code
from hubbub_shared.legible import clean

HUB = "the hub"
"""Shown instead of a server's name in events of the hub itself."""

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
# Characters of a name in a sentence.
MAX_NAME_CHARS = 80
# Characters of a process's last line that are shown with its end.
MAX_STDERR_CHARS = 200

ASKED_FOR = {
    "elicitation_form": "a form",
    "elicitation_url": "a page to visit",
    "sampling": "a text to write",
    "roots": "directories",
    "approval": "an approval",
}
# What became of an answer, after the word "answered"; nothing while that is open.
DELIVERIES = {
    "pending": ", on its way to the server",
    "delivered": ", delivered",
    "failed": ", not delivered",
    "late": ", too late",
}

# What a person did by an answer, by the action that MCP names; the last two by the hub's own.
ACTIONS = {"accept": "accepted", "decline": "declined", "cancel": "dismissed", "approve": "approved", "deny": "denied"}
# The state of a completed call whose tool says itself that it failed (MCP, tools: isError).
TOOL_ERROR = "tool error"

SPANS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def describe_address(address: str, addresses: Sequence[str]) -> str:
    """Return the address at which the hub is reached; if the hub has several, also how many."""
    return f"{address}, one of {len(addresses)} addresses" if len(addresses) > 1 else address


def relative_time(moment: datetime | None) -> str:
    """Return a time relative to now, in the largest unit that fits: `12s ago`, `in 4m`; `-` without a time."""
    if moment is None:
        return "-"
    seconds = (moment - datetime.now(UTC)).total_seconds()
    unit_s, unit = next(((span_s, name) for span_s, name in SPANS if abs(seconds) >= span_s), SPANS[-1])
    amount = f"{int(abs(seconds) // unit_s)}{unit}"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"


def local_datetime(moment: datetime | None) -> str | None:
    """Return a time as the local date and time of day, with seconds; None without a time."""
    return None if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def local_time(moment: datetime | None) -> str | None:
    """Return a time as the local time of day, for lines that stay on the screen; None without a time."""
    return None if moment is None else f"{moment.astimezone():%H:%M:%S}"


def format_duration(seconds: float) -> str:
    """Return a duration in words: `340 ms`, `4.2 s`, `5 min 3 s`, `2 h 5 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def describe_page(url: str) -> str:
    """Return a page to visit in words: the whole URL, then its host, with a warning if the host may imitate another.

    MCP client/elicitation, url mode: show the full URL, make the domain plain, warn of Punycode.
    """
    host = url_host(url)
    if host is None:
        return f"{url} (not a url)"
    warning = f"; {IMITATES}" if may_imitate_host(url) else ""
    return f"{url} (on {host}{warning})"


IMITATES = "beware: its letters may only look like those of a name you know"


def url_host(url: str) -> str | None:
    """Return the host of a URL; empty if the URL has no host, None if it cannot be parsed."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return None


def may_imitate_host(url: str) -> bool:
    """Return whether the host of a URL may look like another: it has letters beyond ASCII, plain or in Punycode."""
    host = url_host(url) or ""
    return not host.isascii() or any(label.startswith("xn--") for label in host.split("."))


def question_text(request: PendingRequest) -> str:
    """Return the question of a pending request as text; a server's message may have several lines."""
    params = as_object(request.request)
    match request.kind:
        case "sampling":
            return "; ".join(_content_text(message.get("content")) for message in as_objects(params.get("messages")))
        case "roots":
            return "which directories may it use?"
        case "approval":
            return describe_wanted_call(request.approval or read_approval({}), request.server)
        case "elicitation_url":
            return f"{params.get('message', '')} {describe_page(str(params.get('url', '')))}".strip()
        case _:
            return str(params.get("message", ""))


def question_line(request: PendingRequest) -> str:
    """Return the question of a pending request as one line of a list; code is folded to its first line."""
    return " ".join(fold_code(question_text(request)).split())


def describe_wanted_call(approval: ApprovalRequest, server: str) -> str:
    """Return in one line who wants to run which tool where: `ada (claude-code 2.1) wants to run push on github`.

    A page of an app is named with the host that shows it: `ada (a page of an app in claude-code 2.1) wants to ...`.
    """
    host = _quote_name(approval.caller.host)
    if approval.caller.app:
        host = f"a page of an app in {host}" if host else "a page of an app"
    host = f" ({host})" if host else ""
    caller, tool = _quote_name(approval.caller.name) or "somebody", _quote_name(approval.tool.name) or "a tool"
    return f"{caller}{host} wants to run {tool} on {_quote_name(server)}"


def _quote_name(name: str) -> str:
    """Return a name as a part of a sentence: cut, and in quotation marks if it could pass for more of the sentence."""
    text = clean(" ".join(name[:MAX_NAME_CHARS].split())) + ("…" if len(name) > MAX_NAME_CHARS else "")
    is_plain = all(character.isalnum() or character in "-_.:/@+… " for character in text) and text.count(" ") < 2
    return text if is_plain else f'"{text.replace(chr(34), chr(39))}"'


def _content_text(content: object) -> str:
    """Return the content of a message as one text. In MCP it is one block, or a list of blocks."""
    blocks = as_objects(content) or [as_object(content)]
    return " ".join(str(block.get("text") or f"[{block.get('type')}]") for block in blocks if block)


def call_title(call: Call) -> str:
    """Return the method of a call, and the name of its tool or prompt."""
    tool = as_object(call.params).get("name")
    return f"{call.method} {tool}" if tool else call.method


def short_call_title(call: Call) -> str:
    """Return the name of the tool that is called; for another method, the method and the name of a prompt."""
    return call_title(call).removeprefix("tools/call ")


def outcome(request: PendingRequest) -> str:
    """Return the outcome of a pending request: declined, dismissed, refused; else its state, such as answered."""
    answer = as_object(request.answer)
    if request.state != "answered" or answer.get("action") == "accept":
        return request.state
    if answer.get("error") is not None:
        return "refused"
    return ACTIONS.get(str(answer.get("action")), request.state)


def request_state(request: PendingRequest) -> str | None:
    """Return the outcome of a pending request; `call is over` if it is open in vain, `late` for a late answer."""
    if request.state == "open" and request.cause_ended:
        return "call is over"
    return "late" if request.delivery == "late" else outcome(request)


def describe_request(request: PendingRequest) -> str:
    """Return in one line the question of a pending request, and its state."""
    question = question_line(request)
    match request.state:
        case "open" if request.cause_ended:
            return f"{request.cause_ended}, an answer may come too late: {question}"
        case "open" if request.claim:
            return f"{describe_claim(request.claim)}: {question}"
        case "open":
            until = f", until {local_time(request.deadline)}" if request.deadline else ""
            return f"{question} ({ASKED_FOR.get(request.kind, request.kind)}{until})"
        case "answered":
            by = f" by {request.answered_by}" if request.answered_by else ""
            return f"{outcome(request)}{by}{DELIVERIES.get(request.delivery or '', '')}: {question}"
        case ended:
            return f"{request.reason or ended}: {question}"


def describe_claim(claim: Claim) -> str:
    """Return who holds a claim: a person who answers, or a host that is asked before all others."""
    if claim.host:
        return f"held for {claim.host} until {local_time(claim.expires_at)}"
    return f"{claim.by} is answering"


def describe_asked_hosts(request: PendingRequest) -> list[str]:
    """Return a line for each MCP host of a request: that it was asked, or why it was not."""
    return [
        f"{host.host}: not asked, {host.why_not}" if host.why_not else f"{host.host}: asked" for host in request.hosts
    ]


def describe_hangup(request: PendingRequest) -> str | None:
    """Return in words when the host that made the call hung up; None if the host is still there."""
    if request.caller_left_at is None:
        return None
    return f"its host hung up at {local_time(request.caller_left_at)}: perhaps nobody hears of the result"


def call_state(call: Call) -> str | None:
    """Return the state of a call, `perhaps waiting` (for a person), or TOOL_ERROR if its tool says that it failed."""
    if call.state == "completed" and as_object(call.result).get("isError"):
        return TOOL_ERROR
    return "perhaps waiting" if call.perhaps_pending_ids and call.state == "in_progress" else call.state


def describe_fault(fault: Fault) -> str:
    """Return a fault in one line: the code, the message, and the last line of an ended process."""
    stderr_line = last_stderr_line(fault)
    return f"{fault.code}: {fault.message}" + (f"; it said: {stderr_line}" if stderr_line else "")


def describe_disconnection(server: Server) -> str:
    """Return in one line that a server is not connected, why, and when the hub tries again."""
    if server.error:
        parts = [f"{server.name} is not connected: {describe_fault(server.error)}"]
    else:
        parts = [f"{server.name}: {server.state}"]
    if server.gave_up:
        parts.append(f"it is not tried again; when that is mended: hubbub servers connect {server.name}")
    elif server.error and server.next_retry_at and server.next_retry_at > datetime.now(UTC):
        parts.append(f"next try {relative_time(server.next_retry_at)}")
    return "; ".join(parts)


def last_stderr_line(fault: Fault) -> str | None:
    """Return the last line on stderr of a process that has ended, cut at MAX_STDERR_CHARS; None if there is no line."""
    lines = [" ".join(str(line).split()) for line in as_list(as_object(fault.details).get("stderr"))]
    last_line = next((line for line in reversed(lines) if line), None)
    if last_line is None:
        return None
    return clean(last_line if len(last_line) <= MAX_STDERR_CHARS else f"{last_line[:MAX_STDERR_CHARS]}…")


BY_APP = "a page of an app, not a model"
"""Who made a call whose origin says so."""


def describe_call(call: Call) -> str:
    """Return in one line what a call runs and its state; once it has ended, also its duration and fault."""
    title = f"{short_call_title(call)} on {call.server}"
    duration = ""
    if call.completed_at:
        duration = f" after {format_duration((call.completed_at - call.created_at).total_seconds())}"
    match call.state:
        case "completed":
            is_error = as_object(call.result).get("isError")
            return f"{title}: completed{duration}" + (", and the tool says that this is an error" if is_error else "")
        case "failed" | "cancelled" as end:
            return f"{title}: {end}{duration}" + (f": {describe_fault(call.error)}" if call.error else "")
        case "waiting_input":
            return f"{title}: waits for a person ({', '.join(call.pending_ids)})"
        case "in_progress" if call.perhaps_pending_ids:
            return f"{title}: perhaps waiting for a person ({', '.join(call.perhaps_pending_ids)})"
        case "in_progress":
            return f"{title}: in progress"
        case state:
            return f"{title}: {state}"


def describe_queue(counts: QueueCounts | None) -> str:
    """Return the counts of a server's queue in words: `2 queued, 1 in progress`; `idle`, or `-` if they are unknown."""
    if counts is None:
        return "-"
    parts = ((counts.queued, "queued"), (counts.in_progress, "in progress"), (counts.waiting_input, "waiting"))
    return ", ".join(f"{count} {name}" for count, name in parts if count) or "idle"


def describe_progress(progress: Progress) -> str:
    """Return progress in words: `3/10 copying`."""
    amount = f"{progress.progress:g}" + (f"/{progress.total:g}" if progress.total is not None else "")
    return f"{amount} {progress.message or ''}".strip()


def format_size(size: float) -> str:
    """Return a number of bytes in the largest unit that fits: `1.5 MiB`."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {UNITS[unit]}" if unit else f"{size} {UNITS[0]}"


def describe_config_change(params: Mapping[str, Any]) -> str:
    """Return in one line what a reload of the configuration changed, or why the hub did not take it over."""
    if "problem" in params:
        return f"the configuration is not taken over: {params['problem']}"
    labels = {key: key for key in ("added", "changed", "removed", "settings")} | {"needs_restart": "after a restart"}
    names = {label: ", ".join(str(name) for name in as_list(params.get(key))) for key, label in labels.items()}
    parts = [f"{label} {listed}" for label, listed in names.items() if listed]
    return f"the configuration was read again: {'; '.join(parts) or 'all is as before'}"


def describe_event(event: ServerEvent) -> str:
    """Return the report of a server in one line; as JSON if the params do not fit the kind of the event."""
    return _event_text(event, as_object(event.params)).replace("\n", " ").rstrip()


def _format_amount(value: object) -> str:
    """Return a number as short as it can be written; another value as its text."""
    return f"{value:g}" if isinstance(value, (int, float)) and is_finite(value) else str(value)


def format_log_line(params: Mapping[str, Any]) -> str:
    """Return a log message of a server: its level, who logs, and what."""
    data = params.get("data")
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    logger = f"{params['logger']}: " if params.get("logger") else ""
    return f"{params.get('level')}  {logger}{text}"


def _event_text(event: ServerEvent, params: Mapping[str, Any]) -> str:
    """Return the report of a server in words, by the kind of the event; it may have several lines."""
    call_note = f" (call {event.call_id})" if event.call_id else ""
    method = event.method or ""
    match event.kind:
        case "stderr" | "throttled" if "line" in params:
            return str(params["line"])
        case "log":
            return format_log_line(params)
        case "progress" if "progress" in params:
            amounts = [_format_amount(params[key]) for key in ("progress", "total") if params.get(key) is not None]
            return f"{'/'.join(amounts)} {params.get('message') or ''}{call_note}"
        case "list_changed" if method.count("/") == 2:  # notifications/tools/list_changed
            return f"its {method.split('/')[1]} have changed"
        case "resource_updated" if "uri" in params:
            return f"{params['uri']} has changed"
        case "cancelled" if "requestId" in params:
            reason = f": {params['reason']}" if params.get("reason") else ""
            return f"it takes back its request {params['requestId']}{reason}"
        case "elicitation_complete" if "elicitationId" in params:
            return f"the page of {params['elicitationId']} is done"
        case "task_status" if "taskId" in params:
            message = f": {params['statusMessage']}" if params.get("statusMessage") else ""
            return f"task {params['taskId']} is {str(params.get('status')).replace('_', ' ')}{message}"
        case "config_reloaded" | "config_problem":
            return describe_config_change(params)
        case _:
            return f"{method or event.kind}  {json.dumps(params, ensure_ascii=False)}"
