"""Short forms of records for the page's lists, bounded whatever a server wrote."""

from collections.abc import Mapping
from typing import Any, cast

from hubbub_client.data.catalog import CatalogList
from hubbub_client.data.hosts import ConnectedHost
from hubbub_client.data.records import (
    Call,
    Fault,
    PendingRequest,
    Record,
    Server,
    Task,
)
from hubbub_client.payload import as_list, as_object
from hubbub_frontend.display import hosts
from hubbub_frontend.display.code_spans import fold_code
from hubbub_frontend.display.records import call_state, outcome, question_text

MAX_TEXT_CHARS = 300
"""Characters of a text in a list."""

MAX_IDS = 100
"""Pending requests of a call that a list refers to."""

MAX_NOTES = 20
"""Notes about a server that a list refers to."""

MAX_OPEN = 10
"""Open requests of a host that a list shows, and pending requests of each."""


WHOLE_OF_CALL = ("params", "result", "error", "pending_ids", "perhaps_pending_ids", "approval", "origin")
"""Fields of a call that lists do without."""


def brief(record: Record) -> dict[str, Any]:
    """Return the short form of a record as JSON; `done` is true if the record will not change any more."""
    match record:
        case PendingRequest():
            fields = _fields_without(
                record, "request", "answer", "candidate_call_ids", "approvals", "changed_arguments"
            ) | {
                "approved_by": [clip(each.by) for each in record.approvals[:MAX_IDS]],
                "needed": record.approval.rule.needed if record.approval else None,
                "tool": record.approval.tool.name if record.approval else None,
                "question": question_excerpt(record),
                "done": record.state != "open" and record.delivery != "pending",
                "yes_or_no": boolean_field(record),
                "coding_session": record.agent.session if record.agent else None,
                "outcome": outcome(record),
            }
            return _clip_texts(fields) | {"candidate_call_ids": list(record.candidate_call_ids[:MAX_IDS])}
        case Call():
            tool = as_object(record.params).get("name")
            fields = _fields_without(record, *WHOLE_OF_CALL) | {
                "tool": tool if isinstance(tool, str) else None,
                "error": _fault_json(record.error),
                "outcome": call_state(record),
            }
            return _clip_texts(fields) | {
                "pending_ids": list(record.pending_ids[-MAX_IDS:]),
                "perhaps_pending_ids": list(record.perhaps_pending_ids[-MAX_IDS:]),
                "done": record.ended,
            }
        case Task():
            return _clip_texts(_fields_without(record, "pending_ids")) | {
                "pending_ids": list(record.pending_ids[-MAX_IDS:]),
                "done": record.status in ("completed", "failed", "cancelled"),
            }
        case Server():
            info = as_object(record.server_info)
            return _clip_texts(_fields_without(record, "server_info", "capabilities", "error")) | {
                "notes": [clip(note) for note in record.notes[:MAX_NOTES]],
                "server_info": _clip_texts({name: info.get(name) for name in ("name", "title", "version")}),
                "error": _fault_json(record.error),
            }
        case ConnectedHost():
            fields = whole_host_json(record)
            requests = [_limit_ids(request, MAX_OPEN) for request in fields["requests"][:MAX_OPEN]]
            return fields | {"requests": requests, "open": len(record.requests)}
        case CatalogList():
            return _clip_texts(_fields_without(record, "error")) | {"error": _fault_json(record.error)}
        case _:
            return record.to_json()


def whole_host_json(record: ConnectedHost) -> dict[str, Any]:
    """Return a host with all its open requests, and with its state in words."""
    fields = _clip_texts(record.to_json())
    return fields | {
        "requests": [_limit_ids(request, MAX_IDS) for request in fields["requests"]],
        "name": hosts.host_name(record),
        "sees": hosts.endpoint_name(record),
        "transport": hosts.transport_name(record),
        "state": hosts.host_state(record),
        "stream": hosts.stream_state(record),
    }


def question_excerpt(request: PendingRequest) -> str:
    """Return the beginning of what is asked; for a sampling request, the beginning of its last message."""
    params = as_object(request.request)
    if request.kind == "approval":
        return clip(question_text(request))
    if request.kind == "roots":
        return "Which directories may it use?"
    if request.kind != "sampling":
        return clip(fold_code(str(params.get("message") or "")))
    messages = as_list(params.get("messages"))
    return clip(_content_text(as_object(messages[-1]).get("content"))) if messages else ""


def boolean_field(request: PendingRequest) -> dict[str, str] | None:
    """Return the name and title of the only field of a short form, if it is a boolean: a list can offer yes and no.

    None for any other request, for a form with code in its message, and for a form of a coding agent.
    """
    params = as_object(request.request)
    fields = as_object(as_object(params.get("requestedSchema")).get("properties"))
    if request.kind != "elicitation_form" or len(fields) != 1:
        return None
    ((name, schema),) = fields.items()
    title = str(as_object(schema).get("title") or name)
    message = str(params.get("message") or "")
    if fold_code(message) != message or request.agent is not None:
        return None
    if as_object(schema).get("type") != "boolean" or max(len(name), len(title), len(message)) > MAX_TEXT_CHARS:
        return None
    return {"name": name, "title": title}


def clip(text: str) -> str:
    """Return a text of at most MAX_TEXT_CHARS characters."""
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS - 1]}…"


def _content_text(content: object) -> str:
    """Return the texts of a message's content as one text, with `[type]` for other content; at most ten blocks."""
    blocks: list[Any] = as_list(cast("object", content))[:10] if isinstance(content, list) else [content]
    return " ".join(str(as_object(block).get("text") or f"[{as_object(block).get('type')}]") for block in blocks)


def _limit_ids(request: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a host's request with at most `count` ids of pending requests."""
    return {**request, "pending_request_ids": request["pending_request_ids"][:count]}


def _fault_json(fault: Fault | None) -> dict[str, Any] | None:
    """Return a fault without its details, with short texts."""
    return _clip_texts(_fields_without(fault, "details")) if fault else None


def _fields_without(record: Record, *names: str) -> dict[str, Any]:
    """Return the fields of a record without some, by name."""
    return {name: value for name, value in record.to_json().items() if name not in names}


def _clip_texts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with short texts; an id stays whole."""
    return {name: clip(value) if isinstance(value, str) and name != "id" else value for name, value in fields.items()}
