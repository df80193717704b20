"""The tool calls of a session, each merged from the agent's updates, and the files that they change."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, cast

from hubbub_acp.plain_text import make_line, strip_escapes
from hubbub_acp.values import as_list, as_object

MAX_CALLS: Final = 50
MAX_PATHS: Final = 20
MAX_CHANGED: Final = 1000
PATH_CHARACTERS: Final = 4096
PATHS_CHARACTERS: Final = 16 * 1024
"""The most characters of all paths of a call: each state of the session has them."""

CHANGED_CHARACTERS: Final = 256 * 1024
"""The most characters of all paths that were changed."""

ID_CHARACTERS: Final = 256
TITLE_CHARACTERS: Final = 300

CHANGING_KINDS: Final = frozenset({"edit", "delete", "move"})

RETAINED_KEYS: Final = ("title", "kind", "rawInput", "content", "locations")
"""Keys that a permission request may leave out if an earlier update of the same tool call had them."""

RETAINED_CHARACTERS: Final = 128 * 1024
"""The most characters of each value of RETAINED_KEYS that is kept for a later permission request."""

RETAINED_CALLS: Final = 8
"""Of how many calls, the last ones, these values are kept."""


class ToolCallView:
    """One tool call. `last_values` has the last value that the agent sent for each of RETAINED_KEYS, as ACP has it.

    They complete a later permission request; None stands for a value that is too large to keep.
    """

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.title = ""
        self.kind = "other"
        self.status = "pending"
        self.paths: list[str] = []
        self.diff_paths: list[str] = []
        self.at = ""
        self.last_values: dict[str, Any] = {}

    def merge(self, update: Mapping[str, Any], at: str) -> None:
        """Apply an update of the call, received `at` this time: each value in it replaces the earlier one."""
        self.at = at
        self.title = make_line(update.get("title"), TITLE_CHARACTERS) or self.title
        self.kind = make_line(update.get("kind"), 50) or self.kind
        self.status = make_line(update.get("status"), 50) or self.status
        if paths := read_paths(update.get("locations")):
            self.paths = paths
        diffs = [each for each in as_list(update.get("content")) if as_object(each).get("type") == "diff"]
        if diff_paths := read_paths(diffs):
            self.diff_paths = diff_paths
            self.paths = list(dict.fromkeys([*self.paths, *diff_paths]))[:MAX_PATHS]
        for key in RETAINED_KEYS:
            if update.get(key) is not None:
                self.last_values[key] = update[key] if estimate_size(update[key]) <= RETAINED_CHARACTERS else None

    @property
    def changed(self) -> list[str]:
        """The files that the call has changed; empty until it is completed."""
        if self.status != "completed":
            return []
        return self.diff_paths or (self.paths if self.kind in CHANGING_KINDS else [])

    def to_wire(self) -> dict[str, Any]:
        """Return the tool call as JSON, for the state of a session."""
        keys = ("id", "title", "kind", "status", "paths", "at")
        return {key: getattr(self, key) for key in keys}


class ToolCalls:
    """The last calls of a session by id, and all files they changed."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCallView] = {}
        self.changed: dict[str, None] = {}
        self._changed_characters = 0

    def find(self, update: Mapping[str, Any]) -> ToolCallView | None:
        """Return the call that an update is about; None if the call is not known."""
        return self._calls.get(str(update.get("toolCallId")))

    def update(self, update: Mapping[str, Any], at: str) -> ToolCallView | None:
        """Apply an update to its call; return the call, None if the update names none."""
        call_id = update.get("toolCallId")
        if not isinstance(call_id, str) or not 0 < len(call_id) <= ID_CHARACTERS:
            return None
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = ToolCallView(strip_escapes(call_id))
            if len(self._calls) > MAX_CALLS:
                del self._calls[next(iter(self._calls))]
            # One call is new, so one has left the last KEPT_CALLS.
            for older in islice(reversed(self._calls.values()), RETAINED_CALLS, RETAINED_CALLS + 1):
                older.last_values.clear()
        call.merge(update, at)
        self.add_changed(*call.changed)
        if call.status in ("completed", "failed"):
            call.last_values.clear()
        return call

    def add_changed(self, *paths: str) -> None:
        """Add files to those that were changed, as far as the limits allow."""
        for path in paths:
            is_within_limits = (
                self._changed_characters + len(path) <= CHANGED_CHARACTERS and len(self.changed) < MAX_CHANGED
            )
            if is_within_limits and path not in self.changed:
                self.changed[path] = None
                self._changed_characters += len(path)

    def forget_changed(self) -> None:
        """Clear the list of changed files, when a new turn begins."""
        self.changed.clear()
        self._changed_characters = 0

    def complete_request(self, tool_call: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool call of a permission request; earlier updates fill in values that it leaves out."""
        call = self._calls.get(str(tool_call.get("toolCallId")))
        sent = {key: value for key, value in tool_call.items() if value not in (None, [], {})}
        if call is None:
            return sent
        merged = {**call.last_values, **sent}
        if isinstance(sent.get("rawInput"), dict) and (earlier_input := as_object(call.last_values.get("rawInput"))):
            merged["rawInput"] = {**earlier_input, **as_object(sent.get("rawInput"))}
        return merged

    def to_wire(self) -> list[dict[str, Any]]:
        """Return the calls as JSON, for the state of a session, the oldest first."""
        return [call.to_wire() for call in self._calls.values()]


def read_paths(entries: object) -> list[str]:
    """Return the paths of locations, or of diffs; at most MAX_PATHS, of PATHS_CHARACTERS together."""
    found: dict[str, None] = {}
    remaining = PATHS_CHARACTERS
    for each in as_list(entries)[:MAX_PATHS]:
        path = as_object(each).get("path")
        if isinstance(path, str) and 0 < len(path) <= min(PATH_CHARACTERS, remaining):
            found[strip_escapes(path)] = None
            remaining -= len(path)
    return list(found)


def estimate_size(value: object) -> int:
    """Return about how many characters a value has: its texts, and 1 for each value in it.

    Only 1000 values of each level are looked into. A value that nests deeper than six levels counts KEPT_CHARACTERS
    more than its size, so that it is not kept.
    """
    total, level = 0, [value]
    for _ in range(6):
        below: list[Any] = []
        for each in level[:1000]:
            if isinstance(each, str):
                total += len(each)
            elif isinstance(each, dict):
                below += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                below += cast("list[Any]", each)
        total += len(level)
        level = below
    return total + RETAINED_CHARACTERS * bool(level)
