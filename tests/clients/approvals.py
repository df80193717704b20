"""A call to approve, as a scripted hub has it."""

import json
from typing import Any

from hubbub.v1 import inbox_pb2

DIGEST = "sha256:of-what-was-shown"
DOCUMENT: dict[str, Any] = {
    "message": "Deletes need two people.",
    "reason": "",
    "rule": {
        "name": "deletes",
        "needed": 2,
        "not_by_caller": True,
        "approvers": [],
        "edit": True,
        "remember_s": [3600, 86400],
    },
    "tool": {
        "name": "delete_branch",
        "description": "Deletes it.",
        "annotations": {"destructiveHint": True},
        "inputSchema": {"properties": {"repo": {"title": "Repository"}, "branch": {}}},
    },
    "arguments": {"repo": "shop", "branch": "release/1.4"},
    "digest": DIGEST,
    "definition": "",
    "caller": {"name": "deploy-bot", "host": "claude-code 2.1", "profile": "default", "roles": ["caller"]},
    "before": [],
}


def approval(**more: Any) -> inbox_pb2.PendingRequest:
    fields: dict[str, Any] = {
        "id": "req_1",
        "server": "github",
        "kind": inbox_pb2.PENDING_REQUEST_KIND_APPROVAL,
        "state": inbox_pb2.PENDING_REQUEST_STATE_OPEN,
        "request": json.dumps(DOCUMENT).encode(),
        "arguments_digest": DIGEST,
        **more,
    }
    return inbox_pb2.PendingRequest(**fields)


def answered(request: Any) -> Any:
    return inbox_pb2.AnswerPendingRequestResponse(
        pending_request=approval(id=request.id, state=inbox_pb2.PENDING_REQUEST_STATE_ANSWERED)
    )


def ask(hub: Any) -> None:
    """Has the hub show one call to approve, and take every answer."""
    hub.replies["GetPendingRequest"] = lambda request: inbox_pb2.GetPendingRequestResponse(pending_request=approval())
    hub.replies["AnswerPendingRequest"] = answered
