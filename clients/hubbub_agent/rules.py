"""Rules of an agent: which pending requests it answers, and how. Tried from the top; the first that fits decides. Pure.

Text of servers is compared with rules; it never chooses an action.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from hubbub_agent.limits import Limits
from hubbub_client.records import PendingRequest, RequestKind

Answer = dict[str, Any]
"""An answer: one argument of `hub.inbox.answer`, by its name."""

Text = Annotated[str, StringConstraints(min_length=1)]
FieldType = Literal["string", "number", "integer", "boolean", "array", "any"]

ELICITATION = frozenset[RequestKind](("elicitation_form", "elicitation_url"))
REFUSABLE = frozenset[RequestKind](("sampling", "roots"))
EVERY = ELICITATION | REFUSABLE

GIVES: Mapping[str, frozenset[RequestKind]] = {
    "accept": ELICITATION,
    "decline": ELICITATION,
    "cancel": ELICITATION,
    "reject": REFUSABLE,
    "text": frozenset(("sampling",)),
    "result": EVERY,
    "command": EVERY,
    "chat": frozenset(("sampling",)),
    "leave": EVERY,
}
"""Kinds of pending requests that each action can answer."""

MOST_TEXT = 20_000
"""Characters of a server's text that a pattern is matched against."""


class ConfigProblem(Exception):
    """The rules are wrong; the message begins with the key."""


class AnswerProblem(Exception):
    """A program or model gave no usable answer."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Rule(_Strict):
    """Conditions on a pending request, and exactly one action. A condition that is not given holds."""

    name: str = ""
    server: Text = "*"
    kind: tuple[RequestKind, ...] = ()
    says: str | None = None
    title: str | None = None
    host: Text | None = None
    fields: Mapping[str, FieldType] | None = None
    other_fields: bool = True

    accept: Literal[True] | dict[str, Any] | None = None
    decline: Literal[True] | None = None
    cancel: Literal[True] | None = None
    reject: Text | None = None
    text: Text | None = None
    result: dict[str, Any] | None = None
    command: tuple[Text, ...] | None = Field(default=None, min_length=1)
    chat: str | None = None
    leave: Literal[True] | None = None

    timeout_s: float = Field(default=60.0, gt=0, le=3600, strict=False)
    on_error: Literal["leave", "reject"] = "leave"

    @field_validator("kind", "command", mode="before")
    @classmethod
    def _tuple(cls, value: object) -> object:
        if isinstance(value, list):
            return tuple(cast("list[object]", value))
        return (value,) if isinstance(value, str) else value

    @field_validator("says", "title")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = [action for action in GIVES if getattr(self, action) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(GIVES)} is needed, not {', '.join(given) or 'none'}")
        wrong = [kind for kind in self.kind if kind not in GIVES[given[0]]]
        if wrong:
            raise ValueError(f"{given[0]} is no answer to {wrong[0]}")
        if self.accept is not None and "elicitation_url" in self.kind and self.host is None:
            raise ValueError("a rule that agrees to visit pages names their host")
        if self.on_error == "reject" and not self.kinds <= REFUSABLE:
            raise ValueError('on_error = "reject" needs a kind of sampling or roots, or both')
        return self

    @property
    def action(self) -> str:
        """Return the name of its action."""
        return next(action for action in GIVES if getattr(self, action) is not None)

    @property
    def kinds(self) -> frozenset[RequestKind]:
        """Return the kinds that it applies to. Pages need a rule that names their kind."""
        if self.kind:
            return frozenset(self.kind)
        return GIVES[self.action] - ({"elicitation_url"} if self.accept is not None else set())

    @property
    def answer(self) -> Answer | None:
        """Return the fixed answer; None if the rule leaves, or asks a program or model."""
        if self.action in ("leave", "command", "chat"):
            return None
        return {self.action: getattr(self, self.action)}

    def fits(self, request: PendingRequest) -> bool:
        """Return whether every condition holds."""
        params = _object(request.request)
        return (
            request.kind in self.kinds
            and fnmatchcase(request.server, self.server)
            and _found(self.says, [words(request)])
            and _found(self.title, _titles(params))
            and (self.host is None or fnmatchcase(_host(params), self.host))
            and (self.fields is None or self._fields_fit(_properties(params)))
        )

    def _fields_fit(self, properties: Mapping[str, Any]) -> bool:
        wanted = self.fields or {}
        if not self.other_fields and properties.keys() - wanted.keys():
            return False
        return all(
            name in properties and type_ in ("any", _object(properties[name]).get("type"))
            for name, type_ in wanted.items()
        )


class Chat(_Strict):
    """A model behind an OpenAI-compatible endpoint. Prices are per million tokens, in any currency."""

    base_url: str = Field(pattern=r"^https?://\S+$")
    model: Text
    models: Mapping[str, Text] = {}
    system: str = ""
    api_key_env: str | None = None
    api_key_file: str | None = None
    max_tokens: int = Field(default=4096, ge=1)
    input_price: float = Field(default=0.0, ge=0, strict=False)
    output_price: float = Field(default=0.0, ge=0, strict=False)

    def api_key(self) -> str | None:
        """Return the key, which is never in the file of rules. Raises ValueError if it is missing."""
        if self.api_key_env is not None:
            if not (key := os.environ.get(self.api_key_env)):
                raise ValueError(f"api_key_env: the environment has no {self.api_key_env}")
            return key
        if self.api_key_file is not None:
            try:
                return Path(self.api_key_file).expanduser().read_text().strip()
            except (OSError, ValueError) as error:
                raise ValueError(f"api_key_file: {error}") from None
        return None


class Rulebook(_Strict):
    """All rules, models and limits of an agent."""

    capacity: int = Field(default=4, ge=1, le=100)
    limits: Limits = Limits()
    chat: Mapping[str, Chat] = {}
    rule: tuple[Rule, ...] = Field(min_length=1)

    @field_validator("rule", mode="before")
    @classmethod
    def _tuple(cls, value: object) -> object:
        return tuple(cast("list[object]", value)) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if not self.kinds:
            raise ValueError("rule: none of them answers anything")
        for number, rule in enumerate(self.rule):
            if rule.chat is not None and rule.chat not in self.chat:
                raise ValueError(f"rule.{number}.chat: there is no [chat.{rule.chat}]")
        for name, chat in self.chat.items():
            try:
                chat.api_key()
            except ValueError as error:
                raise ValueError(f"chat.{name}.{error}") from None
        return self

    @property
    def kinds(self) -> list[RequestKind]:
        """Return the kinds that some rule may answer, sorted."""
        return sorted(frozenset[RequestKind]().union(*(rule.kinds for rule in self.rule if rule.action != "leave")))

    @property
    def server(self) -> str | None:
        """Return the one server that all answering rules are about; None if there may be several."""
        servers = {rule.server for rule in self.rule if rule.action != "leave"}
        return next(iter(servers)) if len(servers) == 1 and not any(c in "*?[" for s in servers for c in s) else None

    def find(self, request: PendingRequest) -> tuple[str, Rule] | None:
        """Return the first rule that fits, with its name or number; None if people are to answer."""
        for number, rule in enumerate(self.rule, 1):
            if rule.fits(request):
                return (rule.name or f"rule {number}"), rule
        return None


def load(file: Path) -> Rulebook:
    """Load a TOML file of rules. Raises ConfigProblem."""
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigProblem(f"{file}: {error}") from None
    return rulebook(content, f"{file}: ")


def rulebook(content: Mapping[str, Any], where: str = "") -> Rulebook:
    """Validate the rules of a document. Raises ConfigProblem, which names the key."""
    try:
        return Rulebook.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("dict[", "literal[")))
        why = first["msg"].removeprefix("Value error, ")
        raise ConfigProblem(f"{where}{key}: {why}" if key else f"{where}{why}") from None


def answer_of(said: object) -> Answer | None:
    """Parse an answer such as `{"accept": {...}}`; None for `{}`. Raises ValueError."""
    if not isinstance(said, Mapping):
        raise ValueError("the answer is not a JSON object")
    given = cast("Mapping[str, Any]", said)
    if not given:
        return None
    if len(given) != 1 or not (given.keys() <= GIVES.keys() - {"command", "chat"}):
        raise ValueError("the answer has not exactly one of accept, decline, cancel, reject, text, result, leave")
    ((action, value),) = given.items()
    shapes: dict[str, Any] = {"accept": dict, "result": dict, "reject": str, "text": str}
    if not (isinstance(value, shapes.get(action, bool)) or (action == "accept" and value is True)) or value is False:
        raise ValueError(f"the value of {action} cannot be used")
    return None if action == "leave" else {action: value}


def words(request: PendingRequest) -> str:
    """Return the text of a pending request: the message of an elicitation, the texts of a sampling."""
    params = _object(request.request)
    if request.kind != "sampling":
        return str(params.get("message", ""))[:MOST_TEXT]
    found = [str(params.get("systemPrompt", ""))]
    for message in _objects(params.get("messages")):
        found += [str(block.get("text", "")) for block in blocks(message.get("content"))]
    return "\n".join(filter(None, found))[:MOST_TEXT]


def blocks(content: object) -> list[Mapping[str, Any]]:
    """Return the content of a sampling message, one block or several, as a list."""
    return _objects(cast("list[object]", content) if isinstance(content, list) else [content])


def _found(pattern: str | None, texts: list[str]) -> bool:
    return pattern is None or any(re.search(pattern, text[:MOST_TEXT]) for text in texts)


def _titles(params: Mapping[str, Any]) -> list[str]:
    schema = _object(params.get("requestedSchema"))
    titles = [schema.get("title"), *(_object(each).get("title") for each in _properties(params).values())]
    return [title for title in titles if isinstance(title, str)]


def _properties(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(_object(params.get("requestedSchema")).get("properties"))


def _host(params: Mapping[str, Any]) -> str:
    try:
        return urlsplit(str(params.get("url", ""))).hostname or ""
    except ValueError:
        return ""


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [_object(each) for each in cast("list[object]", value)] if isinstance(value, list) else []
