"""Claude Code's permission prompts: the hook by which it asks people through the hub, in its file of settings."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from hubbub_local.hosts import files
from hubbub_local.hosts.files import UnchangeableHostFile
from hubbub_local.hosts.kinds import NAME
from hubbub_local.hosts.servers import UnreadableFile, parse_settings
from hubbub_local.platform_dirs import Machine

PERMIT: Final = "hubbub_permit"
"""The tool that asks."""

PROMPT_TOOL: Final = f"mcp__{NAME}__{PERMIT}"
"""What Claude Code calls that tool."""

WAIT_S: Final = 86_400
"""Seconds for which the hook is waited for; the dialog at the terminal is there meanwhile."""

_SECTION: Final = "hooks"
_EVENT: Final = "PermissionRequest"
_HOOK: Final[Mapping[str, Any]] = {
    "type": "mcp_tool",
    "server": NAME,
    "tool": PERMIT,
    "input": {
        "tool_name": "${tool_name}",
        "input": "${tool_input}",
        "cwd": "${cwd}",
        "suggestions": "${permission_suggestions}",
        "form": "hook",
    },
    "timeout": WAIT_S,
}


def find_settings_file(machine: Machine) -> Path:
    """Return the file in which Claude Code keeps the person's hooks."""
    folder = machine.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else machine.home / ".claude") / "settings.json"


def preview_hook(file: Path) -> str:
    """Return what the file would be with the hook. Raises UnchangeableHostFile, OSError."""
    return files.preview_changes(file, {(_SECTION,): {_EVENT: _list_groups_with_hook(file)}})


def render_hook() -> str:
    """Return, for people, the text of a file that has the hook alone."""
    return json.dumps({_SECTION: {_EVENT: [_make_hook_group()]}}, indent=2) + "\n"


def install_hook(file: Path) -> tuple[bool, Path | None]:
    """Put the hook into the file; return whether it is changed, and where the old file is now.

    Raises UnchangeableHostFile, OSError.
    """
    return files.change_file(file, {(_SECTION,): {_EVENT: _list_groups_with_hook(file)}})


def has_hook(file: Path) -> bool:
    """Return whether a file has a hook that asks the hub; False for one that cannot be read."""
    try:
        return any(map(_is_own_group, _read_groups(file)))
    except (UnchangeableHostFile, OSError):
        return False


def _list_groups_with_hook(file: Path) -> list[Any]:
    """Return the hooks that a file is to have for the event: those of others, and the hub's at the end.

    Raises UnchangeableHostFile, OSError.
    """
    others = [group for group in _read_groups(file) if not _is_own_group(group)]
    return [*others, _make_hook_group()]


def _make_hook_group() -> dict[str, Any]:
    """Return the hub's hook in a group, as the file has hooks."""
    return {"hooks": [dict(_HOOK)]}


def _read_groups(file: Path) -> list[Any]:
    """Return the groups of hooks that a file has for the event; empty without a file.

    Raises UnchangeableHostFile, OSError.
    """
    try:
        settings = parse_settings(file.read_bytes().decode("utf-8-sig"), file.suffix)
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise UnchangeableHostFile("it is not UTF-8") from None
    except UnreadableFile as error:
        raise UnchangeableHostFile(str(error)) from None
    hooks: object = settings.get(_SECTION, {})
    if not isinstance(hooks, dict):
        raise UnchangeableHostFile(f"`{_SECTION}` is no object")
    groups: object = cast("dict[str, Any]", hooks).get(_EVENT, [])
    if not isinstance(groups, list):
        raise UnchangeableHostFile(f"`{_SECTION}.{_EVENT}` is no list")
    return cast("list[Any]", groups)


def _is_own_group(group: object) -> bool:
    """Return whether all that a group of hooks does is to ask the hub."""
    hooks: object = cast("dict[str, Any]", group).get("hooks") if isinstance(group, dict) else None
    found = cast("list[object]", hooks) if isinstance(hooks, list) else []
    return bool(found) and all(
        isinstance(hook, dict)
        and (cast("dict[str, Any]", hook).get("server"), cast("dict[str, Any]", hook).get("tool")) == (NAME, PERMIT)
        for hook in found
    )
