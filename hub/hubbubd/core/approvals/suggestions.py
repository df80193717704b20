"""What a host suggests to allow beside one use of its own tool: in words for people, and as those who approve take it.

A suggestion is a `PermissionUpdate` of Claude Code. One that cannot be put into words whole is not offered.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.calls.call_states import Call

SUGGESTIONS: Final = "hubbub/suggestions"
"""The member of a call's `_meta` with what its host suggests."""

MAX_SUGGESTIONS: Final = 20
"""How many are offered; the first."""

MAX_ITEMS: Final = 20
"""Rules or folders of one suggestion."""

MAX_WORDING_CHARS: Final = 500
"""Characters of a suggestion in words; nobody would read more."""

_DURATION_TEXTS: Final = {
    "session": "for this session",
    "localSettings": "for good, in this project, for this person",
    "projectSettings": "for good, in this project, for all who work on it",
    "userSettings": "for good, in all projects of this person",
}
_BEHAVIORS: Final = {"allow": "allow", "deny": "deny", "ask": "ask about"}
_MODES: Final = {
    "acceptEdits": "change files without asking",
    "auto": "decide by itself what it asks about",
    "bypassPermissions": "ask about nothing at all",
    "default": "ask as usual",
    "dontAsk": "deny without asking what no rule allows",
    "plan": "plan only",
}
_MEMBERS: Final = {
    "addRules": {"rules", "behavior"},
    "replaceRules": {"rules", "behavior"},
    "removeRules": {"rules", "behavior"},
    "setMode": {"mode"},
    "addDirectories": {"directories"},
    "removeDirectories": {"directories"},
}
"""The members that an update of each type has beside its type and its destination."""


def offered_suggestions(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the suggestions that the params of a call have for people, as given."""
    meta: object = params.get("_meta")
    return read_suggestions(cast("Mapping[str, Any]", meta).get(SUGGESTIONS) if isinstance(meta, Mapping) else None)


def read_suggestions(value: object) -> list[dict[str, Any]]:
    """Return the suggestions that can be offered out of a list of suggestions, or out of such a list in JSON.

    All others are left out and not refused: the host's question is as good without suggestions.
    """
    if isinstance(value, str):
        try:
            value = payload.loads(value.encode())
        except ValueError:
            return []
    items = cast("list[object]", value)[:MAX_SUGGESTIONS] if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) for each in items if describe_suggestion(each)]


def describe_suggestion(suggestion: object) -> str:
    """Return a suggestion in words, as `allow Bash(git push:*) for this session`; "" if words cannot say all of it."""
    if not isinstance(suggestion, dict):
        return ""
    update = cast("dict[str, Any]", suggestion)
    kind, destination = update.get("type"), update.get("destination")
    if not isinstance(kind, str) or not isinstance(destination, str):
        return ""
    members, duration = _MEMBERS.get(kind), _DURATION_TEXTS.get(destination)
    # Another member than these could mean more than the words say.
    if members is None or duration is None or update.keys() != {"type", "destination", *members}:
        return ""
    change = _describe_change(kind, update)
    text = f"{change} {duration}"
    return text if change and len(text) <= MAX_WORDING_CHARS else ""


def describe_offered_suggestions(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the suggestions for the document of a pending request; a `lasting` one outlives the host's session."""
    return [
        {"words": describe_suggestion(each), "lasting": each["destination"] != "session", "permission": each}
        for each in offered_suggestions(params)
    ]


def common_suggestions(votes: Sequence[Sequence[int]]) -> list[int]:
    """Return the indices that are in all votes, sorted. Each vote has the indices of suggestions that a person took."""
    return sorted(reduce(frozenset[int].intersection, map(frozenset[int], votes))) if votes else []


def accepted_suggestions(call: Call) -> list[dict[str, Any]]:
    """Return the suggestions that all who approved a call have taken, exactly as its host gave them."""
    if call.approval is None or not call.approval.granted:
        return []
    accepted_indices = common_suggestions([vote.suggestions for vote in call.approval.votes])
    if not accepted_indices:
        return []
    offered = offered_suggestions(payload.loads_message(call.params, "params"))
    return [offered[index] for index in accepted_indices if index < len(offered)]


def _describe_change(kind: str, update: Mapping[str, Any]) -> str:
    """Return what an update of this kind changes, as a text for people; "" if that cannot be said."""
    match kind:
        case "setMode":
            mode: object = update["mode"]
            return f"{_MODES[mode]} (mode {mode})" if isinstance(mode, str) and mode in _MODES else ""
        case "addDirectories" | "removeDirectories":
            folders = _describe_each(update["directories"], lambda each: each if isinstance(each, str) else "")
            return folders and f"{'work in' if kind == 'addDirectories' else 'no longer work in'} {folders}"
        case _:
            rules, behavior = _describe_each(update["rules"], _describe_rule), _BEHAVIORS.get(str(update["behavior"]))
            if not rules or behavior is None:
                return ""
            match kind:
                case "addRules":
                    return f"{behavior} {rules}"
                case "removeRules":
                    return f"no longer {behavior} {rules}"
                case _:
                    return f"{behavior} {rules}, and nothing else that was to {behavior} before,"


def _describe_rule(value: object) -> str:
    """Return a rule of a suggestion in words, as `Bash(git push:*)`; "" for what is no rule."""
    rule = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    tool, content = rule.get("toolName"), rule.get("ruleContent")
    if not isinstance(tool, str) or not tool or not rule.keys() <= {"toolName", "ruleContent"}:
        return ""
    if content is None or content == "":
        return f"every use of {tool}"
    return f"{tool}({content})" if isinstance(content, str) else ""


def _describe_each(value: object, describe: Callable[[object], str]) -> str:
    """Return all items of a list in words, by `describe`; "" if there are none, too many, or one has no words."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    texts = [describe(item) for item in items[:MAX_ITEMS]]
    return ", ".join(texts) if all(texts) and len(items) <= MAX_ITEMS else ""
