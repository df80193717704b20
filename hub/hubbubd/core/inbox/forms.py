"""Build and validate answers: from what a client gives to the MCP result that the server gets.

MCP client/elicitation, client/sampling and client/roots (2025-11-25). A form is a flat object of primitive fields. Only
the JSON Schema keywords that the specification lists are used, so a hostile schema can neither refer to other documents
(`$ref`) nor contain anything slow to evaluate.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from hubbubd import payload
from hubbubd.core.inbox.decisions import complete_decision, place_decision
from hubbubd.core.inbox.request_states import Answer, RequestKind
from hubbubd.errors import InvalidArgument

if TYPE_CHECKING:
    import jsonschema_rs

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Bytes of an answer, as gRPC clients take them in one message unless told otherwise."""
MAX_VIOLATIONS = 20
"""Wrong fields that an error names; the status of an RPC has room for few."""
MAX_PATH_CHARS = 100
"""Characters of the path of a wrong field; the schema is the server's and may nest deeply."""
MAX_PROBLEM_CHARS = 200
"""Characters of what is wrong with a field; the value is quoted in it."""
REJECTED = -1
"""The JSON-RPC error code of a sampling that a person rejected (MCP client/sampling)."""

HUMAN_MODEL = "human"  # the model that a sampling names whose text a person wrote


@dataclass(frozen=True, slots=True)
class Accept:
    """Accept an elicitation, with the form's content; None takes the schema's defaults."""

    content: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Decline:
    """Decline an elicitation explicitly."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Close an elicitation without a choice (`action: "cancel"`)."""


@dataclass(frozen=True, slots=True)
class Text:
    """Answer a sampling with text written by a person."""

    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """Answer with a complete MCP result."""

    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Answer with a result that the server is to judge, as it would that of a client of its own."""

    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject a sampling or roots request; the server gets a JSON-RPC error."""

    message: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse a request of any kind, as a client that cannot serve it; the server gets this JSON-RPC error."""

    code: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """Approve a call as it was shown, or with other `arguments`; `digest` is that of the arguments that were shown.

    `remember_s` lets the same tool be called again for so many seconds, with `same_arguments` only as now.
    `suggestions` are the indices of those taken. `groups` are the identity provider's names of the approver's roles.
    """

    arguments: dict[str, Any] | None = None
    remember_s: float = 0.0
    same_arguments: bool = False
    suggestions: tuple[int, ...] = ()
    comment: str = ""
    digest: str = ""
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """Deny a call, with the reason that its caller gets."""

    reason: str = ""
    groups: frozenset[str] = frozenset()


ClientAnswer = Accept | Decline | Dismiss | Text | Result | Unchecked | Reject | Refuse | Approve | Deny

MCP_KINDS = frozenset(RequestKind) - {RequestKind.APPROVAL}
"""What servers ask; the hub itself asks for approvals."""

_ELICITATIONS = frozenset({RequestKind.ELICITATION_FORM, RequestKind.ELICITATION_URL})


def build_answer(kind: RequestKind, request: Mapping[str, Any], client_answer: ClientAnswer) -> Answer:
    """Return the validated answer for the server. `request` is the MCP params.

    Raises InvalidArgument with a violation per field, also for an answer above MAX_ANSWER_BYTES.
    """
    match client_answer:
        case Accept(content):
            _require_kind(kind, _ELICITATIONS, "accept")
            answer = _check_elicitation(
                {"action": "accept", **({} if content is None else {"content": content})}, kind, request
            )
        case Decline():
            _require_kind(kind, _ELICITATIONS, "decline")
            answer = complete_decision(request, {"action": "decline"})
        case Dismiss():
            _require_kind(kind, _ELICITATIONS, "cancel")
            answer = complete_decision(request, {"action": "cancel"})
        case Text(text):
            _require_kind(kind, {RequestKind.SAMPLING}, "text")
            answer = {"role": "assistant", "content": {"type": "text", "text": text}, "model": HUMAN_MODEL}
            answer["stopReason"] = "endTurn"
        case Reject(message):
            _require_kind(kind, {RequestKind.SAMPLING, RequestKind.ROOTS}, "reject")
            return _require_size(refusal_answer(message))
        case Refuse(code, message):
            _require_kind(kind, MCP_KINDS, "refusal")
            error = {"code": code, "message": message}
            return _require_size(Answer(payload=payload.dumps({"error": error}), refused=True))
        case Deny():
            _require_kind(kind, {RequestKind.APPROVAL}, "deny")
            answer = {"action": "deny", "reason": client_answer.reason}
        case Approve():
            raise TypeError("votes.approve counts approvals")  # one approval may not be enough for an answer
        case Result(result):
            _require_kind(kind, MCP_KINDS, "result")
            answer = _check_result(kind, request, result)
        case Unchecked(result):
            _require_kind(kind, MCP_KINDS, "result")
            answer = complete_decision(request, result)
    try:
        return _require_size(Answer(payload=payload.dumps(answer)))
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidArgument.field("answer", f"is not JSON: {exc}") from None


def _require_size(answer: Answer) -> Answer:
    """Return the answer. Raises InvalidArgument above MAX_ANSWER_BYTES."""
    size = len(answer.payload)
    if size > MAX_ANSWER_BYTES:
        raise InvalidArgument.field("answer", f"is {size} bytes long; at most {MAX_ANSWER_BYTES} are taken")
    return answer


def refusal_answer(message: str) -> Answer:
    """Return an answer that is a JSON-RPC error, with the specification's text for an empty message."""
    text = message or "User rejected the request"
    return Answer(payload=payload.dumps({"error": {"code": REJECTED, "message": text}}), refused=True)


def default_answer(kind: RequestKind, message: str) -> Answer:
    """Return what the server gets when nobody answered in time: cancel for an elicitation, an error otherwise."""
    if kind in _ELICITATIONS:
        return Answer(payload=payload.dumps({"action": "cancel", "_meta": {"hubbub/reason": message}}))
    return refusal_answer(message)


def _require_kind(kind: RequestKind, kinds: frozenset[RequestKind] | set[RequestKind], field: str) -> None:
    """Raise InvalidArgument, for the `field` of an answer, unless the request is of one of these kinds."""
    if kind not in kinds:
        raise InvalidArgument.field(field, f"does not answer a request of kind {kind}")


def _check_result(kind: RequestKind, request: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return a complete MCP result as the server gets it, a form with its defaults. Raises InvalidArgument."""
    match kind:
        case RequestKind.SAMPLING:
            _check_sampling(request, result)
        case RequestKind.ROOTS:
            _check_roots(result)
        case _:
            return _check_elicitation(result, kind, request)
    return result


def _check_elicitation(result: dict[str, Any], kind: RequestKind, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of an elicitation, an accepted form with its defaults. Raises InvalidArgument."""
    if kind is RequestKind.ELICITATION_FORM:
        result = place_decision(request, result)
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
    schema = _as_mapping(request.get("requestedSchema"))
    return {**result, "content": fill_in_defaults(schema, cast("dict[str, Any]", content or {}))}


def check_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument, with a violation per problem, for arguments that a tool's input schema does not allow.

    The schema is a server's: it may refer to nothing outside itself. A document that is no schema allows everything, as
    the server checks the arguments anyway.
    """
    import jsonschema_rs

    try:
        checker = jsonschema_rs.validator_for(dict(schema), retriever=_refuse_reference)
        errors = list(islice(checker.iter_errors(dict(arguments)), MAX_VIOLATIONS))
    except (ValueError, jsonschema_rs.ReferencingError):
        return
    _raise_violations(
        [(".".join(["approve.arguments", *map(str, each.instance_path)]), each.message) for each in errors]
    )


def _refuse_reference(uri: str) -> Any:
    """Raise ValueError: a schema may refer to nothing outside itself."""
    raise ValueError(f"the schema refers to {uri}")


_STRING_KEYWORDS = ("minLength", "maxLength", "format", "enum")
_NUMBER_KEYWORDS = ("minimum", "maximum")
_ARRAY_KEYWORDS = ("minItems", "maxItems", "uniqueItems")
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_ANY_PRIMITIVE: dict[str, Any] = {"type": ["string", "number", "boolean", "array"], "items": {"type": "string"}}


def fill_in_defaults(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with the defaults of omitted fields, validated. Raises InvalidArgument with violations.

    A default of null counts as none: content has only strings, numbers, booleans and lists of strings.
    """
    properties = _properties(schema)
    defaults = {
        name: field["default"]
        for name, field in properties.items()
        if name not in content and field.get("default") is not None
    }
    filled = {**content, **defaults}
    import jsonschema_rs  # lazy: 3 MB, and needed with the first answer to a form

    violations = [(f"content.{name}", "is not a field of this form") for name in filled if name not in properties]
    try:
        # Masked: error texts must not contain what a person entered.
        checker = jsonschema_rs.validator_for(flat_schema(schema), validate_formats=True, mask="")
        violations += [
            _describe_violation(error, defaults) for error in islice(checker.iter_errors(filled), MAX_VIOLATIONS)
        ]
    except ValueError as exc:
        raise InvalidArgument.field("content", f"cannot be checked: {exc}"[:MAX_PROBLEM_CHARS]) from None
    _raise_violations(violations)
    return filled


def _describe_violation(error: "jsonschema_rs.ValidationError", defaults: Mapping[str, Any]) -> tuple[str, str]:
    """Return the path of a wrong field, and what is wrong with it; `defaults` are those that were filled in."""
    import jsonschema_rs

    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return f"content.{error.kind.property}", "is required"
    steps, problem = error.instance_path, error.message.strip()
    if steps and steps[0] in defaults:
        problem = f"the form's own default {problem}; give a value"
    return ".".join(["content", *map(str, steps)]), problem


def flat_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a requested schema that the specification allows, as JSON Schema.

    A field of any other shape accepts every primitive value, so that the form can still be answered.
    """
    properties = _properties(schema)
    names = _as_list(schema.get("required"))
    return {
        "type": "object",
        "properties": {name: _flat_field(field) for name, field in properties.items()},
        "required": [name for name in names if isinstance(name, str) and name in properties],
    }


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the fields of a form by name, each with its schema."""
    return {name: _as_mapping(field) for name, field in _as_mapping(schema.get("properties")).items()}


def _as_mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _as_list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _flat_field(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of one field; for a field whose shape MCP does not know, a schema of any primitive value."""
    field = _unwrap_optional(field)
    match field.get("type"):
        case "string":
            return {"type": "string", **_read_choices(field, "oneOf"), **_select_keywords(field, _STRING_KEYWORDS)}
        case "number" | "integer" as kind:
            return {"type": kind, **_select_keywords(field, _NUMBER_KEYWORDS)}
        case "boolean":
            return {"type": "boolean"}
        case "array":
            item = _as_mapping(field.get("items"))
            choice = {"type": "string", **_read_choices(item, "anyOf"), **_select_keywords(item, ("enum",))}
            return {"type": "array", "items": choice, **_select_keywords(field, _ARRAY_KEYWORDS)}
        case _:
            return _ANY_PRIMITIVE


def _unwrap_optional(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return X of `anyOf: [X, null]`, which schema generators write for an optional field; other fields as they are."""
    shapes = [shape for shape in map(_as_mapping, _as_list(field.get("anyOf"))) if shape.get("type") != "null"]
    return shapes[0] if len(shapes) == 1 and "type" not in field else field


def _read_choices(field: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    """Return the values of titled choices (`oneOf` or `anyOf`) as `{"enum": [...]}`; empty unless all are strings."""
    values = [option.get("const") for option in map(_as_mapping, _as_list(field.get(keyword)))]
    return _select_keywords({"enum": values}, ("enum",))


def _select_keywords(field: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named JSON Schema keywords of a field whose values are of the right type."""
    return {name: field[name] for name in names if name in field and _is_well_formed(name, field[name])}


def _is_well_formed(keyword: str, value: object) -> bool:
    """Return whether the value of a JSON Schema keyword is of the right type."""
    match keyword:
        case "enum":
            return bool(_as_list(value)) and all(isinstance(choice, str) for choice in _as_list(value))
        case "format":
            return isinstance(value, str) and value in _FORMATS
        case "minimum" | "maximum":
            if isinstance(value, float):
                return math.isfinite(value)
            return isinstance(value, int) and not isinstance(value, bool)
        case "uniqueItems":
            return isinstance(value, bool)
        case _:
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_sampling(request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Raise InvalidArgument unless a result of a sampling has the shape that MCP says."""
    violations: list[tuple[str, str]] = []
    offered = _offered_tools(request)
    if result.get("role") not in ("user", "assistant"):
        violations.append(("result.role", "must be user or assistant"))
    if not isinstance(result.get("model"), str):
        violations.append(("result.model", "must name the model that answered"))
    if not isinstance(result.get("stopReason", ""), str):
        violations.append(("result.stopReason", "must be a string"))
    content = result.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
    for at, block in enumerate(blocks):
        path = f"result.content.{at}" if isinstance(content, list) else "result.content"
        violations += _check_block(path, block) or _check_tool_use(path, block, offered)
    _raise_violations(violations)


_BLOCKS: Mapping[str, tuple[tuple[str, type], ...]] = {
    "text": (("text", str),),
    "image": (("data", str), ("mimeType", str)),
    "audio": (("data", str), ("mimeType", str)),
    "tool_use": (("id", str), ("name", str), ("input", dict)),
    "tool_result": (("toolUseId", str), ("content", list)),
}


def _check_block(path: str, block: object) -> list[tuple[str, str]]:
    """Return what is wrong with a content block, as pairs of path and problem; none if it is valid."""
    fields = _as_mapping(block)
    kind = fields.get("type")
    expected = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if expected is None:
        return [(path, f"must be a content block; type is one of {', '.join(_BLOCKS)}")]
    return [
        (f"{path}.{name}", "is missing or of the wrong type")
        for name, expected_type in expected
        if not isinstance(fields.get(name), expected_type)
    ]


def _offered_tools(request: Mapping[str, Any]) -> set[str]:
    """Return the names of the tools an answer may use (2025-11-25, client/sampling, tool choice)."""
    if _as_mapping(request.get("toolChoice")).get("mode") == "none":
        return set()
    return {name for tool in _as_list(request.get("tools")) if isinstance(name := _as_mapping(tool).get("name"), str)}


def _check_tool_use(path: str, block: object, offered: set[str]) -> list[tuple[str, str]]:
    """Return the problem of a block that uses a tool which the server has not offered; empty for other blocks."""
    fields = _as_mapping(block)
    if fields.get("type") != "tool_use" or fields["name"] in offered:
        return []
    return [(f"{path}.name", "is not a tool that the server offered for this")]


def _check_roots(result: Mapping[str, Any]) -> None:
    """Raise InvalidArgument unless a result has a list of roots with file:// URIs."""
    if not isinstance(result.get("roots"), list):
        raise InvalidArgument.field("result.roots", "must be a list")
    violations: list[tuple[str, str]] = []
    for at, root in enumerate(map(_as_mapping, _as_list(result["roots"]))):
        uri = root.get("uri")
        if not isinstance(uri, str) or not uri.startswith("file://"):
            violations.append((f"result.roots.{at}.uri", "must be a file:// URI"))
        if not isinstance(root.get("name", ""), str):
            violations.append((f"result.roots.{at}.name", "must be a string"))
    _raise_violations(violations)


def _raise_violations(violations: list[tuple[str, str]]) -> None:
    """Raise InvalidArgument with the first violations, shortened: they travel in gRPC metadata, which is bounded."""
    if violations:
        raise InvalidArgument.fields(
            tuple((path[:MAX_PATH_CHARS], problem[:MAX_PROBLEM_CHARS]) for path, problem in violations[:MAX_VIOLATIONS])
        )
