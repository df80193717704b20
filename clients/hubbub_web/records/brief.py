"""Short forms of records for the page's lists, bounded whatever a server wrote."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from hubbub_client.data.records import (
    Call,
    CatalogList,
    ConnectedHost,
    Fault,
    PendingRequest,
    Record,
    Server,
    Task,
)
from hubbub_frontend.display import hosts
from hubbub_frontend.display.records import call_state, outcome

LONGEST = 300
"""Characters of a text in a list."""

MOST_IDS = 100
"""Pending requests of a call that a list refers to."""

MOST_NOTES = 20
"""Notes about a server that a list refers to."""

MOST_OPEN = 10
"""Open requests of a host that a list shows, and pending requests of each."""


def brief(record: Record) -> dict[str, Any]:
    """Return the short form of a record; `done` says that it will not change any more."""
    match record:
        case PendingRequest():
            short = _without(record, "request", "answer", "candidate_call_ids") | {
                "question": question(record),
                "done": _settled(record),
                "yes_or_no": yes_or_no(record),
                "outcome": outcome(record),
            }
            return _clipped(short) | {"candidate_call_ids": list(record.candidate_call_ids[:MOST_IDS])}
        case Call():
            tool = _mapping(record.params).get("name")
            short = _without(record, "params", "result", "error", "pending_ids", "perhaps_pending_ids")
            more = {"tool": tool if isinstance(tool, str) else None, "error": _fault(record.error)}
            more["outcome"] = call_state(record)
            ids = list(record.pending_ids[-MOST_IDS:])
            perhaps = list(record.perhaps_pending_ids[-MOST_IDS:])
            return _clipped(short | more) | {"pending_ids": ids, "perhaps_pending_ids": perhaps, "done": record.ended}
        case Task():
            done = record.status in ("completed", "failed", "cancelled")
            return _clipped(_without(record, "pending_ids")) | {
                "pending_ids": list(record.pending_ids[-MOST_IDS:]),
                "done": done,
            }
        case Server():
            info = _mapping(record.server_info)
            names = {name: info.get(name) for name in ("name", "title", "version")}
            short = _clipped(_without(record, "server_info", "capabilities", "error"))
            short["notes"] = [clip(note) for note in record.notes[:MOST_NOTES]]
            return short | {"server_info": _clipped(names), "error": _fault(record.error)}
        case ConnectedHost():
            shape = whole_host(record)
            waited = [_waited(each, MOST_OPEN) for each in shape["requests"][:MOST_OPEN]]
            return shape | {"requests": waited, "open": len(record.requests)}
        case CatalogList():
            return _clipped(_without(record, "error")) | {"error": _fault(record.error)}
        case _:
            return record.to_json()


def whole_host(record: ConnectedHost) -> dict[str, Any]:
    """Return a host with all its open requests, and with how it stands in words."""
    shape = _clipped(record.to_json())
    shape["requests"] = [_waited(each, MOST_IDS) for each in shape["requests"]]
    shape |= {
        "name": hosts.host_name(record),
        "sees": hosts.endpoint_name(record),
        "transport": hosts.transport_name(record),
    }
    return shape | {"state": hosts.host_state(record), "stream": hosts.stream_state(record)}


def question(request: PendingRequest) -> str:
    """Return the beginning of what is asked."""
    params = _mapping(request.request)
    if request.kind == "roots":
        return "Which directories may it use?"
    if request.kind != "sampling":
        return clip(str(params.get("message") or ""))
    messages = cast("object", params.get("messages"))
    last = cast("list[object]", messages)[-1:] if isinstance(messages, list) else []
    return clip(" ".join(_spoken(_mapping(message).get("content")) for message in last))


def yes_or_no(request: PendingRequest) -> dict[str, str] | None:
    """Return the name and title of the field of a form that asks for one boolean alone, if all of it is short."""
    schema = _mapping(_mapping(request.request).get("requestedSchema"))
    fields = _mapping(schema.get("properties"))
    if request.kind != "elicitation_form" or len(fields) != 1:
        return None
    name, spec = next(iter(fields.items()))
    title = str(_mapping(spec).get("title") or name)
    asked = str(_mapping(request.request).get("message") or "")
    if _mapping(spec).get("type") != "boolean" or max(len(name), len(title), len(asked)) > LONGEST:
        return None
    return {"name": name, "title": title}


def clip(text: str) -> str:
    """Truncate a text to LONGEST characters."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _spoken(content: object) -> str:
    parts: Iterable[object] = cast("list[object]", content)[:10] if isinstance(content, list) else [content]
    return " ".join(str(_mapping(part).get("text") or f"[{_mapping(part).get('type')}]") for part in parts)


def _waited(request: Mapping[str, Any], most: int) -> dict[str, Any]:
    return {**request, "pending_request_ids": request["pending_request_ids"][:most]}


def _settled(request: PendingRequest) -> bool:
    return request.state != "open" and request.delivery != "pending"


def _fault(fault: Fault | None) -> dict[str, Any] | None:
    return _clipped(_without(fault, "details")) if fault else None


def _without(record: Record, *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.to_json().items() if name not in names}


def _clipped(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {name: clip(value) if isinstance(value, str) and name != "id" else value for name, value in shape.items()}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
