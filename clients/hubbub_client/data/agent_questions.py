"""What an agent asks to do: the members of its own in the MCP params of a question, and all others beside MCP's.

Agents that are MCP servers (codex) say in their question what they would run or change. `AGENTS` is the table of the
names they use; the members may also stand in `_meta`. Nothing here raises: what is not as known stays as JSON.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from hubbub_client.payload import as_list, as_object

ChangeKind = Literal["add", "delete", "update", "unknown"]

SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "fish", "pwsh", "powershell"))
SHELL_OPTIONS = frozenset(("-c", "-lc", "-ic", "-command"))


@dataclass(frozen=True, slots=True)
class AgentMembers:
    """The names under which an agent sends what it would do; `grant`: a folder to write to from then on."""

    command: str
    folder: str
    changes: str
    grant: str


AGENTS = (AgentMembers("codex_command", "codex_cwd", "codex_changes", "codex_grant_root"),)

KNOWN: Mapping[str, frozenset[str]] = {
    "elicitation_form": frozenset(("message", "requestedSchema", "mode", "task", "_meta")),
    "elicitation_url": frozenset(("message", "url", "mode", "elicitationId", "task", "_meta")),
    "sampling": frozenset(
        (
            *("messages", "systemPrompt", "modelPreferences", "includeContext", "temperature", "maxTokens"),
            *("stopSequences", "tools", "toolChoice", "task", "_meta"),
        )
    ),
    "roots": frozenset(("_meta",)),
}
"""MCP's own members of a request, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A change of one file: all of its `content` if it is added or deleted, else the unified `diff`.

    Of an `unknown` kind, `content` is what was sent, as JSON.
    """

    path: str
    kind: ChangeKind
    content: str = ""
    diff: str = ""
    moved_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuestion:
    """What an agent asks to do: run a `command` in a `folder`, or make `changes`."""

    command: tuple[str, ...] = ()
    folder: str = ""
    changes: tuple[FileChange, ...] = ()
    grant: str = ""

    @property
    def shell(self) -> str:
        """Return the shell that runs the command, with its options; empty if none does."""
        return shlex.join(self.command[:2]) if self._is_shell else ""

    @property
    def command_line(self) -> str:
        """Return the command as it would be typed: the script of a shell, else the words with their quotes."""
        return self.command[2] if self._is_shell else shlex.join(self.command)

    @property
    def _is_shell(self) -> bool:
        if len(self.command) != 3 or self.command[1].lower() not in SHELL_OPTIONS:
            return False
        program = self.command[0].replace("\\", "/").rpartition("/")[2].lower()
        return program.removesuffix(".exe") in SHELLS


def read_agent_question(params: Mapping[str, Any]) -> AgentQuestion | None:
    """Return what an agent asks to do; None if the question has no member that is known."""
    members, meta = _find_members(params), as_object(params.get("_meta"))
    if members is None:
        return None

    def value(name: str) -> object:
        return params.get(name, meta.get(name))

    command = value(members.command)
    words = as_list(command)
    if words and all(isinstance(each, str) for each in words):
        argv = tuple(cast("list[str]", words))
    else:
        argv = () if command is None else (_as_text(command),)
    changes = value(members.changes)
    return AgentQuestion(
        command=argv,
        folder=_as_text(value(members.folder)),
        changes=_read_changes(changes),
        grant=_as_text(value(members.grant)),
    )


def other_members(kind: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a server sends beside the members of MCP and those of `AgentQuestion`; those of `_meta` by a path."""
    members = _find_members(params) if kind == "elicitation_form" else None
    meta = as_object(params.get("_meta"))
    read = {members.command, members.folder, members.changes, members.grant} if members is not None else set[str]()
    own = {name: value for name, value in params.items() if name not in KNOWN.get(kind, ()) and name not in read}
    unread = {f"_meta.{name}": value for name, value in meta.items() if name not in read or name in params}
    return own | unread


def _find_members(params: Mapping[str, Any]) -> AgentMembers | None:
    meta = as_object(params.get("_meta"))
    for each in AGENTS:
        if any(name in params or name in meta for name in (each.command, each.changes)):
            return each
    return None


def _read_changes(value: object) -> tuple[FileChange, ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        return (FileChange(path="", kind="unknown", content=_as_text(value)),)
    return tuple(_read_change(path, each) for path, each in cast("Mapping[str, object]", value).items())


def _read_change(path: str, value: object) -> FileChange:
    """Read a change: `{"type": KIND, ...}`, or `{KIND: {...}}` of older versions."""
    change = as_object(value)
    kind = change.get("type")
    if kind is None and len(change) == 1:
        ((kind, inner),) = change.items()
        change = as_object(inner)
    content, diff, moved_to = change.get("content"), change.get("unified_diff"), change.get("move_path")
    if kind == "update" and isinstance(diff, str) and isinstance(moved_to, str | None):
        return FileChange(path=path, kind="update", diff=diff, moved_to=moved_to or "")
    if kind in ("add", "delete") and isinstance(content, str):
        return FileChange(path=path, kind="add" if kind == "add" else "delete", content=content)
    return FileChange(path=path, kind="unknown", content=_as_text(value))


def _as_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "it nests too deep to be shown"
