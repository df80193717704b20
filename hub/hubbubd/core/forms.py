"""What people answer: from what a frontend gives to the MCP result the server gets.

MCP client/elicitation and client/sampling (2025-11-25). A form is a flat object of primitive fields. Only the
keywords the specification names are used to validate, so a hostile schema can neither refer to other documents
nor smuggle in anything slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import jsonschema_rs

from hubbubd import payload
from hubbubd.core.inbox import Answer, RequestKind
from hubbubd.errors import InvalidArgument

MAX_ANSWER_BYTES = 4 * 1024 * 1024
REJECTED = -1
"""The error code of a sampling that a person refused (MCP client/sampling)."""

HUMAN_MODEL = "human"


@dataclass(frozen=True, slots=True)
class Accept:
    """Yes to an elicitation, with the form's content; None takes the defaults."""

    content: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Decline:
    """An explicit no to an elicitation."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """An elicitation closed without a choice (`action: "cancel"`)."""


@dataclass(frozen=True, slots=True)
class Text:
    """A sampling answered by hand."""

    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """The whole MCP result."""

    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reject:
    """No to a sampling or roots request."""

    message: str


Given = Accept | Decline | Dismiss | Text | Result | Reject

_ELICITATIONS = frozenset({RequestKind.ELICITATION_FORM, RequestKind.ELICITATION_URL})


def build_answer(kind: RequestKind, request: Mapping[str, Any], given: Given) -> Answer:
    """The answer for the server. `request` is the MCP params. Raises InvalidArgument with violations."""
    match given:
        case Accept(content):
            _only_for(kind, _ELICITATIONS, "accept")
            answer = _elicit({"action": "accept", **({} if content is None else {"content": content})}, kind, request)
        case Decline():
            _only_for(kind, _ELICITATIONS, "decline")
            answer = {"action": "decline"}
        case Dismiss():
            _only_for(kind, _ELICITATIONS, "cancel")
            answer = {"action": "cancel"}
        case Text(text):
            _only_for(kind, {RequestKind.SAMPLING}, "text")
            answer = {"role": "assistant", "content": {"type": "text", "text": text}, "model": HUMAN_MODEL}
            answer["stopReason"] = "endTurn"
        case Reject(message):
            _only_for(kind, {RequestKind.SAMPLING, RequestKind.ROOTS}, "reject")
            return refusal(message)
        case Result(result):
            answer = _checked_result(kind, request, result)
    encoded = payload.dumps(answer)
    if len(encoded) > MAX_ANSWER_BYTES:
        raise InvalidArgument.field("answer", f"is {len(encoded)} bytes long; at most {MAX_ANSWER_BYTES} are taken")
    return Answer(payload=encoded)


def refusal(message: str) -> Answer:
    """A refusal as a JSON-RPC error."""
    text = message or "User rejected the request"
    return Answer(payload=payload.dumps({"error": {"code": REJECTED, "message": text}}), refused=True)


def on_behalf(kind: RequestKind, message: str) -> Answer:
    """What the server gets when nobody answered in time: cancel for an elicitation, an error for the rest."""
    if kind in _ELICITATIONS:
        return Answer(payload=payload.dumps({"action": "cancel", "_meta": {"hubbub/reason": message}}))
    return refusal(message)


def _only_for(kind: RequestKind, kinds: frozenset[RequestKind] | set[RequestKind], field: str) -> None:
    if kind not in kinds:
        raise InvalidArgument.field(field, f"does not answer a request of kind {kind}")


def _checked_result(kind: RequestKind, request: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case RequestKind.SAMPLING:
            _check_message(result)
        case RequestKind.ROOTS:
            _check_roots(result)
        case _:
            return _elicit(result, kind, request)
    return result


def _elicit(result: dict[str, Any], kind: RequestKind, request: Mapping[str, Any]) -> dict[str, Any]:
    action = result.get("action")
    if action not in ("accept", "decline", "cancel"):
        raise InvalidArgument.field("result.action", "must be accept, decline or cancel")
    content = result.get("content")
    if kind is RequestKind.ELICITATION_URL or action != "accept":
        if content:
            raise InvalidArgument.field("content", "only an accepted form has content")
        return {key: value for key, value in result.items() if key != "content"}
    if content is not None and not isinstance(content, dict):
        raise InvalidArgument.field("content", "must be a JSON object")
    return {**result, "content": fill_in(_schema_of(request), cast("dict[str, Any]", content or {}))}


def _schema_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = request.get("requestedSchema")
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


_STRING = ("minLength", "maxLength", "format", "enum")
_NUMBER = ("minimum", "maximum")
_ARRAY = ("minItems", "maxItems", "uniqueItems")
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_PRIMITIVE: dict[str, Any] = {"type": ["string", "number", "boolean", "array"], "items": {"type": "string"}}


def fill_in(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with the defaults of omitted fields, checked. Raises InvalidArgument, one violation a field."""
    properties = _properties(schema)
    filled = dict(content)
    for name, field in properties.items():
        if name not in filled and "default" in field:
            filled[name] = field["default"]
    violations = [(f"content.{name}", "is not a field of this form") for name in filled if name not in properties]
    checker = jsonschema_rs.validator_for(flat_schema(schema), validate_formats=True)
    for error in checker.iter_errors(filled):
        path = ".".join(["content", *(str(step) for step in error.instance_path)])
        violations.append((path, error.message))
    if violations:
        raise InvalidArgument.fields(tuple(violations))
    return filled


def flat_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a requested schema that the specification allows, as a JSON schema.

    A field of a shape that it does not allow takes any primitive value: the form can still be answered.
    """
    properties = _properties(schema)
    required = schema.get("required")
    names = cast("list[Any]", required) if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": {name: _field(field) for name, field in properties.items()},
        "required": [name for name in names if isinstance(name, str) and name in properties],
    }


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    fields = cast("Mapping[str, Any]", properties)
    return {
        name: cast("Mapping[str, Any]", field) if isinstance(field, Mapping) else {} for name, field in fields.items()
    }


def _field(field: Mapping[str, Any]) -> dict[str, Any]:
    match field.get("type"):
        case "string":
            return {"type": "string", **_choices(field, "oneOf"), **_keywords(field, _STRING)}
        case "number" | "integer" as kind:
            return {"type": kind, **_keywords(field, _NUMBER)}
        case "boolean":
            return {"type": "boolean"}
        case "array":
            items = field.get("items")
            item = cast("Mapping[str, Any]", items) if isinstance(items, Mapping) else {}
            choice = {"type": "string", **_choices(item, "anyOf"), **_keywords(item, ("enum",))}
            return {"type": "array", "items": choice, **_keywords(field, _ARRAY)}
        case _:
            return _PRIMITIVE


def _choices(field: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    options = field.get(keyword)
    if not isinstance(options, list):
        return {}
    values = [cast("Mapping[str, Any]", o)["const"] for o in cast("list[Any]", options) if _is_choice(o)]
    return {"enum": values} if values else {}


def _is_choice(option: object) -> bool:
    return isinstance(option, Mapping) and isinstance(cast("Mapping[str, Any]", option).get("const"), str)


def _keywords(field: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: field[name] for name in names if name in field and _well_formed(name, field[name])}


def _well_formed(keyword: str, value: object) -> bool:
    match keyword:
        case "enum":
            return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in cast("list[Any]", value))
        case "format":
            return value in _FORMATS
        case "minimum" | "maximum":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "uniqueItems":
            return isinstance(value, bool)
        case _:
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_message(result: Mapping[str, Any]) -> None:
    violations: list[tuple[str, str]] = []
    if result.get("role") not in ("user", "assistant"):
        violations.append(("result.role", "must be user or assistant"))
    if not isinstance(result.get("model"), str):
        violations.append(("result.model", "must name the model that answered"))
    content = result.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
    for at, block in enumerate(blocks):
        path = f"result.content.{at}" if isinstance(content, list) else "result.content"
        violations += _check_block(path, block)
    if violations:
        raise InvalidArgument.fields(tuple(violations))


_BLOCKS: Mapping[str, tuple[tuple[str, type], ...]] = {
    "text": (("text", str),),
    "image": (("data", str), ("mimeType", str)),
    "audio": (("data", str), ("mimeType", str)),
    "tool_use": (("id", str), ("name", str), ("input", dict)),
    "tool_result": (("toolUseId", str), ("content", list)),
}


def _check_block(path: str, block: object) -> list[tuple[str, str]]:
    fields = cast("Mapping[str, Any]", block) if isinstance(block, Mapping) else {}
    kind = fields.get("type")
    expected = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if expected is None:
        return [(path, f"must be a content block; type is one of {', '.join(_BLOCKS)}")]
    return [
        (f"{path}.{name}", "is missing or of the wrong type")
        for name, t in expected
        if not isinstance(fields.get(name), t)
    ]


def _check_roots(result: Mapping[str, Any]) -> None:
    roots = result.get("roots")
    if not isinstance(roots, list):
        raise InvalidArgument.field("result.roots", "must be a list")
    for at, root in enumerate(cast("list[Any]", roots)):
        uri = cast("Mapping[str, Any]", root).get("uri") if isinstance(root, Mapping) else None
        if not isinstance(uri, str) or not uri.startswith("file://"):
            raise InvalidArgument.field(f"result.roots.{at}.uri", "must be a file:// URI")
