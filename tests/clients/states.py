"""A hub in which questions and calls have come to odd ends: for the frontends that show them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hubbub.v1 import admin_pb2, call_pb2, catalog_pb2, common_pb2, inbox_pb2, mcp_pb2, server_pb2, task_pb2

from .conftest import Refusal, ScriptedHub, staying, told

ARGUMENTS = {"service": "billing", "steps": "\n".join(f"step {number}" for number in range(40))}
WHY_OVER = "nobody answered within 600 s"


def asked(words: str, **fields: Any) -> Any:
    """A question of this text, asked a while ago."""
    form = {"message": words, "requestedSchema": {"type": "object", "properties": {"note": {"type": "string"}}}}
    request = inbox_pb2.PendingRequest(server="deploy", kind=1, request=json.dumps(form).encode(), **fields)
    request.created_at.FromDatetime(datetime.now(UTC) - timedelta(minutes=20))
    return request


def questions() -> dict[str, Any]:
    """One that is held for a host, one that expired, two whose call was cancelled, one with long arguments."""
    held = asked("Held?", id="held", state=1, call_id="waits")
    held.claim.by, held.claim.host = "local", "claude-code"
    held.claim.expires_at.FromDatetime(datetime.now(UTC) + timedelta(hours=1))
    cancel = json.dumps({"action": "cancel", "_meta": {"hubbub/reason": WHY_OVER}}).encode()
    expired = asked("Expired?", id="expired", state=4, delivery=3, answer=cancel, reason=WHY_OVER)
    withdrawn = asked("Withdrawn?", id="withdrawn", state=3, delivery=1, call_id="over", reason="its caller hung up")
    done = {"answer": b'{"action":"accept","content":{}}', "answered_by": "ann"}
    answered = asked("Answered?", id="answered", state=2, delivery=3, call_id="over", **done)
    long = asked("Long?", id="long", state=1, call_id="waits")
    return {each.id: each for each in (held, expired, withdrawn, answered, long)}


def calls() -> dict[str, Any]:
    """One that waits, and one that was cancelled because its caller hung up."""
    params = json.dumps({"name": "release", "arguments": ARGUMENTS}).encode()
    waits = call_pb2.Call(id="waits", server="deploy", method="tools/call", params=params, state=3)
    over = call_pb2.Call(id="over", server="deploy", method="tools/call", params=params, state=6)
    over.error.CopyFrom(common_pb2.Fault(code="CALL_CANCELLED", message="its caller hung up"))
    for each in (waits, over):
        each.created_at.FromDatetime(datetime.now(UTC) - timedelta(minutes=21))
    over.completed_at.FromDatetime(datetime.now(UTC))
    return {each.id: each for each in (waits, over)}


def script(hub: ScriptedHub) -> None:
    """Has the hub show them; a claim of what is held for a host is refused."""
    asks, made = questions(), calls()

    def claim(request: Any) -> Any:
        if request.id == "held":
            raise Refusal("FAILED_PRECONDITION", "ALREADY_CLAIMED", "claimed", {"claimed_by": "local"})
        mine = inbox_pb2.PendingRequest()
        mine.CopyFrom(asks[request.id])
        mine.claim.id, mine.claim.by = request.claim_id, "ann"
        mine.claim.expires_at.FromDatetime(datetime.now(UTC) + timedelta(minutes=1))
        return inbox_pb2.ClaimPendingRequestResponse(pending_request=mine)

    hub.streams |= {
        "WatchServers": told(server_pb2.WatchServersResponse),
        "WatchPendingRequests": told(inbox_pb2.WatchPendingRequestsResponse, *asks.values()),
        "WatchCalls": told(call_pb2.WatchCallsResponse, *made.values()),
        "WatchTasks": told(task_pb2.WatchTasksResponse),
        "WatchCatalogLists": told(catalog_pb2.WatchCatalogListsResponse),
        "WatchEvents": staying(),
    }
    hub.replies |= {
        "GetSelf": lambda _: admin_pb2.GetSelfResponse(caller=admin_pb2.Caller(name="ann", may_name_others=True)),
        "GetPendingRequest": lambda it: inbox_pb2.GetPendingRequestResponse(pending_request=asks[it.id]),
        "GetCall": lambda it: call_pb2.GetCallResponse(call=made[it.id]),
        "ListPendingRequests": lambda _: inbox_pb2.ListPendingRequestsResponse(),
        "ListHosts": lambda _: mcp_pb2.ListHostsResponse(),
        "ClaimPendingRequest": claim,
        "ReleasePendingRequest": lambda it: inbox_pb2.ReleasePendingRequestResponse(pending_request=asks[it.id]),
    }
