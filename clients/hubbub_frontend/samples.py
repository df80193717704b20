"""Commands that work when they are pasted: a call of a tool, an answer to a pending request."""

import shlex
from collections.abc import Mapping
from typing import Any

from hubbub_client.data.records import PendingRequest
from hubbub_client.payload import as_object, as_objects
from hubbub_frontend.forms import Field, example_value, fields, nested_fields, typed_text
from hubbub_shared.agent_decisions import find_decisions


def sample_argument(field: Field) -> str:
    """Return `key=value` with a value that the field takes; `key:=JSON` where text would not do."""
    value = example_value(field)
    if isinstance(value, str) and not value.startswith("@"):
        return f"{field.name}={value}"
    mark = "=" if isinstance(value, bool | int | float) else ":="
    return f"{field.name}{mark}{typed_text(value)}"


def sample_command(kind: str, server: str, definition: Mapping[str, Any]) -> list[str]:
    """Return the words of a command that uses an offer of a server: a tool, prompt, resource or skill.

    Empty for a template, whose URI has to be filled in first.
    """
    name = str(definition.get("name", ""))
    match kind:
        case "tool":
            required = [field for field in nested_fields(definition.get("inputSchema")) if field.required]
            objects = {
                field.name.rpartition(".")[0] for field in required
            }  # their required fields are typed one by one
            return ["call", server, name, *(sample_argument(field) for field in required if field.name not in objects)]
        case "prompt":
            arguments = [each for each in as_objects(definition.get("arguments")) if each.get("required") is True]
            return ["prompt", server, name, *(f"{each.get('name')}=text" for each in arguments)]
        case "resource" | "skill":
            return ["read", server, str(definition.get("uri", ""))]
        case _:
            return []


def sample_answer(request: PendingRequest) -> list[str]:
    """Return the arguments of `inbox answer ID` for an answer that the hub accepts."""
    match request.kind:
        case "elicitation_form":
            if decisions := find_decisions(as_object(request.request)):
                return [f"{decisions.member}={decisions.choices[0].value}"]
            form = fields(as_object(request.request).get("requestedSchema"))
            return [sample_argument(each) for each in form if each.required] or ["--accept"]
        case "elicitation_url":
            return ["--accept"]
        case "sampling":
            return ["--text", "..."]
        case "approval":
            return ["--approve"]
        case _:
            return ["--result", '{"roots": []}']


def answer_options(request: PendingRequest) -> str:
    """Return what a person may type after `inbox answer ID`: an answer that the hub accepts, and the other options."""
    others = {
        "elicitation_form": " (or --accept, --decline, --cancel)",
        "elicitation_url": " (or --decline, --cancel)",
        "approval": " (or --deny '...')",
        "sampling": " (or --result '{...}', --error '...')",
    }
    return shlex.join(sample_answer(request)) + others.get(request.kind, "")
