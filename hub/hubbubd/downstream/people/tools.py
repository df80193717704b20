"""The tools `hubbub_ask` and `hubbub_permit`: their entries in lists, and the arguments of their calls. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from hubbubd import payload
from hubbubd.core.approvals.requests import CWD
from hubbubd.core.approvals.suggestions import SUGGESTIONS, read_suggestions
from hubbubd.core.inbox.questions import find_problem
from hubbubd.core.inbox.request_states import RequestKind
from hubbubd.core.jsonrpc import INVALID_PARAMS
from hubbubd.downstream.protocol.messages import Refusal

ASK: Final = "hubbub_ask"
PERMIT: Final = "hubbub_permit"
ALL: Final = frozenset({ASK, PERMIT})

MAX_MESSAGE: Final = 8000
"""Characters of a question."""
MAX_FIELDS: Final = 50
"""Fields of a form, and choices of a question."""
MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_TO: Final = 20
"""Principals and roles that a question names."""
MAX_NAME: Final = 256
"""Characters of a name, or of a choice."""
MAX_FOLDER: Final = 4096
"""Characters of a folder's path."""

TO: Final = "hubbub/to"
URGENCY: Final = "hubbub/urgency"
"""Members of a question's `_meta`."""

_TYPES: Final = ("string", "number", "integer", "boolean", "array")
_TEXT: Final[Mapping[str, Any]] = {"type": "string", "title": "Answer"}

ENTRIES: Final = tuple(
    payload.dumps(tool)
    for tool in (
        {
            "name": ASK,
            "title": "Ask a person",
            "description": (
                "Asks people a question and returns their answer. It may take long. Ask only what you cannot find out "
                "yourself."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "message": {"type": "string", "description": "The question, with all that is needed to answer it."},
                    "choices": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "The answers to choose from, if it is not a free text.",
                    },
                    "schema": {
                        "type": "object",
                        "description": (
                            "A form in place of choices: a JSON Schema of a flat object with strings, numbers, "
                            "booleans and choices."
                        ),
                    },
                    "to": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Names of the people or roles whom it is for.",
                    },
                    "urgency": {"type": "string", "enum": ["low", "normal", "high"]},
                },
                "required": ["message"],
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        },
        {
            "name": PERMIT,
            "title": "Ask for permission",
            "description": "Asks people whether a tool of the host may be used. For the host's own permission prompts.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "tool_name": {"type": "string"},
                    "input": {"description": "The tool's arguments: an object, or its JSON as text."},
                    "tool_use_id": {"type": "string"},
                    "cwd": {"type": "string", "description": "The folder it works in."},
                    "suggestions": {
                        "description": (
                            "What else people may allow at once: an array of permission updates, or its JSON as text."
                        )
                    },
                    "form": {"type": "string", "enum": ["tool", "hook"], "description": "The shape of the result."},
                },
                "required": ["tool_name", "input"],
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        },
    )
)
"""Entries of `tools/list`."""


@dataclass(frozen=True, slots=True)
class PermitQuery:
    """What a host asks permission for: a use of a tool of its own, in the folder `cwd` ("" if it names none).

    `form` is the shape of the result, `suggestions` are further permissions that people may give with the answer.
    """

    tool: str
    arguments: dict[str, Any]
    cwd: str
    form: Literal["tool", "hook"]
    suggestions: list[dict[str, Any]]

    @property
    def params(self) -> dict[str, Any]:
        """The params of the call that asks people."""
        meta = {key: value for key, value in ((CWD, self.cwd), (SUGGESTIONS, self.suggestions)) if value}
        return {"name": self.tool, "arguments": self.arguments, **({"_meta": meta} if meta else {})}


def parse_question(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of the elicitation that a call of `hubbub_ask` becomes. Raises Refusal."""
    arguments = _parse_arguments(ASK, params)
    message, urgency, to = arguments.get("message"), arguments.get("urgency", "normal"), arguments.get("to", [])
    if not isinstance(message, str) or not message.strip() or len(message) > MAX_MESSAGE:
        raise _make_refusal(ASK, f"message must be a text of at most {MAX_MESSAGE} characters")
    if urgency not in ("low", "normal", "high"):
        raise _make_refusal(ASK, "urgency must be low, normal or high")
    recipients = [to] if isinstance(to, str) else to
    if not _are_short_texts(recipients, MAX_TO):
        raise _make_refusal(ASK, f"to must be a list of at most {MAX_TO} names")
    question: dict[str, Any] = {"mode": "form", "message": message, "requestedSchema": _parse_form(arguments)}
    if recipients:
        question["message"] = f"{message}\n\nFor: {', '.join(cast('list[str]', recipients))}"
    meta = {key: value for key, value in ((TO, recipients), (URGENCY, urgency)) if value and value != "normal"}
    if meta:
        question["_meta"] = meta
    if (problem := find_problem(RequestKind.ELICITATION_FORM, question)) is not None:
        raise _make_refusal(ASK, problem)
    return question


def parse_permit(params: Mapping[str, Any]) -> PermitQuery:
    """Return what a call of `hubbub_permit` asks permission for. Raises Refusal."""
    members = _parse_arguments(PERMIT, params)
    tool, arguments, cwd, form = (members.get(key) for key in ("tool_name", "input", "cwd", "form"))
    if not isinstance(tool, str) or not tool or len(tool) > MAX_NAME:
        raise _make_refusal(PERMIT, f"tool_name must be a text of at most {MAX_NAME} characters")
    if isinstance(arguments, str):
        try:
            arguments = payload.loads(arguments.encode())
        except ValueError:
            raise _make_refusal(PERMIT, "input is a text that is not JSON") from None
    if not isinstance(arguments, dict):
        raise _make_refusal(PERMIT, "input must be an object, or its JSON as text")
    if cwd is not None and (not isinstance(cwd, str) or len(cwd) > MAX_FOLDER):
        raise _make_refusal(PERMIT, f"cwd must be a text of at most {MAX_FOLDER} characters")
    if form not in (None, "tool", "hook"):
        raise _make_refusal(PERMIT, "form must be tool or hook")
    return PermitQuery(
        tool=tool,
        arguments=cast("dict[str, Any]", arguments),
        cwd=cwd or "",
        form="hook" if form == "hook" else "tool",
        suggestions=read_suggestions(members.get("suggestions", members.get("permission_suggestions"))),
    )


def _parse_form(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a question's form: its `schema`, a choice of its `choices`, or a text. Raises Refusal."""
    schema, choices = arguments.get("schema"), arguments.get("choices")
    if schema is not None and choices is not None:
        raise _make_refusal(ASK, "give either choices or a schema")
    if choices is not None:
        if not choices or not _are_short_texts(choices, MAX_FIELDS):
            raise _make_refusal(
                ASK, f"choices must be a list of at most {MAX_FIELDS} texts, of {MAX_NAME} characters each"
            )
        return _make_form({"answer": {**_TEXT, "enum": choices}}, ["answer"])
    if schema is None:
        return _make_form({"answer": dict(_TEXT)}, ["answer"])
    members = cast("dict[str, Any]", schema)
    if not isinstance(schema, dict) or len(payload.dumps(members)) > MAX_SCHEMA_BYTES:
        raise _make_refusal(ASK, f"schema must be an object of at most {MAX_SCHEMA_BYTES} bytes")
    fields: object = members.get("properties")
    if members.get("type", "object") != "object" or not isinstance(fields, dict) or not fields:
        raise _make_refusal(ASK, "schema must be that of an object with properties")
    properties = cast("dict[str, Any]", fields)
    if len(properties) > MAX_FIELDS:
        raise _make_refusal(ASK, f"schema has more than {MAX_FIELDS} properties")
    for name, field in properties.items():
        if not isinstance(field, dict) or cast("dict[str, Any]", field).get("type") not in _TYPES:
            raise _make_refusal(ASK, f"schema.properties.{name[:MAX_NAME]}: type must be one of {', '.join(_TYPES)}")
    required: object = members.get("required", [])
    return _make_form(properties, cast("list[Any]", required) if isinstance(required, list) else [])


def _make_form(properties: dict[str, Any], required: list[Any]) -> dict[str, Any]:
    """Return the schema of a form with these fields."""
    return {"type": "object", "properties": properties, "required": required}


def _are_short_texts(value: object, max_items: int) -> bool:
    """Return whether a value is a list of at most `max_items` texts, each of 1 to MAX_NAME characters."""
    items = cast("list[object]", value) if isinstance(value, list) else [None]  # None is no text
    return len(items) <= max_items and all(isinstance(each, str) and 0 < len(each) <= MAX_NAME for each in items)


def _parse_arguments(tool: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call of a tool. Raises Refusal."""
    arguments: object = params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise _make_refusal(tool, "arguments must be an object")
    return cast("Mapping[str, Any]", arguments)


def _make_refusal(tool: str, problem: str) -> Refusal:
    """Return the error for a wrong argument of a tool; `problem` says what is wrong."""
    return Refusal(INVALID_PARAMS, f"{tool}: {problem}")
