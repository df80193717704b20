"""Validate what a server asks beyond the shape of the message: URLs, text, and the order of tool results.

Called before anything becomes a pending request, so that nobody is asked what cannot be answered.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, cast
from urllib.parse import urlsplit

from hubbubd.core.inbox.request_states import RequestKind


def find_problem(kind: RequestKind, params: Mapping[str, Any]) -> str | None:
    """Return why a server's request must not be put to a person; None when it is valid. `params` is the MCP params."""
    match kind:
        case RequestKind.ELICITATION_URL:
            return _url_problem(params.get("url"))
        case RequestKind.SAMPLING:
            return _balance_problem(params.get("messages"))
        case RequestKind.ELICITATION_FORM:
            return _form_problem(_as_mapping(params.get("requestedSchema")))
        case _:
            return None


def _url_problem(url: object) -> str | None:
    """Return what is wrong with a URL; None if it is http or https, with a host that can be shown to a person.

    2025-11-25, client/elicitation, safe URL handling. Text that browsers parse differently from `urlsplit` could show
    another host than is visited; it counts as no URL.
    """
    if not isinstance(url, str) or "\\" in url or any(char.isspace() or not char.isprintable() for char in url):
        return "url is not a URL"
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and parts.hostname
    except ValueError:
        has_host = None
    return None if has_host else "url is not an http or https URL with a host"


def _form_problem(schema: Mapping[str, Any]) -> str | None:
    """Return what in a form is not valid Unicode: a name, a choice or a default. None if all is.

    Answers repeat these, and half of a surrogate pair cannot be typed, validated or sent.
    """
    for at, (name, field) in enumerate(_as_mapping(schema.get("properties")).items()):
        path = f"requestedSchema.properties.{name if _is_encodable(name) else at}"
        if not _is_encodable(name):
            return f"{path}: the name of this field has half of a surrogate pair"
        field = _as_mapping(field)
        items = _as_mapping(field.get("items"))
        titled_choices = map(_as_mapping, [*_as_list(field.get("oneOf")), *_as_list(items.get("anyOf"))])
        choices = chain(
            _as_list(field.get("enum")), _as_list(items.get("enum")), (each.get("const") for each in titled_choices)
        )
        default = field.get("default")
        if not all(map(_is_encodable, (*choices, default, *_as_list(default)))):
            return f"{path}: a choice or the default of this field has half of a surrogate pair"
    return None


def _is_encodable(value: object) -> bool:
    """Return whether UTF-8 can encode a string; True for a value of another type."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _balance_problem(messages: object) -> str | None:
    """Return which message breaks the balance of tool uses and results; None if none does.

    A message with tool uses must be followed by a user message with exactly their results (2025-11-25, client/sampling,
    tool use and result balance).
    """
    unanswered_uses: list[str] = []
    for at, message in enumerate(map(_as_mapping, _as_list(messages))):
        content = message.get("content")
        blocks = list(map(_as_mapping, _as_list(content) or [content]))
        results = [str(block.get("toolUseId")) for block in blocks if block.get("type") == "tool_result"]
        if results and (len(results) != len(blocks) or message.get("role") != "user"):
            return f"messages.{at}: tool results stand alone in a user message"
        if sorted(results) != sorted(unanswered_uses):
            return f"messages.{at}: the tool results are not those of the tool uses before them"
        unanswered_uses = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
    return "messages: the results of the last tool uses are missing" if unanswered_uses else None


def _as_mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _as_list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
