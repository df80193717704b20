"""What an agent asks to do: the members of its own in the MCP params of a question, and all others beside MCP's.

Agents that are MCP servers (codex) say in their question what they would run or change. `AGENTS` is the table of the
names they use; the members may also stand in `_meta`. Agents behind the bridge (`hubbub acp`) have their tool call, as
ACP has it, in one member of `_meta`. Nothing here raises: what is not as known stays as JSON.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from hubbub_client.numbers import whole
from hubbub_client.payload import as_list, as_object, as_objects

ChangeKind = Literal["add", "delete", "update", "unknown"]

SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "fish", "pwsh", "powershell"))
SHELL_OPTIONS = frozenset(("-c", "-lc", "-ic", "-command"))


@dataclass(frozen=True, slots=True)
class AgentMembers:
    """The names of the members in which an agent sends its question; `grant`: a folder to write to from then on."""

    command: str
    folder: str
    changes: str
    grant: str


AGENTS = (AgentMembers("codex_command", "codex_cwd", "codex_changes", "codex_grant_root"),)

TOOL_CALL: Final = "acp/toolCall"
"""The member of `_meta` that has a tool call of ACP, with its session, folder and options."""

READ_OF_TOOL_CALL = frozenset(("toolCallId", "title", "kind", "status", "rawInput", "content", "locations"))
READ_BESIDE = frozenset(("session", "cwd", "toolCall", "options", "truncated", "omittedBytes"))
"""Members from which `AgentQuestion` is read: those of the tool call, and those beside it in TOOL_CALL."""

COMMANDS = ("command", "cmd")
FOLDERS = ("cwd", "workdir", "directory")
"""Names that agents have for a command and its folder in the input of their tools."""

MAX_OPTIONS = 100
"""The most options of a question that are read."""

MCP_MEMBERS: Mapping[str, frozenset[str]] = {
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
    """A change of one file: all of its `content` if it is added or deleted, else the unified `diff`, or both texts.

    For an `unknown` kind, `content` is the change as JSON.
    """

    path: str
    kind: ChangeKind
    content: str = ""
    diff: str = ""
    moved_to: str = ""
    texts: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOption:
    """An answer that an agent takes; ACP has the kinds allow_once, allow_always, reject_once and reject_always."""

    id: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuestion:
    """A question of an agent: may it run a `command` in a `folder`, make `changes`, or use a tool with an `input`?

    With `is_line` the command is one word, a line for a shell. `title` and `says` describe the action in the agent's
    words; `files` are the paths that it names. `session` is one of `acp://sessions`. `omitted_bytes` is how much was
    cut from a question that was too big; None if nothing was.
    """

    command: tuple[str, ...] = ()
    is_line: bool = False
    folder: str = ""
    changes: tuple[FileChange, ...] = ()
    grant: str = ""
    session: str = ""
    title: str = ""
    says: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: tuple[AgentOption, ...] = ()
    omitted_bytes: int | None = None

    @property
    def shell(self) -> str:
        """Return the shell that runs the command, with its options; empty if no shell does."""
        return shlex.join(self.command[:2]) if self._is_shell else ""

    @property
    def command_line(self) -> str:
        """Return the command as it would be typed: the script of a shell, else the words with their quotes."""
        if self.is_line:
            return self.command[0]
        return self.command[2] if self._is_shell else shlex.join(self.command)

    @property
    def _is_shell(self) -> bool:
        """Return whether the command is a shell, its option, and a script."""
        if len(self.command) != 3 or self.command[1].lower() not in SHELL_OPTIONS:
            return False
        program = self.command[0].replace("\\", "/").rpartition("/")[2].lower()
        return program.removesuffix(".exe") in SHELLS


def read_agent_question(params: Mapping[str, Any]) -> AgentQuestion | None:
    """Return the question of an agent; None if it has no known member."""
    members, meta = _find_members(params), as_object(params.get("_meta"))
    if members is None:
        tool_call = as_object(meta.get(TOOL_CALL))
        return _read_tool_call(tool_call) if tool_call else None

    def find_value(name: str) -> object:
        """Return a member of the question, else of its `_meta`; None if neither has it."""
        return params.get(name, meta.get(name))

    command = find_value(members.command)
    command_words = as_list(command)
    if command_words and all(isinstance(each, str) for each in command_words):
        argv = tuple(cast("list[str]", command_words))
    else:
        argv = () if command is None else (_as_text(command),)
    changes = find_value(members.changes)
    return AgentQuestion(
        command=argv,
        folder=_as_text(find_value(members.folder)),
        changes=_read_changes(changes),
        grant=_as_text(find_value(members.grant)),
    )


def other_members(kind: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the members that neither MCP nor `AgentQuestion` has a field for; members of `_meta` as `_meta.NAME`."""
    members = _find_members(params) if kind == "elicitation_form" else None
    meta = as_object(params.get("_meta"))
    read_names = (
        {members.command, members.folder, members.changes, members.grant} if members is not None else set[str]()
    )
    tool_call = as_object(meta.get(TOOL_CALL) if kind == "elicitation_form" and members is None else None)
    unread_of_tool_call = _unread_of_tool_call(tool_call)
    if tool_call:
        read_names.add(TOOL_CALL)
    mcp_names = MCP_MEMBERS.get(kind, ())
    unread = {name: value for name, value in params.items() if name not in mcp_names and name not in read_names}
    # Of a member that is in `params` as well as in `_meta`, only that in `params` was read.
    unread_meta = {f"_meta.{name}": value for name, value in meta.items() if name not in read_names or name in params}
    return unread | unread_meta | unread_of_tool_call


def _find_members(params: Mapping[str, Any]) -> AgentMembers | None:
    """Return the names of the members that the agent of a question uses; None for an unknown agent."""
    meta = as_object(params.get("_meta"))
    for each in AGENTS:
        if any(name in params or name in meta for name in (each.command, each.changes)):
            return each
    return None


def _read_changes(value: object) -> tuple[FileChange, ...]:
    """Return the changes of files in a question; an `unknown` change if they cannot be read."""
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


def _read_tool_call(document: Mapping[str, Any]) -> AgentQuestion:
    """Return the question of an agent behind the bridge, from its tool call of ACP."""
    call = as_object(document.get("toolCall"))
    tool_input, title, kind = as_object(call.get("rawInput")), _as_text(call.get("title")), call.get("kind")
    content = as_objects(call.get("content"))
    changes = tuple(_read_diff(each, kind) for each in content if each.get("type") == "diff")
    # What an agent runs may stand in the title alone.
    command, is_line = _find_command(tool_input, title if kind == "execute" and not changes else "")
    folder = next((tool_input[name] for name in FOLDERS if isinstance(tool_input.get(name), str)), document.get("cwd"))
    says = (as_object(each.get("content")).get("text") for each in content if each.get("type") == "content")
    locations = (each.get("path") for each in as_objects(call.get("locations")))
    options = as_objects(document.get("options"))[:MAX_OPTIONS]
    return AgentQuestion(
        command=command,
        is_line=is_line,
        folder=_as_text(folder),
        changes=changes,
        session=_as_text(document.get("session")),
        title=title,
        says=tuple(each for each in says if isinstance(each, str) and each.strip()),
        files=tuple(each for each in locations if isinstance(each, str)),
        input=tool_input,
        options=tuple(
            AgentOption(id=id_, name=_as_text(each.get("name")) or id_, kind=_as_text(each.get("kind")))
            for each in options
            if isinstance(id_ := each.get("optionId"), str)
        ),
        omitted_bytes=(whole(document.get("omittedBytes"), 0) or 0) if document.get("truncated") else None,
    )


def _find_command(tool_input: Mapping[str, Any], title: str) -> tuple[tuple[str, ...], bool]:
    """Return the words of a command and False, or its line alone and True; () and False without a command.

    `title` is the line if the input of the tool has no command.
    """
    command: object = next((tool_input[name] for name in COMMANDS if tool_input.get(name)), title or None)
    command_words = as_list(command)
    if command_words and all(isinstance(each, str) for each in command_words):
        return tuple(cast("list[str]", command_words)), False
    return ((), False) if command is None else ((_as_text(command),), True)


def _read_diff(change: Mapping[str, Any], kind: object) -> FileChange:
    """Read a change of ACP: the whole text before, which a new file has not, and the whole text after."""
    path, old, new = _as_text(change.get("path")), change.get("oldText"), change.get("newText")
    if not isinstance(new, str) or not isinstance(old, str | None):
        return FileChange(path=path, kind="unknown", content=_as_text(change))
    if not old:
        return FileChange(path=path, kind="add", content=new)
    if kind == "delete" and not new:
        return FileChange(path=path, kind="delete", content=old)
    return FileChange(path=path, kind="update", texts=(old, new))


def _unread_of_tool_call(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a tool call that `AgentQuestion` does not have; members of its input as `input.NAME`.

    Without a command or changes, `AgentQuestion.input` has the whole input, so none of it is returned.
    """
    call = as_object(document.get("toolCall"))
    unread = {f"toolCall.{name}": value for name, value in call.items() if name not in READ_OF_TOOL_CALL}
    unread |= {name: value for name, value in document.items() if name not in READ_BESIDE}
    question = _read_tool_call(document)
    if question.command or question.changes:
        read_names = COMMANDS if question.command else ()
        unread |= {f"input.{name}": value for name, value in question.input.items() if name not in read_names}
    return unread


def _as_text(value: object) -> str:
    """Return a string as it is, any other value as JSON, and nothing for None."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "it nests too deep to be shown"
