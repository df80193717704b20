"""Rules of an agent: which pending requests it answers, and how. Tried from the top; the first that fits decides. Pure.

Text of servers is compared with rules; it never chooses an action.
"""

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hubbub_agent.models.endpoint import Chat, Text
from hubbub_agent.rules.conditions import (
    ValueCondition,
    agent_parts,
    any_text_matches,
    compile_pattern,
    form_properties,
    form_titles,
    has_json_type,
    page_host,
    proposed_values,
    request_text,
)
from hubbub_agent.rules.limits import UsageLimits
from hubbub_agent.rules.problems import ConfigProblem, describe_error, rule_name
from hubbub_client.data.agent_questions import AgentQuestion
from hubbub_client.data.records import PendingRequest, RequestKind
from hubbub_client.payload import as_object

Answer = dict[str, Any]
"""An answer: one argument of `hub.inbox.answer`, by its name."""

AgentPart = Literal["command", "folder", "file", "grant"]
"""Parts of what an agent asks to do: the command as it would be typed, its folder, each file, a folder to write to."""

FieldType = Literal["string", "number", "integer", "boolean", "array", "any"]

ELICITATION = frozenset[RequestKind](("elicitation_form", "elicitation_url"))
FORM = frozenset[RequestKind](("elicitation_form",))
REFUSABLE = frozenset[RequestKind](("sampling", "roots"))
ASKED_BY_SERVERS = ELICITATION | REFUSABLE
APPROVAL = frozenset[RequestKind](("approval",))
ALL_KINDS = ASKED_BY_SERVERS | APPROVAL

ANSWERABLE_KINDS: Mapping[str, frozenset[RequestKind]] = {
    "accept": ELICITATION,
    "approve": FORM | APPROVAL,
    "deny": APPROVAL,
    "decline": ELICITATION,
    "cancel": ELICITATION,
    "reject": REFUSABLE,
    "text": frozenset(("sampling",)),
    "result": ASKED_BY_SERVERS,
    "command": ASKED_BY_SERVERS,
    "chat": frozenset(("sampling", "elicitation_form")),
    "escalate": ALL_KINDS,
    "leave": ALL_KINDS,
}
"""Kinds of pending requests that each action can answer. No program and no model approves a call."""

LEAVING_ACTIONS = frozenset(("escalate", "leave"))
"""Actions that leave a pending request to people."""


class _Strict(BaseModel):
    """A table of the rules, which cannot be changed: unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Rule(_Strict):
    """Conditions on a pending request, and exactly one action. A condition that is left out holds."""

    name: str = ""
    server: Text = "*"
    tool: Text | None = None
    caller: Text | None = None
    kind: tuple[RequestKind, ...] = ()
    says: str | None = None
    title: str | None = None
    host: Text | None = None
    fields: Mapping[str, FieldType] | None = None
    other_fields: bool = True
    values: Mapping[str, ValueCondition] | None = None
    agent: Mapping[AgentPart, ValueCondition] | None = None

    approve: Literal[True] | None = None
    accept: Literal[True] | dict[str, Any] | None = None
    deny: Text | None = None
    decline: Literal[True] | None = None
    cancel: Literal[True] | None = None
    reject: Text | None = None
    text: Text | None = None
    result: dict[str, Any] | None = None
    command: tuple[Text, ...] | None = Field(default=None, min_length=1)
    chat: str | None = None
    escalate: Literal[True] | Text | None = None
    leave: Literal[True] | None = None

    timeout_s: float = Field(default=60.0, gt=0, le=3600, strict=False)
    on_error: Literal["leave", "reject"] = "leave"

    @field_validator("kind", "command", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        """Return a list as a tuple, and a bare text as a tuple of this text."""
        if isinstance(value, list):
            return tuple(cast("list[object]", value))
        return (value,) if isinstance(value, str) else value

    @field_validator("values", "agent", mode="before")
    @classmethod
    def _read_bare_values(cls, value: object) -> object:
        """Read a bare value as `{equals = value}`."""
        if not isinstance(value, Mapping):
            return value
        return {
            name: cast("object", condition)
            if isinstance(condition, Mapping | ValueCondition)
            else {"equals": condition}
            for name, condition in cast("Mapping[str, object]", value).items()
        }

    @field_validator("says", "title")
    @classmethod
    def _check_pattern(cls, value: str | None) -> str | None:
        """Check that a pattern can be used. Raises ValueError."""
        if value is not None:
            compile_pattern(value)
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        """Check that the rule has one action, and the conditions that this action needs. Raises ValueError."""
        actions = [action for action in ANSWERABLE_KINDS if getattr(self, action) is not None]
        if len(actions) != 1:
            choices = ", ".join(ANSWERABLE_KINDS)
            raise ValueError(f"exactly one of {choices} is needed, not {', '.join(actions) or 'none'}")
        (action,) = actions
        for kind in self.kind:
            if kind not in ANSWERABLE_KINDS[action]:
                raise ValueError(f"{action} is no answer to {kind}")
        if self.accept is not None and "elicitation_url" in self.kind and self.host is None:
            raise ValueError("a rule that agrees to visit pages names their host")
        if self.approve is not None and "approval" in self.kind and self.tool is None:
            raise ValueError("a rule that approves calls names their tool")
        if (self.tool is not None or self.caller is not None) and "approval" not in self.kinds:
            raise ValueError('tool and caller are those of a call to approve: kind = "approval"')
        if self.agent is not None and "elicitation_form" not in self.kinds:
            raise ValueError('agent is what an agent asks to do: kind = "elicitation_form"')
        if self.on_error == "reject" and not self.kinds <= REFUSABLE:
            raise ValueError('on_error = "reject" needs a kind of sampling or roots, or both')
        return self

    @property
    def action(self) -> str:
        """Return the name of the rule's one action."""
        return next(action for action in ANSWERABLE_KINDS if getattr(self, action) is not None)

    @property
    def kinds(self) -> frozenset[RequestKind]:
        """Return the kinds that the rule applies to: those that it names, else those that its action can answer.

        The action alone does not cover pages to visit for `accept`, forms for `chat`, and calls for `approve`.
        """
        if self.kind:
            return frozenset(self.kind)
        if self.chat is not None:
            return frozenset(("sampling",))  # a model fills in forms only if the rule names this kind
        if self.approve is not None:
            return FORM
        return ANSWERABLE_KINDS[self.action] - ({"elicitation_url"} if self.accept is not None else set())

    @property
    def leaves_to_people(self) -> bool:
        """Return whether the rule leaves pending requests to people."""
        return self.action in LEAVING_ACTIONS

    @property
    def escalation_note(self) -> str | None:
        """Return the note that people see with an escalation; None without a note."""
        return self.escalate if isinstance(self.escalate, str) else None

    def fixed_answer(self, request: PendingRequest) -> Answer | None:
        """Return the rule's fixed answer to a request; None if people, a program or a model are to answer it."""
        if self.leaves_to_people or self.action in ("command", "chat"):
            return None
        if request.kind == "approval" and self.approve is not None:
            return {"approve": {"digest": request.arguments_digest or ""}}
        if self.approve is not None:
            return {"accept": self._once_content(request) or approved_content(as_object(request.request))}
        return {self.action: getattr(self, self.action)}

    def _once_content(self, request: PendingRequest) -> dict[str, str]:
        """Return the content that answers an agent's form with its option to allow this once.

        Empty if there is no such option, or the rule has no `agent` condition.
        """
        if self.agent is None:
            return {}
        from hubbub_frontend.display.decisions import once_decision_content  # imported late, with what draws

        return once_decision_content(request)

    def fits(self, request: PendingRequest) -> bool:
        """Return whether every condition of the rule holds for a request."""
        if request.kind not in self.kinds or not fnmatchcase(request.server, self.server):
            return False
        if request.kind == "approval":
            return self._call_fits(request)
        params = as_object(request.request)
        # Conditions on a tool or a caller hold for calls to approve alone.
        return (
            self.tool is None
            and self.caller is None
            and any_text_matches(self.says, [request_text(request)])
            and any_text_matches(self.title, form_titles(params))
            and (self.host is None or fnmatchcase(page_host(params), self.host))
            and (self.fields is None or self._fields_fit(form_properties(params)))
            and (self.values is None or self._values_fit(proposed_values(params)))
            and (self.agent is None or self._agent_fits(request.agent))
        )

    def _call_fits(self, request: PendingRequest) -> bool:
        """Return whether every condition holds for a call to approve. Its arguments count as fields and values.

        A condition on a message, a page or an agent does not hold.
        """
        approval = request.approval
        if approval is None or any(each is not None for each in (self.says, self.title, self.host, self.agent)):
            return False
        arguments = approval.current_arguments
        return (
            (self.tool is None or fnmatchcase(approval.tool.name, self.tool))
            and (self.caller is None or fnmatchcase(approval.caller.name, self.caller))
            and (self.fields is None or self._arguments_fit(arguments))
            and (self.values is None or self._values_fit(arguments))
        )

    def _agent_fits(self, question: AgentQuestion | None) -> bool:
        """Return whether each part of a coding agent's question has a condition, and meets it.

        The folder of a command needs no condition. False also if a condition is about a part that the question does not
        have, if the action of the agent is not known, or if its question was cut.
        """
        if question is None or question.omitted_bytes is not None:
            return False
        parts = agent_parts(question)
        if not any(parts[name] for name in ("command", "file", "grant")):
            return False
        conditions = self.agent or {}
        if any(values and name not in conditions and name != "folder" for name, values in parts.items()):
            return False
        return all(
            parts.get(name) and all(condition.accepts(value) for value in parts[name])
            for name, condition in conditions.items()
        )

    def _values_fit(self, values: Mapping[str, Any]) -> bool:
        """Return whether each value that the rule names is there and meets its condition."""
        conditions = (self.values or {}).items()
        return all(name in values and condition.accepts(values[name]) for name, condition in conditions)

    def _arguments_fit(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the arguments of a call have the names and types of the rule's fields."""
        types = self.fields or {}
        if not self.other_fields and arguments.keys() - types.keys():
            return False
        return all(name in arguments and has_json_type(arguments[name], type_) for name, type_ in types.items())

    def _fields_fit(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a form has the fields that the rule names, with their types."""
        types = self.fields or {}
        if not self.other_fields and fields.keys() - types.keys():
            return False
        return all(
            name in fields and type_ in ("any", as_object(fields[name]).get("type")) for name, type_ in types.items()
        )


class RuleMatch(NamedTuple):
    """A rule that fits, and its name or number."""

    name: str
    rule: Rule


class Rulebook(_Strict):
    """All rules, models and limits of an agent."""

    capacity: int = Field(default=4, ge=1, le=100)
    limits: UsageLimits = UsageLimits()
    chat: Mapping[str, Chat] = {}
    rule: tuple[Rule, ...] = Field(min_length=1)

    @field_validator("rule", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        """Return a list as a tuple."""
        return tuple(cast("list[object]", value)) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check_usable(self) -> Self:
        """Check that some rule answers, and that each model that a rule names is defined. Raises ValueError."""
        if not self.kinds:
            raise ValueError("rule: none of them answers anything")
        for index, rule in enumerate(self.rule):
            if rule.chat is not None and rule.chat not in self.chat:
                where = rule_name(index, {"rule": [{"name": each.name} for each in self.rule]}, None)
                raise ValueError(f"{where}.chat: there is no [chat.{rule.chat}]")
        return self

    def check_keys(self) -> None:
        """Check that the API key of each model can be read. Raises ConfigProblem."""
        for name, chat in self.chat.items():
            try:
                chat.api_key()
            except ValueError as error:
                raise ConfigProblem(f"chat.{name}.{error}") from None

    @property
    def kinds(self) -> list[RequestKind]:
        """Return the kinds that some rule may answer, sorted."""
        return sorted(frozenset[RequestKind]().union(*(rule.kinds for rule in self.rule if not rule.leaves_to_people)))

    @property
    def server(self) -> str | None:
        """Return the one server that all answering rules name; None if there may be several."""
        servers = {rule.server for rule in self.rule if not rule.leaves_to_people}
        if len(servers) != 1:
            return None
        (server,) = servers
        is_pattern = any(character in "*?[" for character in server)
        return None if is_pattern else server

    def find(self, request: PendingRequest) -> RuleMatch | None:
        """Return the first rule that fits a request; None if no rule fits, so that people are to answer."""
        for number, rule in enumerate(self.rule, 1):
            if rule.fits(request):
                return RuleMatch(rule.name or f"rule {number}", rule)
        return None


def load_rules(file: Path) -> Rulebook:
    """Load a TOML file of rules. Raises ConfigProblem."""
    try:
        source = file.read_text()
        content = tomllib.loads(source)
    except (OSError, ValueError) as error:
        raise ConfigProblem(f"{file}: {error}") from None
    return parse_rules(content, f"{file}: ", source)


def parse_rules(content: Mapping[str, Any], where: str = "", source: str | None = None) -> Rulebook:
    """Return the rules of a document. Raises ConfigProblem, whose message is `where`, the rule, its line and the key.

    `source` is the text of the document; without it no line is named.
    """
    try:
        return Rulebook.model_validate(content)
    except ValidationError as error:
        models_by_table = {"": Rulebook, "rule": Rule, "chat": Chat, "limits": UsageLimits}
        raise ConfigProblem(f"{where}{describe_error(error, content, models_by_table, source)}") from None


def approved_content(params: Mapping[str, Any]) -> dict[str, Any] | Literal[True]:
    """Return the content that approves a form: its only boolean field as true.

    Return True, which stands for the form's defaults, if that field is true by default, or is not the only one.
    """
    specs = {name: as_object(spec) for name, spec in form_properties(params).items()}
    booleans = [name for name, spec in specs.items() if spec.get("type") == "boolean"]
    if len(booleans) != 1:
        return True
    (name,) = booleans
    return True if specs[name].get("default") is True else {name: True}


def parse_answer(document: object) -> Answer | None:
    """Return an answer such as `{"accept": {...}}`; None for `{}` and `leave`: people answer. Raises ValueError."""
    if not isinstance(document, Mapping):
        raise ValueError("the answer is not a JSON object")
    fields = cast("Mapping[str, Any]", document)
    if not fields:
        return None
    if len(fields) != 1 or not (
        fields.keys() <= ANSWERABLE_KINDS.keys() - {"command", "chat", "escalate", "approve", "deny"}
    ):
        raise ValueError("the answer has not exactly one of accept, decline, cancel, reject, text, result, leave")
    ((action, value),) = fields.items()
    types: dict[str, Any] = {"accept": dict, "result": dict, "reject": str, "text": str}
    has_type = isinstance(value, types.get(action, bool)) or (action == "accept" and value is True)
    if not has_type or value is False:
        raise ValueError(f"the value of {action} cannot be used")
    return None if action == "leave" else {action: value}
