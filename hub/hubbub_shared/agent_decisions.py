"""The decisions that some agents want in the answer to a question, beside the action that MCP has.

Codex (`codex mcp-server`) asks by an empty form, and reads `decision` beside `action`; without it, it takes a yes for a
no.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Action = Literal["accept", "decline", "cancel"]


@dataclass(frozen=True, slots=True)
class AgentDecision:
    """One decision: the `value` that the agent reads in `member` of the result, and the action that goes with it.

    `label` is the text of a button, `short` the text beside its key, `done` describes the outcome; `note` has what the
    label may leave out. `rejects` marks a no. `is_field` says that the decision is a field of the form: then the form
    is accepted even with a no.
    """

    value: str
    action: Action
    label: str
    short: str
    done: str
    member: str = "decision"
    note: str = ""
    rejects: bool = False
    is_field: bool = False


@dataclass(frozen=True, slots=True)
class AgentDecisions:
    """The decisions of questions that have a member `mark`. Of those with one action the strictest is first."""

    mark: str
    member: str
    choices: tuple[AgentDecision, ...]

    def find(self, value: object) -> AgentDecision | None:
        """Return the decision with this value; None if there is none."""
        return next((each for each in self.choices if each.value == value), None)

    def find_default(self, action: object) -> AgentDecision | None:
        """Return the decision that allows least of those with this action; None if there is none."""
        return next((each for each in self.choices if each.action == action), None)


CODEX = AgentDecisions(
    mark="codex_elicitation",
    member="decision",
    choices=(
        AgentDecision("approved", "accept", "Approve", "Approve", "approved"),
        AgentDecision(
            "approved_for_session", "accept", "Approve for this session", "Session", "approved for this session"
        ),
        AgentDecision("denied", "decline", "Deny", "Deny", "denied", rejects=True),
        AgentDecision(
            "abort", "cancel", "Deny and stop the agent", "Stop", "denied, and the agent stopped", rejects=True
        ),
    ),
)

_AGENTS = (CODEX,)


def find_decisions(params: Mapping[str, Any]) -> AgentDecisions | None:
    """Return the decisions that a question with these MCP params accepts; None for an ordinary question."""
    return next((each for each in _AGENTS if isinstance(params.get(each.mark), str)), None)
