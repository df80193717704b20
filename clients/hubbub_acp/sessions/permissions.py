"""Permission requests of agents as MCP forms, and answers to forms as outcomes of permission requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from hubbub_acp.plain_text import count_bytes, make_line
from hubbub_acp.values import as_list, as_object, is_deeper

MAX_OPTIONS: Final = 20
ID_CHARACTERS: Final = 256
NAME_CHARACTERS: Final = 200
TITLE_CHARACTERS: Final = 500
MAX_CONTENTS: Final = 20
MAX_LOCATIONS: Final = 50
PATH_CHARACTERS: Final = 4096

TEXT_BYTES: Final = 128 * 1024
"""The most bytes of each text in the content of a tool call: of a diff, its old and its new one."""

CALL_BYTES: Final = 512 * 1024
"""The most bytes of all texts of a tool call, and of its raw input."""

RAW_BYTES: Final = 32 * 1024
"""The most bytes of a tool call's raw input."""

RAW_LEVELS: Final = 100
"""The most levels of a tool call's raw input: as many as all programs that pass it on can read and write."""

WISHES: Final = {
    "edit": "wants to change a file",
    "delete": "wants to delete a file",
    "move": "wants to move a file",
    "execute": "wants to run a command",
    "read": "wants to read a file",
    "search": "wants to search",
    "fetch": "wants to fetch something",
    "switch_mode": "wants to go on in another mode",
}
"""What an agent wants, by the kind of its tool call; of another kind it `wants to use a tool`."""

KINDS: Final = ("allow_once", "allow_always", "", "reject_once", "reject_always")
"""The kinds of options in the order in which they are offered; "" stands for one that is not known."""

CANCELLED: Final[dict[str, Any]] = {"outcome": {"outcome": "cancelled"}}


@dataclass(frozen=True, slots=True)
class PermissionOption:
    """One of the agent's choices. `kind` is the agent's own text, which may be none of KINDS."""

    id: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class PermissionForm:
    """The params of `elicitation/create`, and the choices they offer."""

    title: str
    message: str
    options: tuple[PermissionOption, ...]
    params: Mapping[str, Any]


class _Budget:
    """Counts the bytes that remain for the texts of a tool call, and those that were cut off (`omitted_bytes`)."""

    def __init__(self, remaining_bytes: int) -> None:
        self.remaining_bytes = remaining_bytes
        self.omitted_bytes = 0

    def cut(self, text: str, limit: int) -> str:
        """Return the beginning of a text, within `limit` and the remaining bytes; count the rest as omitted."""
        limit = min(limit, self.remaining_bytes)
        if len(text) <= limit and (size := count_bytes(text)) <= limit:
            self.remaining_bytes -= size
            return text
        raw = text.encode(errors="replace")
        beginning = raw[:limit].decode(errors="ignore")
        size = count_bytes(beginning)
        self.remaining_bytes -= size
        self.omitted_bytes += len(raw) - size
        return beginning


def read_options(raw_options: object) -> tuple[PermissionOption, ...]:
    """Return the choices of a request, in the order of KINDS: each id once, at most MAX_OPTIONS, no broken ones."""
    options: dict[str, PermissionOption] = {}
    for each in cast("list[Any]", raw_options)[: 10 * MAX_OPTIONS] if isinstance(raw_options, list) else []:
        if not isinstance(each, dict):
            continue
        option = cast("dict[str, Any]", each)
        option_id = option.get("optionId")
        if not isinstance(option_id, str) or not 0 < len(option_id) <= ID_CHARACTERS or len(options) == MAX_OPTIONS:
            continue
        name = make_line(option.get("name"), NAME_CHARACTERS) or make_line(option_id, NAME_CHARACTERS) or "(no name)"
        options.setdefault(option_id, PermissionOption(option_id, name, make_line(option.get("kind"), 50)))
    return tuple(sorted(options.values(), key=_option_rank))


def _option_rank(option: PermissionOption) -> int:
    """Return the rank of an option by KINDS: the lowest is offered first; unknown kinds are in the middle."""
    return KINDS.index(option.kind) if option.kind in KINDS else KINDS.index("")


def make_form(
    session_id: str, cwd: str, agent: str, tool_call: Mapping[str, Any], options: Sequence[PermissionOption]
) -> PermissionForm:
    """Return the form that asks people for a decision.

    `tool_call` has all that is known of the call; `agent` is the agent's name for people.
    """
    bounded_call, omitted_bytes = bound_tool_call(tool_call)
    title = make_line(tool_call.get("title"), TITLE_CHARACTERS)
    wish = WISHES.get(str(tool_call.get("kind")), "wants to use a tool")
    message = f"{agent} {wish} in {make_line(cwd, PATH_CHARACTERS)}"
    decision = {
        "type": "string",
        "title": "Decision",
        "oneOf": [{"const": each.id, "title": each.name} for each in options],
    }
    details: dict[str, Any] = {
        "session": session_id,
        "cwd": cwd,
        "toolCall": bounded_call,
        "options": [{"optionId": each.id, "name": each.name, "kind": each.kind} for each in options],
    }
    if omitted_bytes:
        details |= {"truncated": True, "omittedBytes": omitted_bytes}
    params = {
        "mode": "form",
        "message": f"{message}: {title}" if title else message,
        "requestedSchema": {"type": "object", "properties": {"decision": decision}, "required": ["decision"]},
        "_meta": {"acp/toolCall": details},
    }
    return PermissionForm(title or wish, str(params["message"]), tuple(options), params)


def choose_outcome(options: Sequence[PermissionOption], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outcome of a permission request for the result of its elicitation.

    An answer that is no acceptance, or that names none of the options, rejects: by `reject_once` if the agent offers
    it, else the request is cancelled.
    """
    content = answer.get("content")
    if answer.get("action") == "accept" and isinstance(content, dict):
        decision = cast("dict[str, Any]", content).get("decision")
        if any(decision == each.id for each in options):
            return {"outcome": {"outcome": "selected", "optionId": decision}}
    rejecting = next((each.id for each in options if each.kind == "reject_once"), None)
    return CANCELLED if rejecting is None else {"outcome": {"outcome": "selected", "optionId": rejecting}}


def name_decision(options: Sequence[PermissionOption], outcome: Mapping[str, Any]) -> str:
    """Return the name of the option that was chosen, for the transcript; `cancelled` if none was."""
    chosen = outcome["outcome"].get("optionId")
    return next((each.name for each in options if each.id == chosen), "cancelled")


def bound_tool_call(tool_call: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a tool call within the limits for frontends, in the form of ACP, and how many bytes were cut off."""
    budget = _Budget(CALL_BYTES)
    bounded: dict[str, Any] = {}
    for key, limit in (("toolCallId", ID_CHARACTERS), ("title", TITLE_CHARACTERS), ("kind", 50)):
        if isinstance(value := tool_call.get(key), str):
            bounded[key] = budget.cut(value, limit * 4)  # a character has at most 4 bytes
    if tool_call.get("rawInput") is not None:
        bounded["rawInput"] = _bound_raw(tool_call["rawInput"], budget)
    contents = as_list(tool_call.get("content"))
    bounded["content"] = [
        bounded_content for each in contents[:MAX_CONTENTS] if (bounded_content := _bound_content(each, budget))
    ]
    budget.omitted_bytes += sum(map(_count_json, contents[MAX_CONTENTS:]))
    locations = as_list(tool_call.get("locations"))
    bounded["locations"] = [
        {"path": budget.cut(path, PATH_CHARACTERS), **({"line": line} if isinstance(line, int) else {})}
        for path, line in map(_read_location, locations[:MAX_LOCATIONS])
        if path
    ]
    budget.omitted_bytes += sum(map(_count_json, locations[MAX_LOCATIONS:]))
    return bounded, budget.omitted_bytes


def _count_json(value: object) -> int:
    """Return how many bytes a value has as JSON; 1 for a value that nests deeper than RAW_LEVELS."""
    return 1 if is_deeper(value, RAW_LEVELS) else len(orjson.dumps(value))


def _read_location(value: object) -> tuple[str, object]:
    """Return the path and the line of a location; an empty path if it has none."""
    location = as_object(value)
    path = location.get("path")
    return (path if isinstance(path, str) else ""), location.get("line")


def _bound_raw(raw: object, budget: _Budget) -> Any:
    """Return the raw input; the beginning of its JSON if it is too long; a note if it nests deeper than RAW_LEVELS."""
    if is_deeper(raw, RAW_LEVELS):
        budget.omitted_bytes += 1  # at least: what nests so deep has no JSON whose bytes could be counted
        return "it nests too deep to be shown"
    document = orjson.dumps(raw)
    if len(document) <= min(RAW_BYTES, budget.remaining_bytes):
        budget.remaining_bytes -= len(document)
        return raw
    return budget.cut(document.decode(), RAW_BYTES)


def _bound_content(entry: object, budget: _Budget) -> dict[str, Any] | None:
    """Return an entry of a tool call's content, cut to the budget; None for an entry that is no diff and no text."""
    content = as_object(entry)
    if (
        content.get("type") == "diff"
        and isinstance(content.get("path"), str)
        and isinstance(content.get("newText"), str)
    ):
        old = content.get("oldText")
        return {
            "type": "diff",
            "path": budget.cut(content["path"], PATH_CHARACTERS),
            "oldText": budget.cut(old, TEXT_BYTES) if isinstance(old, str) else None,
            "newText": budget.cut(content["newText"], TEXT_BYTES),
        }
    block = content.get("content")
    if content.get("type") == "content" and isinstance(block, dict):
        text = cast("dict[str, Any]", block).get("text")
        if isinstance(text, str):
            return {"type": "content", "content": {"type": "text", "text": budget.cut(text, TEXT_BYTES)}}
    return None
