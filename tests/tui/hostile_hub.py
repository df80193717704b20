"""A hub in whose every text there is something to steer a terminal, turn its text or hide in it."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from hubbub.v1 import call_pb2, catalog_pb2, event_pb2, inbox_pb2, mcp_pb2, server_pb2, task_pb2

from ..clients.conftest import Refusal, ScriptedHub, staying, told

# An escape, C1's own, a bell, turned text, an invisible space, a mark of direction, a tag, a line separator.
TRICK = "\x1b[2J\x9b5m\x07\u202e\u200b\u2066\U000e0041\u2028"
NOW = datetime.now(UTC)
# What the payloads of questions, calls and tools are made of.
SCHEMA = {
    "type": "object",
    "properties": {
        f"{TRICK}name": {"type": "string", "title": f"{TRICK}title", "description": f"{TRICK}why", "default": TRICK},
        "size": {"type": "string", "format": TRICK, "oneOf": [{"const": TRICK, "title": f"{TRICK}choice"}]},
        "some": {"type": "array", "items": {"type": "string", "enum": [f"{TRICK}each"]}},
        "needed": {"type": "string", "title": f"{TRICK}needed"},
    },
    "required": ["needed"],
}
ASKED: dict[int, dict[str, Any]] = {
    inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_FORM: {"message": f"{TRICK}form", "requestedSchema": SCHEMA},
    inbox_pb2.PENDING_REQUEST_KIND_ELICITATION_URL: {
        "message": f"{TRICK}page",
        "url": f"http://a@b\u202e\u200b\x07.example/{TRICK}",
    },
    inbox_pb2.PENDING_REQUEST_KIND_SAMPLING: {
        "systemPrompt": f"{TRICK}system",
        "messages": [{"role": f"{TRICK}role", "content": {"type": "text", "text": f"{TRICK}sampling"}}],
        "modelPreferences": {"hints": [{"name": f"{TRICK}model"}], f"{TRICK}wish": TRICK},
        "tools": [{"name": f"{TRICK}tool"}],
        "maxTokens": TRICK,
    },
    inbox_pb2.PENDING_REQUEST_KIND_ROOTS: {TRICK: TRICK},
}


def filled(message: Any, **given: Any) -> Any:
    """A message with the trick in each text that it has, however deep; a field that is new is in it by itself."""
    for field in message.DESCRIPTOR.fields:
        if field.name in given:
            continue
        if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
            setattr(message, field.name, f"{TRICK}{field.name}")
        elif field.type == FieldDescriptor.TYPE_STRING:
            getattr(message, field.name).append(f"{TRICK}{field.name}")
        elif field.type == FieldDescriptor.TYPE_BYTES:
            setattr(message, field.name, json.dumps({f"{TRICK}{field.name}": TRICK}).encode())
        elif field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.name == "Timestamp":
            getattr(message, field.name).FromDatetime(NOW)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated:
            filled(getattr(message, field.name))
    for name, value in given.items():
        if value is None:
            message.ClearField(name)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, json.dumps(value).encode() if isinstance(value, dict) else value)
    return message


def questions() -> list[Any]:
    """An open one of each kind, in the order of the kinds, and two that are no more."""
    found: list[Any] = []
    for kind, params in ASKED.items():
        shown = filled(inbox_pb2.PendingRequest(), id=f"{TRICK}{kind}", kind=kind, state=1, request=params)
        shown.expires_at.FromDatetime(NOW + timedelta(hours=kind))
        found.append(shown)
    found[1].ClearField("claim")
    found[1].ClearField("call_id")
    found[1].candidate_call_ids[:] = [f"{TRICK}c2"]
    found[2].ClearField("claim")
    found[2].ClearField("cause_ended")
    moments = [
        filled(inbox_pb2.PendingRequest.Event(), type=what) for what in inbox_pb2.PendingRequest.EventType.values()
    ]
    for state in (inbox_pb2.PENDING_REQUEST_STATE_ANSWERED, inbox_pb2.PENDING_REQUEST_STATE_WITHDRAWN):
        given = {"kind": 1, "state": state, "delivery": 5, "request": ASKED[1], "events": moments}
        found.append(filled(inbox_pb2.PendingRequest(), id=f"{TRICK}over{state}", **given))
    return found


def calls() -> list[Any]:
    """One in each state."""
    content = {"content": [{"type": "text", "text": f"{TRICK}text"}, {"type": TRICK}], "isError": True}
    given = {"result": content, "params": {"name": f"{TRICK}tool"}}
    found = [
        filled(call_pb2.Call(), id=f"{TRICK}c{state}", state=state, **given) for state in call_pb2.CallState.values()
    ]
    found[call_pb2.CALL_STATE_WAITING_INPUT].pending_request_ids.append(f"{TRICK}1")
    found[call_pb2.CALL_STATE_COMPLETED].method = "tools/call"
    return found


def servers() -> list[Any]:
    """One that is connected, one in trouble, one that was given up."""
    wrong = {"name": f"{TRICK}1", "state": server_pb2.SERVER_STATE_ERROR}
    lost = {"name": f"{TRICK}2", "state": server_pb2.SERVER_STATE_ERROR, "gave_up": True}
    well = {"name": f"{TRICK}server", "state": server_pb2.SERVER_STATE_CONNECTED, "error": None}
    return [filled(server_pb2.Server(), **each) for each in (well, wrong, lost)]


def entry(kind: int) -> Any:
    """Something that a server offers."""
    about = {"name": f"{TRICK}name", "title": f"{TRICK}entry {kind}", "description": f"{TRICK}description"}
    about[TRICK] = TRICK
    about |= {"inputSchema": SCHEMA, "uri": f"{TRICK}:uri", "uriTemplate": f"{TRICK}{{name}}"}
    about |= {"arguments": [{"name": f"{TRICK}name", "title": f"{TRICK}title", "description": TRICK}]}
    return filled(catalog_pb2.CatalogEntry(), kind=kind, object=about)


def events() -> list[Any]:
    """One of each kind."""
    said = {"line": f"{TRICK}line", "level": TRICK, "data": TRICK, "message": TRICK, "problem": TRICK, TRICK: TRICK}
    return [filled(event_pb2.ServerEvent(), kind=kind, params=said) for kind in event_pb2.EventKind.values()]


def refuses(code: str = "FAILED_PRECONDITION", reason: str = "TRICKY", **details: Any) -> Callable[[Any], Any]:
    """A reply that is a refusal, in hostile words."""

    def refuse(_: Any) -> Any:
        raise Refusal(code, reason, f"{TRICK}refused", {"claimed_by": f"{TRICK}bob"}, **details)

    return refuse


async def refused_watch(request: Any) -> AsyncIterator[Any]:
    """A watch that is refused."""
    yield refuses()(request)


def script(hub: ScriptedHub) -> None:
    """Has a hub say all of this, and refuse what it is asked to do."""
    asked = {each.id: each for each in questions()}
    made = {each.id: each for each in calls()}
    kinds = [kind for kind in catalog_pb2.CatalogKind.values() if kind]
    lists = [filled(catalog_pb2.CatalogList(), id=f"{TRICK}{kind}", kind=kind, count=1) for kind in kinds]
    tasks = [
        filled(task_pb2.Task(), id=f"{TRICK}t{each}", role=2, status=each) for each in task_pb2.TaskStatus.values()
    ]
    host = filled(mcp_pb2.ConnectedHost(), id=f"{TRICK}h", name=f"{TRICK}host", transport=TRICK, endpoint=f"s/{TRICK}")
    host.requests.append(filled(mcp_pb2.HostRequest(), method=f"{TRICK}method", call_id=f"{TRICK}c1"))
    moving = filled(call_pb2.Progress(), call_id=f"{TRICK}c2", progress=1)

    feed = staying(*(event_pb2.WatchEventsResponse(event=each) for each in events()))
    hub.streams |= {
        "WatchServers": told(server_pb2.WatchServersResponse, *servers()),
        "WatchPendingRequests": told(inbox_pb2.WatchPendingRequestsResponse, *asked.values()),
        "WatchCalls": told(
            call_pb2.WatchCallsResponse, *made.values(), then=[call_pb2.WatchCallsResponse(progress=moving)]
        ),
        "WatchTasks": told(task_pb2.WatchTasksResponse, *tasks),
        "WatchCatalogLists": told(catalog_pb2.WatchCatalogListsResponse, *lists),
        "WatchEvents": feed,
    }
    hub.replies |= {
        "ListHosts": lambda _: mcp_pb2.ListHostsResponse(hosts=[host]),
        "GetPendingRequest": lambda request: inbox_pb2.GetPendingRequestResponse(pending_request=asked[request.id]),
        "GetCall": lambda request: call_pb2.GetCallResponse(call=made[request.id]),
        "ListPendingRequests": lambda _: inbox_pb2.ListPendingRequestsResponse(pending_requests=[*asked.values()]),
        "ListCatalogEntries": lambda request: catalog_pb2.ListCatalogEntriesResponse(
            entries=[entry(request.filter.kinds[0])]
        ),
        "GetTaskResult": lambda _: task_pb2.GetTaskResultResponse(result=json.dumps({TRICK: TRICK}).encode()),
        "ClaimPendingRequest": refuses(reason="ALREADY_CLAIMED"),
        **{
            name: refuses()
            for name in (
                *("ReleasePendingRequest", "AnswerPendingRequest", "ConnectServer", "DisconnectServer", "ClearQueue"),
                *("CancelCall", "CancelTask", "StartCall", "RefreshCatalog"),
            )
        },
    }
