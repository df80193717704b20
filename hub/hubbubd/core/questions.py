"""What a server may ask beyond what the shape of its request says: pages to visit, and the order of tool results."""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from hubbubd.core.inbox import RequestKind


def problem(kind: RequestKind, params: Mapping[str, Any]) -> str | None:
    """Why nobody is to be asked this; None when it is in order. `params` is the MCP params."""
    match kind:
        case RequestKind.ELICITATION_URL:
            return _url_problem(params.get("url"))
        case RequestKind.SAMPLING:
            return _balance_problem(params.get("messages"))
        case _:
            return None


def _url_problem(url: object) -> str | None:
    """A person has to see which host a page is on (2025-11-25, elicitation, safe URL handling).

    What browsers read in another way than the hub does, so that the two see different hosts, counts as no URL.
    """
    if not isinstance(url, str) or "\\" in url or any(char.isspace() or not char.isprintable() for char in url):
        return "url is not a URL"
    try:
        where = urlsplit(url)
        shown = where.scheme in ("http", "https") and where.hostname
    except ValueError:
        shown = None
    return None if shown else "url is not an http or https URL with a host"


def _balance_problem(messages: object) -> str | None:
    """Each message that uses tools is followed by a user message of nothing but its results (2025-11-25, sampling,
    tool use and result balance)."""
    used: list[str] = []
    for at, message in enumerate(map(_object, _list(messages))):
        content = message.get("content")
        blocks = list(map(_object, _list(content) or [content]))
        results = [str(block.get("toolUseId")) for block in blocks if block.get("type") == "tool_result"]
        if results and (len(results) != len(blocks) or message.get("role") != "user"):
            return f"messages.{at}: tool results stand alone in a user message"
        if sorted(results) != sorted(used):
            return f"messages.{at}: the tool results are not those of the tool uses before them"
        used = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
    return "messages: the results of the last tool uses are missing" if used else None


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
