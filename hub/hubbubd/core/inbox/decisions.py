"""Put the decision that an agent reads into the answer to its question (`hubbub_shared.agent_decisions`)."""

from collections.abc import Mapping
from typing import Any, cast

from hubbub_shared.agent_decisions import AgentDecisions, find_decisions
from hubbubd.errors import InvalidArgument


def place_decision(request: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a form with the decision in the member that the agent reads.

    The result of a form that takes no decision stays as it is. A decision among the content is taken out of the
    content, and decides the action. A result without a decision gets the decision that its action stands for: a yes is
    for this time only. Raises InvalidArgument for a decision that is unknown or contradicts the action.
    """
    decisions = find_decisions(request)
    if decisions is None:
        return result
    content = result.get("content")
    if isinstance(content, Mapping) and decisions.member in content and not _has_field_of_name(request, decisions):
        other_fields = {**cast("dict[str, Any]", content)}
        return _place_field_decision(decisions, result, other_fields.pop(decisions.member), other_fields)
    return complete_decision(request, result, check=True)


def complete_decision(request: Mapping[str, Any], result: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    """Return the result with the decision that its action stands for, unless the result has a decision already.

    With `check`, raises InvalidArgument if the decision that the result has contradicts the action.
    """
    decisions = find_decisions(request)
    if decisions is None:
        return result
    action = result.get("action")
    decision_value = result.get(decisions.member)
    if decision_value is None:
        default = decisions.find_default(action)
        return result if default is None else {**result, decisions.member: default.value}
    decision = decisions.find(decision_value)
    # A decision unknown here may be of a newer version of the agent, and mean yes: it passes only with a yes (accept).
    if check and (decision.action if decision is not None else "accept") != action:
        raise InvalidArgument.field(f"result.{decisions.member}", f"does not go with the action {action}")
    return result


def _place_field_decision(
    decisions: AgentDecisions, result: dict[str, Any], value: object, other_fields: dict[str, Any]
) -> dict[str, Any]:
    """Return the result of a form with the decision that a field's `value` names, in the member that the agent reads.

    `other_fields` are the rest of the content. Raises InvalidArgument for an unknown decision, for an action other than
    accept, and for other fields beside a no.
    """
    decision = decisions.find(value)
    if decision is None:
        choices = ", ".join(each.value for each in decisions.choices)
        raise InvalidArgument.field(f"content.{decisions.member}", f"is one of {choices}")
    if result.get("action") != "accept":
        raise InvalidArgument.field(f"content.{decisions.member}", "is given by accepting")
    placed = {**result, "action": decision.action, decisions.member: decision.value}
    if decision.action == "accept":
        return {**placed, "content": other_fields}
    if other_fields:
        raise InvalidArgument.field("content", f"has nothing else with {decisions.member} = {decision.value}")
    del placed["content"]
    return placed


def _has_field_of_name(request: Mapping[str, Any], decisions: AgentDecisions) -> bool:
    """Return whether the form itself has a field of the same name as the member of decisions."""
    schema = request.get("requestedSchema")
    fields = cast("Mapping[str, Any]", schema).get("properties") if isinstance(schema, Mapping) else None
    return isinstance(fields, Mapping) and decisions.member in fields
