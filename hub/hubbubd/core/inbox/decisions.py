"""Put the decision that an agent reads into the answer to its question (`hubbub_shared.agent_decisions`)."""

from collections.abc import Mapping
from typing import Any, cast

from hubbub_shared.agent_decisions import AgentDecisions, find_decisions
from hubbubd.errors import InvalidArgument


def place_decision(request: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a form with its decision where the agent reads that; of a form without decisions as it is.

    A decision among the content is taken out of it, and the action becomes the one that goes with it. A result without
    a decision gets the one that its action stands for: a yes is for this time only. Raises InvalidArgument for an
    unknown decision, and for one that says something else than the action.
    """
    known = find_decisions(request)
    if known is None:
        return result
    content = result.get("content")
    if isinstance(content, Mapping) and known.member in content and not _is_field(request, known):
        left = {**cast("dict[str, Any]", content)}
        return _place_field_decision(known, result, left.pop(known.member), left)
    return complete_decision(request, result, check=True)


def complete_decision(request: Mapping[str, Any], result: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    """Return the result with the decision that its action stands for, unless it has one.

    With `check`, raises InvalidArgument if it has one that says something else than its action.
    """
    known = find_decisions(request)
    if known is None:
        return result
    action = result.get("action")
    given = result.get(known.member)
    if given is None:
        default = known.find_default(action)
        return result if default is None else {**result, known.member: default.value}
    decision = known.find(given)
    # What is not in the table may be a decision of another version; it must not be more than the person said.
    if check and (decision.action if decision is not None else "accept") != action:
        raise InvalidArgument.field(f"result.{known.member}", f"does not go with the action {action}")
    return result


def _place_field_decision(
    known: AgentDecisions, result: dict[str, Any], value: object, content: dict[str, Any]
) -> dict[str, Any]:
    """Return the result of a form with a decision, the `value` of a field, where the agent reads it.
    `content` has the other fields. Raises InvalidArgument.
    """
    decision = known.find(value)
    if decision is None:
        choices = ", ".join(each.value for each in known.choices)
        raise InvalidArgument.field(f"content.{known.member}", f"is one of {choices}")
    if result.get("action") != "accept":
        raise InvalidArgument.field(f"content.{known.member}", "is given by accepting")
    placed = {**result, "action": decision.action, known.member: decision.value}
    if decision.action == "accept":
        return {**placed, "content": content}
    if content:
        raise InvalidArgument.field("content", f"has nothing else with {known.member} = {decision.value}")
    del placed["content"]
    return placed


def _is_field(request: Mapping[str, Any], known: AgentDecisions) -> bool:
    """Return whether the form has a field of this name of its own."""
    schema = request.get("requestedSchema")
    fields = cast("Mapping[str, Any]", schema).get("properties") if isinstance(schema, Mapping) else None
    return isinstance(fields, Mapping) and known.member in fields
