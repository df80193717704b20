"""What an agent asks to do, and what else a server has sent, as the page shows it."""

from dataclasses import asdict, replace
from typing import Any

from hubbub_client.data.records import PendingRequest
from hubbub_frontend.display.agents import MORE, agent_view
from hubbub_frontend.display.decisions import decision_choices, describe_decision
from hubbub_web.records.approval import number_hidden_characters


def agent_json(request: PendingRequest) -> dict[str, Any] | None:
    """Return what a coding agent asks to do, what else its server sent, and the choices of a person; None if a request
    has nothing of these.
    """
    view = agent_view(replace(request, request=number_hidden_characters(request.request)))
    if not (view.rows or view.folder or view.more or view.decisions):
        return None
    # A decision goes back to the agent, so its value must be as the agent wrote it: no characters are replaced.
    decisions = [asdict(each) for each in decision_choices(request)]
    return asdict(view) | {"decisions": decisions, "more_title": MORE, "decided": describe_decision(request)}
