"""Approvals as forms for the host that made the call: whether it may be asked, and what its person sees. Pure.

A host's person approves what the form shows, so the form shows the whole call; else the host is not asked. A call
whose arguments somebody has changed is shown in the inbox alone.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from hubbubd import payload
from hubbubd.core.access import Permission, Principal
from hubbubd.core.approvals.votes import is_approver
from hubbubd.core.inbox.request_states import PendingRequest
from hubbubd.downstream.views.question_policy import DECISION, MAX_REASON

MAX_ARGUMENTS: Final = 8000
"""Characters of arguments that a form shows at most: hosts show forms in small dialogs."""

_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        DECISION: {
            "type": "string",
            "title": "Decision",
            "description": "Whether exactly this call is made",
            "enum": ["approve", "deny"],
        },
        "reason": {
            "type": "string",
            "title": "Reason",
            "description": "Why not; the model gets it",
            "maxLength": MAX_REASON,
        },
    },
    "required": [DECISION],
}


def why_not(question: PendingRequest, principal: Principal) -> str:
    """Return a text for people on why a principal cannot approve a call through its host; "" if it can."""
    if not principal.may(Permission.APPROVE, question.server):
        return f"{principal.name} has no permission to approve calls of {question.server}"
    document = payload.loads(question.request)
    rule: Mapping[str, Any] = document["rule"]
    if not is_approver(rule["approvers"], principal.name, principal.groups):
        return f"the rule {rule['name']!r} lets others approve this call"
    if rule["not_by_caller"] and principal.name == question.principal:
        return f"the rule {rule['name']!r} wants somebody else than its caller to approve it"
    if any(vote.by == principal.name for vote in question.votes):
        return f"{principal.name} has approved it already; others have to, too"
    if question.changed is not None:
        return "somebody has changed its arguments, which the inbox shows"
    if len(_describe_arguments(document["arguments"])) > MAX_ARGUMENTS:
        return "its arguments are too long for a form; the inbox shows them"
    return ""


def render_form(document: Mapping[str, Any], server: str) -> dict[str, Any]:
    """Return the params of the elicitation that asks whether a call of `server` may be made."""
    tool, rule, caller = document["tool"], document["rule"], document["caller"]
    through = f" through {_escape(caller['host'])}" if caller["host"] else ""
    lines = [f"{_escape(caller['name'])}{through} wants to run {_escape(tool['name'])} on {_escape(server)}."]
    if document["message"]:
        lines.append(f"Rule {_escape(rule['name'])}: {_escape(document['message'])}")
    if document["reason"]:
        lines.append(f"Asked since {_escape(document['reason'])}.")
    lines += ["Arguments:", _describe_arguments(document["arguments"])]
    return {"message": "\n".join(lines), "requestedSchema": dict(_SCHEMA)}


def _describe_arguments(arguments: object) -> str:
    """Return arguments as indented JSON, with unprintable characters escaped."""
    return "\n".join(f"  {_escape(line)}" for line in json.dumps(arguments, indent=2, ensure_ascii=False).split("\n"))


def _escape(text: str) -> str:
    """Return a text with each unprintable character, as a line end, as its escape sequence."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
