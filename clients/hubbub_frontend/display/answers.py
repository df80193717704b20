"""The answer to a pending request in words: fields by their titles, choices by their labels."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hubbub_client.data.records import PendingRequest
from hubbub_client.payload import as_list, as_object, as_objects
from hubbub_frontend.display import content
from hubbub_frontend.display.approvals import accepted_suggestions, describe_span
from hubbub_frontend.display.decisions import describe_decision
from hubbub_frontend.display.records import ACTIONS
from hubbub_frontend.display.text import line
from hubbub_frontend.forms import Field, fields, value_label

# Fields of an answer that are listed, and characters of a value.
MAX_FIELDS = 60
MAX_VALUE_CHARS = 300


def answer_pairs(request: PendingRequest) -> Sequence[tuple[str, str]]:
    """Return the answer as pairs of a label and a value, each one clean line; empty without an answer.

    The first pair of a form names the action, unless the form was accepted with content.
    """
    answer = as_object(request.answer)
    if not answer:
        return ()
    if error := as_object(answer.get("error")):
        return (("refused", line(error.get("message", ""))),)
    match request.kind:
        case "sampling":
            reply = line(content.content_text(answer), MAX_VALUE_CHARS)
            return (("reply", reply), ("model", line(answer.get("model", "-"))))
        case "roots":
            uris = [line(root.get("uri", "")) for root in as_objects(answer.get("roots"))]
            return (("roots", ", ".join(uris) or "none"),)
        case "approval":
            return _approval_pairs(request, answer)
        case _:
            pairs = _form_pairs(request, answer)
            action = str(answer.get("action"))
            if decision := describe_decision(request):
                return (("answer", decision), *pairs)
            if pairs and action == "accept":
                return pairs
            return (("answer", line(ACTIONS.get(action, action))), *pairs)


def answer_line(request: PendingRequest) -> str:
    """Return the answer in one line: `Dish: Vegetable curry, Spicy: no`, or `declined`."""
    pairs = answer_pairs(request)
    return line(", ".join(value if name == "answer" else f"{name}: {value}" for name, value in pairs), MAX_VALUE_CHARS)


def _approval_pairs(request: PendingRequest, answer: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return the answer to an approval: the action, who took it, and everything else that they decided with it."""
    action = str(answer.get("action"))
    seconds = answer.get("remember_s")
    arguments_note = " with the same arguments" if answer.get("same_arguments") else ""
    suggestions = accepted_suggestions(request, answer)
    pairs = (
        ("answer", ACTIONS.get(action, action)),
        ("by", ", ".join(str(name) for name in as_list(answer.get("by")))),
        ("reason", answer.get("reason") or ""),
        ("comment", answer.get("comment") or ""),
        ("changed to", json.dumps(answer["arguments"], ensure_ascii=False) if "arguments" in answer else ""),
        ("remembered", f"for {describe_span(seconds)}{arguments_note}" if isinstance(seconds, int) else ""),
        ("as well", "; ".join(suggestions)),
    )
    return tuple((name, line(value, MAX_VALUE_CHARS)) for name, value in pairs if value)


def _form_pairs(request: PendingRequest, answer: Any) -> list[tuple[str, str]]:
    """Return the content of a form's answer as pairs of title and value."""
    fields_by_name = {field.name: field for field in fields(as_object(request.request).get("requestedSchema"))}
    values = [*as_object(answer.get("content")).items()]
    pairs: list[tuple[str, str]] = []
    for name, value in values[:MAX_FIELDS]:
        field = fields_by_name.get(name) or Field(name=name, title=name, kind="json")
        pairs.append((line(field.title, 100), line(value_label(field, value) or "none", MAX_VALUE_CHARS)))
    if len(values) > MAX_FIELDS:
        pairs.append(("more", f"{len(values) - MAX_FIELDS} fields"))
    return pairs
