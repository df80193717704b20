"""What a server asks, by kind: the MCP params of a pending request, as data.

The hub takes no request without the keys that MCP requires. A server may send others beside these.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, cast

from hubbub_client.data.agent_questions import AgentQuestion, other_members, read_agent_question
from hubbub_client.data.approvals import ApprovalRequest, read_approval
from hubbub_client.payload import as_object

RequestKind = Literal["elicitation_form", "elicitation_url", "sampling", "roots", "approval"]

P = TypeVar("P")


class FormParams(TypedDict):
    """A form to fill in: `message` says for what, `requestedSchema` is an object schema with flat properties."""

    message: str
    requestedSchema: dict[str, Any]
    mode: NotRequired[str]


class PageParams(TypedDict):
    """A page to visit, at `url`; `message` says why."""

    message: str
    url: str
    mode: NotRequired[str]
    elicitationId: NotRequired[str]


class SamplingParams(TypedDict):
    """Messages to continue as a model would, in at most `maxTokens`."""

    messages: list[dict[str, Any]]
    maxTokens: int
    systemPrompt: NotRequired[str]
    modelPreferences: NotRequired[dict[str, Any]]
    includeContext: NotRequired[str]
    temperature: NotRequired[float]
    stopSequences: NotRequired[list[str]]
    metadata: NotRequired[dict[str, Any]]
    tools: NotRequired[list[dict[str, Any]]]
    toolChoice: NotRequired[dict[str, Any]]


class TypedParams:
    """The params of a pending request, with the type of its kind. Nothing is copied or read a second time."""

    kind: RequestKind
    request: Any
    changed_arguments: Any

    @property
    def form(self) -> FormParams | None:
        """Return `request` if it is a form to fill in, and an object; else None."""
        return self._cast_request(FormParams, "elicitation_form")

    @property
    def page(self) -> PageParams | None:
        """Return `request` if it is a page to visit, and an object; else None."""
        return self._cast_request(PageParams, "elicitation_url")

    @property
    def sampling(self) -> SamplingParams | None:
        """Return `request` if it is a sampling, and an object; else None."""
        return self._cast_request(SamplingParams, "sampling")

    @property
    def approval(self) -> ApprovalRequest | None:
        """Return `request`, as data, if it is a call to approve, and an object; else None."""
        document = self._cast_request(dict[str, Any], "approval")
        return None if document is None else read_approval(document, self.changed_arguments)

    @property
    def agent(self) -> AgentQuestion | None:
        """Return the question of an agent; None unless `request` has the command or changes of a known agent."""
        return read_agent_question(as_object(self.request)) if self.kind == "elicitation_form" else None

    @property
    def more(self) -> Mapping[str, Any]:
        """Return the members of `request` that no other property has; members of `_meta` as `_meta.NAME`."""
        return {} if self.kind == "approval" else other_members(self.kind, as_object(self.request))

    def _cast_request(self, _: type[P], kind: RequestKind) -> P | None:
        """Return `request` as this type if it is an object and of this kind, else None."""
        request: object = self.request
        return cast("P", request) if self.kind == kind and isinstance(request, Mapping) else None
