"""Records in words, the same on the command line and on screens."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

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
from hubbub_client.legible import clean
from hubbub_client.numbers import is_finite
from hubbub_client.payload import as_list, as_object, as_objects

HUB = "the hub"
"""Shown instead of a server's name in events of the hub itself."""

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
# Characters of a process's last line that are shown with its end.
MAX_SAID = 200

ASKED_FOR = {
    "elicitation_form": "a form",
    "elicitation_url": "a page to visit",
    "sampling": "a text to write",
    "roots": "directories",
}
# What became of an answer; nothing yet is said in no words.
DELIVERED = {
    "pending": ", on its way to the server",
    "delivered": ", delivered",
    "failed": ", not delivered",
    "late": ", too late",
}

# What an answer does.
ACTIONS = {"accept": "accepted", "decline": "declined", "cancel": "dismissed"}
# What a tool has done that was called, and says itself that it failed (MCP, tools: isError).
TOOL_ERROR = "tool error"

SPANS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def describe_address(address: str, addresses: Sequence[str]) -> str:
    """Return where the hub is reached, and of how many addresses that is one."""
    return f"{address}, one of {len(addresses)} addresses" if len(addresses) > 1 else address


def relative_time(moment: datetime | None) -> str:
    """Return a time relative to now: `12s ago`, `in 4m`."""
    if moment is None:
        return "-"
    seconds = (moment - datetime.now(UTC)).total_seconds()
    size, unit = next((each for each in SPANS if abs(seconds) >= each[0]), SPANS[-1])
    amount = f"{int(abs(seconds) // size)}{unit}"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"


def local_datetime(at: datetime | None) -> str | None:
    """Return a local time of day with its date."""
    return None if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def local_time(at: datetime | None) -> str | None:
    """Return a local time of day, for lines that stay on the screen while time passes."""
    return None if at is None else f"{at.astimezone():%H:%M:%S}"


def format_duration(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def describe_page(url: str) -> str:
    """Render a page to visit: the whole url, then its host, with a warning if it may imitate another.

    MCP client/elicitation, url mode: show the full URL, make the domain plain, warn of Punycode.
    """
    host = url_host(url)
    if host is None:
        return f"{url} (not a url)"
    return f"{url} (on {host}{'; ' + IMITATES if may_imitate_host(url) else ''})"


IMITATES = "beware: its letters may only look like those of a name you know"


def url_host(url: str) -> str | None:
    """Return the host of a page, empty if it has none; None if it is no url."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return None


def may_imitate_host(url: str) -> bool:
    """Return whether a page may imitate another: its host has letters of other scripts, plainly or in Punycode."""
    host = url_host(url) or ""
    return not host.isascii() or any(label.startswith("xn--") for label in host.split("."))


def question_text(request: PendingRequest) -> str:
    """Return what is asked, in one line."""
    params = as_object(request.request)
    match request.kind:
        case "sampling":
            return "; ".join(_content_text(message.get("content")) for message in as_objects(params.get("messages")))
        case "roots":
            return "which directories may it use?"
        case "elicitation_url":
            return f"{params.get('message', '')} {describe_page(str(params.get('url', '')))}".strip()
        case _:
            return str(params.get("message", ""))


def _content_text(content: object) -> str:
    if parts := as_list(content):
        return " ".join(str(part.get("text") or f"[{part.get('type')}]") for part in as_objects(parts))
    part = as_object(content)
    return str(part.get("text") or f"[{part.get('type')}]") if part else ""


def call_title(call: Call) -> str:
    """Return the method of a call, and the name of its tool or prompt."""
    tool = as_object(call.params).get("name")
    return f"{call.method} {tool}" if tool else call.method


def outcome(request: PendingRequest) -> str:
    """Return what came of a pending request: declined, dismissed, refused; else its state, such as answered."""
    answer = as_object(request.answer)
    if request.state != "answered" or answer.get("action") == "accept":
        return request.state
    return "refused" if answer.get("error") is not None else ACTIONS.get(str(answer.get("action")), request.state)


def request_state(request: PendingRequest) -> str | None:
    """Return what came of a pending request; also whether its call is over, or its answer came too late."""
    if request.state == "open" and request.cause_ended:
        return "call is over"
    return "late" if request.delivery == "late" else outcome(request)


def describe_request(request: PendingRequest) -> str:
    """Return in one line what is asked, and what has become of it."""
    asks = " ".join(question_text(request).split())
    match request.state:
        case "open" if request.cause_ended:
            return f"{request.cause_ended}, an answer may come too late: {asks}"
        case "open" if request.claim:
            return f"{describe_claim(request.claim)}: {asks}"
        case "open":
            until = f", until {local_time(request.deadline)}" if request.deadline else ""
            return f"{asks} ({ASKED_FOR.get(request.kind, request.kind)}{until})"
        case "answered":
            by = f" by {request.answered_by}" if request.answered_by else ""
            return f"{outcome(request)}{by}{DELIVERED.get(request.delivery or '', '')}: {asks}"
        case ended:
            return f"{request.reason or ended}: {asks}"


def describe_claim(claim: Claim) -> str:
    """Return who holds a claim: a person who answers, or a host that is asked before all others."""
    if claim.host:
        return f"held for {claim.host} until {local_time(claim.expires_at)}"
    return f"{claim.by} is answering"


def describe_asked_hosts(request: PendingRequest) -> list[str]:
    """Return which MCP hosts were asked, and why others were not."""
    return [f"{each.host}: {f'not asked, {each.why_not}' if each.why_not else 'asked'}" for each in request.hosts]


def describe_hangup(request: PendingRequest) -> str | None:
    """Return that the host which made the call has hung up, if it has."""
    at = request.caller_left_at
    return f"its host hung up at {local_time(at)}: perhaps nobody hears of the result" if at is not None else None


def call_state(call: Call) -> str | None:
    """Return the state of a call; also whether it is perhaps waiting for a person, or its tool says that it failed."""
    if call.state == "completed" and as_object(call.result).get("isError"):
        return TOOL_ERROR
    return "perhaps waiting" if call.perhaps_pending_ids and call.state == "in_progress" else call.state


def describe_fault(fault: Fault) -> str:
    """Return a fault in one line: the code, the message, and the last line of an ended process."""
    said = last_stderr_line(fault)
    return f"{fault.code}: {fault.message}" + (f"; it said: {said}" if said else "")


def describe_disconnection(server: Server) -> str:
    """Return that a server is not connected, why, and when it is tried again, in one line."""
    parts = [
        f"{server.name} is not connected: {describe_fault(server.error)}"
        if server.error
        else f"{server.name}: {server.state}"
    ]
    if server.gave_up:
        parts.append(f"it is not tried again; when that is mended: hubbub servers connect {server.name}")
    elif server.error and server.next_retry_at and server.next_retry_at > datetime.now(UTC):
        parts.append(f"next try {relative_time(server.next_retry_at)}")
    return "; ".join(parts)


def last_stderr_line(fault: Fault) -> str | None:
    """Return the last line on stderr of a process that has ended, if any."""
    said = [text for each in as_list(as_object(fault.details).get("stderr")) if (text := " ".join(str(each).split()))]
    if not said:
        return None
    return clean(said[-1] if len(said[-1]) <= MAX_SAID else f"{said[-1][:MAX_SAID]}…")


def describe_call(call: Call) -> str:
    """Return the history of a call, in one line."""
    who = f"{call_title(call).removeprefix('tools/call ')} on {call.server}"
    took = (
        f" after {format_duration((call.completed_at - call.created_at).total_seconds())}" if call.completed_at else ""
    )
    match call.state:
        case "completed":
            told = ", and the tool says that this is an error" if as_object(call.result).get("isError") else ""
            return f"{who}: completed{took}{told}"
        case "failed" | "cancelled" as end:
            return f"{who}: {end}{took}" + (f": {describe_fault(call.error)}" if call.error else "")
        case "waiting_input":
            return f"{who}: waits for a person ({', '.join(call.pending_ids)})"
        case "in_progress" if call.perhaps_pending_ids:
            return f"{who}: perhaps waiting for a person ({', '.join(call.perhaps_pending_ids)})"
        case "in_progress":
            return f"{who}: in progress"
        case other:
            return f"{who}: {other}"


def describe_queue(counts: QueueCounts | None) -> str:
    """Return the counts of a server's queue, in words."""
    if counts is None:
        return "-"
    parts = ((counts.queued, "queued"), (counts.in_progress, "in progress"), (counts.waiting_input, "waiting"))
    return ", ".join(f"{count} {name}" for count, name in parts if count) or "idle"


def describe_progress(progress: Progress) -> str:
    """Return progress in words: `3/10 copying`."""
    share = f"{progress.progress:g}" + (f"/{progress.total:g}" if progress.total is not None else "")
    return f"{share} {progress.message or ''}".strip()


def format_size(count: float) -> str:
    """Return a number of bytes in the largest unit of at least one."""
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.1f} {UNITS[unit]}" if unit else f"{count} {UNITS[0]}"


def describe_config_change(params: Mapping[str, Any]) -> str:
    """Return the state of the configuration in one line: what is wrong, or what is different now."""
    if "problem" in params:
        return f"the configuration is not taken over: {params['problem']}"
    words = {"added": "added", "changed": "changed", "removed": "removed", "settings": "settings"}
    words["needs_restart"] = "after a restart"
    named = {word: ", ".join(map(str, as_list(params.get(key)))) for key, word in words.items()}
    parts = "; ".join(f"{word} {names}" for word, names in named.items() if names)
    return f"the configuration was read again: {parts or 'all is as before'}"


def describe_event(event: ServerEvent) -> str:
    """Return in one line what a server tells; as JSON where it tells what its kind does not have."""
    return _told(event, as_object(event.params)).replace("\n", " ").rstrip()


def _format_amount(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) and is_finite(value) else str(value)


def format_log_line(params: Mapping[str, Any]) -> str:
    """Return a log message of a server: its level, who logs, and what."""
    data = params.get("data")
    said = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    logger = f"{params['logger']}: " if params.get("logger") else ""
    return f"{params.get('level')}  {logger}{said}"


def _told(event: ServerEvent, params: Mapping[str, Any]) -> str:
    of_call = f" (call {event.call_id})" if event.call_id else ""
    match event.kind:
        case "stderr" | "throttled" if "line" in params:
            return str(params["line"])
        case "log":
            return format_log_line(params)
        case "progress" if "progress" in params:
            share = "/".join(
                _format_amount(params[key]) for key in ("progress", "total") if params.get(key) is not None
            )
            return f"{share} {params.get('message') or ''}{of_call}"
        case "list_changed" if (event.method or "").count("/") == 2:
            return f"its {(event.method or '').split('/')[1]} have changed"
        case "resource_updated" if "uri" in params:
            return f"{params['uri']} has changed"
        case "cancelled" if "requestId" in params:
            why_ = f": {params['reason']}" if params.get("reason") else ""
            return f"it takes back its request {params['requestId']}{why_}"
        case "elicitation_complete" if "elicitationId" in params:
            return f"the page of {params['elicitationId']} is done"
        case "task_status" if "taskId" in params:
            said = f": {params['statusMessage']}" if params.get("statusMessage") else ""
            return f"task {params['taskId']} is {str(params.get('status')).replace('_', ' ')}{said}"
        case "config_reloaded" | "config_problem":
            return describe_config_change(params)
        case _:
            return f"{event.method or event.kind}  {json.dumps(params, ensure_ascii=False)}"
