"""The decisions of which the agent that asks a question wants one, and which was taken."""

from collections.abc import Mapping
from typing import Final

from hubbub_client.data.agent_questions import AgentOption
from hubbub_client.data.records import PendingRequest
from hubbub_client.payload import as_object
from hubbub_frontend.display.text import line
from hubbub_frontend.forms import fields
from hubbub_shared.agent_decisions import AgentDecision, find_decisions

MAX_BUTTONS: Final = 8
"""An agent's options are buttons; if there are more, a person chooses from the form, as for any server."""

NOTES: Final[Mapping[str, str]] = {
    "allow_once": "",
    "allow_always": "for what is like it, too",
    "reject_once": "",
    "reject_always": "for what is like it, too",
}
"""Kinds of options in their order, those that allow first, each with what its name may leave out."""

UNKNOWN_NOTE: Final = "in a way that only the agent knows"
LABEL_CHARS: Final = 100


def decision_choices(request: PendingRequest) -> tuple[AgentDecision, ...]:
    """Return the decisions (allow, reject, ...) among which an agent's question offers a choice.

    Empty for a question without such decisions, and for a question whose form has other fields, too.
    """
    params = as_object(request.request)
    decisions = find_decisions(params) if request.kind == "elicitation_form" else None
    form = fields(params.get("requestedSchema"))
    if decisions is None and request.agent is not None and [each.name for each in form] == ["decision"]:
        return _option_choices(request.agent.options, {value for value, _ in form[0].choices})
    return decisions.choices if decisions is not None and not form else ()


def find_wider_decision(request: PendingRequest) -> AgentDecision | None:
    """Return the decision that approves more than this one action, such as all like it in the session; None if none."""
    accepting = [each for each in decision_choices(request) if each.action == "accept" and not each.is_field]
    return accepting[1] if len(accepting) > 1 else None


def once_decision_content(request: PendingRequest) -> dict[str, str]:
    """Return the content that answers an agent's form with its option to allow this once; {} if there is none."""
    # Among the options that allow, the one for once has no note (NOTES).
    once_options = [each for each in decision_choices(request) if each.is_field and not each.note and not each.rejects]
    return {once_options[0].member: once_options[0].value} if once_options else {}


def describe_decision(request: PendingRequest) -> str | None:
    """Return in words the decision in the answer to an agent; None if it is not known."""
    decisions = find_decisions(as_object(request.request)) if request.kind == "elicitation_form" else None
    decision = decisions.find(as_object(request.answer).get(decisions.member)) if decisions is not None else None
    return decision.done if decision is not None else None


def _option_choices(options: tuple[AgentOption, ...], values: set[str]) -> tuple[AgentDecision, ...]:
    """Return an agent's options as decisions, those that allow first.

    Empty if the options are not exactly the `values` that the form offers, or if there are more than MAX_BUTTONS.
    """
    if not 0 < len(options) <= MAX_BUTTONS or {each.id for each in options} != values:
        return ()
    order = [*NOTES]
    # Nobody knows whether an option of an unknown kind allows: it stands after those that do, before those that reject.
    rank = {kind: index if index < 2 else index + 1 for index, kind in enumerate(order)}
    return tuple(
        AgentDecision(
            value=each.id,
            action="accept",
            label=line(each.name, LABEL_CHARS),
            short=line(each.name, 30),
            done=line(each.name, LABEL_CHARS),
            note=NOTES.get(each.kind, UNKNOWN_NOTE),
            rejects=each.kind.startswith("reject_"),
            is_field=True,
        )
        for each in sorted(options, key=lambda option: rank.get(option.kind, 2))
    )
