"""Pending requests for the tests of the agent."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hubbub_client.data.records import PendingRequest, RequestKind

SCHEMA = {
    "type": "object",
    "title": "Receipt",
    "properties": {"email": {"type": "string", "title": "E-mail"}, "keep": {"type": "boolean"}},
}
LUNCH = {
    "type": "object",
    "properties": {
        "dish": {
            "type": "string",
            "title": "Dish",
            "oneOf": [{"const": "soup", "title": "Tomato soup"}, {"const": "curry", "title": "Vegetable curry"}],
        },
        "portions": {"type": "integer", "minimum": 1, "maximum": 8, "default": 1},
    },
    "required": ["dish"],
}


def request(kind: RequestKind = "elicitation_form", **params: Any) -> PendingRequest:
    """An open pending request; a form, unless another kind is asked for."""
    if kind == "elicitation_form":
        params = {"message": "Where to?", "requestedSchema": SCHEMA, **params}
    return PendingRequest(
        id="req_1",
        server="shop-1",
        kind=kind,
        state="open",
        delivery="none",
        request=params,
        call_id=None,
        cause_source=None,
        task_id=None,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        deadline=None,
        claim=None,
        answer=None,
        answered_by=None,
        reason=None,
    )


DELETE = request(
    "approval",
    tool={"name": "delete_branch"},
    arguments={"repo": "sandbox", "branch": "x", "force": False, "days": 3},
    caller={"name": "deploy-bot"},
)
CHANGED = replace(DELETE, changed_arguments={"repo": "shop"})
YES = {"approve": True, "kind": "approval", "tool": "delete_*"}
NO = {"deny": "never"}
LONG = replace(DELETE, request={"tool": {"name": "delete_branch"}, "arguments": {"repo": "a" * 30_000 + ";"}})
