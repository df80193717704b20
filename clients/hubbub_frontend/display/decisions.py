"""The decisions that the agent of a question wants one of, and which was taken."""

from hubbub_client.data.records import PendingRequest
from hubbub_client.payload import as_object
from hubbub_shared.agent_decisions import AgentDecision, find_decisions


def decision_choices(request: PendingRequest) -> tuple[AgentDecision, ...]:
    """Return the decisions that the agent of this question wants one of; none for others, nor if it has a form."""
    params = as_object(request.request)
    found = find_decisions(params) if request.kind == "elicitation_form" else None
    has_fields = bool(as_object(params.get("requestedSchema")).get("properties"))
    return found.choices if found is not None and not has_fields else ()


def find_wider_decision(request: PendingRequest) -> AgentDecision | None:
    """Return the decision that approves more than what is asked now, such as all that is like it in this session."""
    yes = [each for each in decision_choices(request) if each.action == "accept"]
    return yes[1] if len(yes) > 1 else None


def describe_decision(request: PendingRequest) -> str | None:
    """Return what was decided in the answer to an agent, in words; None if that is not known."""
    found = find_decisions(as_object(request.request)) if request.kind == "elicitation_form" else None
    decision = found.find(as_object(request.answer).get(found.member)) if found is not None else None
    return decision.done if decision is not None else None
