"""Claude Code's permission prompts: the hook that `hubbub mcp install claude-code --permits` writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from hubbub_bridge.trial import Trial
from hubbub_cli.host_entry import check
from hubbub_local.hosts import permits
from hubbub_local.hosts.files import UnchangeableHostFile
from hubbub_local.platform_dirs import Machine

from .host_files_of import home, opens

__all__ = ["home"]

HOOK = {
    "type": "mcp_tool",
    "server": "hubbub",
    "tool": "hubbub_permit",
    "input": {
        "tool_name": "${tool_name}",
        "input": "${tool_input}",
        "cwd": "${cwd}",
        "suggestions": "${permission_suggestions}",
        "form": "hook",
    },
    "timeout": 86400,
}
MINE = {"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}


def machine(folder: Path, **environ: str) -> Machine:
    """A machine with this home."""
    return Machine(platform="linux", home=folder, environ=environ)


def test_the_file_is_where_claude_code_keeps_hooks(tmp_path: Path) -> None:
    assert permits.find_settings_file(machine(tmp_path)) == tmp_path / ".claude/settings.json"
    elsewhere = permits.find_settings_file(machine(tmp_path, CLAUDE_CONFIG_DIR="/c"))
    assert elsewhere == Path("/c/settings.json")


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    file = tmp_path / ".claude/settings.json"
    assert permits.install_hook(file) == (True, None)
    assert json.loads(file.read_text()) == {"hooks": {"PermissionRequest": [{"hooks": [HOOK]}]}}
    assert permits.install_hook(file) == (False, None)
    assert permits.has_hook(file)


def test_what_else_the_file_says_stays_and_an_earlier_hook_of_the_hub_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    old = {"hooks": [{**HOOK, "timeout": 1}]}
    before = {"model": "x", "hooks": {"Stop": [MINE], "PermissionRequest": [MINE, old]}, "env": {"A": "b"}}
    file.write_text(json.dumps(before))
    changed, backup = permits.install_hook(file)
    assert changed
    assert backup is not None
    assert json.loads(backup.read_text()) == before
    after = {**before, "hooks": {"Stop": [MINE], "PermissionRequest": [MINE, {"hooks": [HOOK]}]}}
    assert json.loads(file.read_text()) == after


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"hooks": []}', b'{"hooks": {"PermissionRequest": {}}}', b"\xff"])
def test_a_file_that_cannot_be_changed_is_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(content)
    with pytest.raises(UnchangeableHostFile):
        permits.install_hook(file)
    assert file.read_bytes() == content
    assert not permits.has_hook(file)


async def test_the_command_writes_the_entry_and_the_hook_and_names_the_prompt_tool(
    hub: Any, hubbub: Any, home: Path
) -> None:
    hub.streams["Serve"] = opens
    ran = await hubbub("mcp", "install", "claude-code", "--permits")
    assert ran.status == 0, ran.err
    (done,) = ran.lines
    file = home / ".claude/settings.json"
    assert (done["hook_file"], done["hook_changed"]) == (str(file), True)
    assert done["prompt_tool"] == "mcp__hubbub__hubbub_permit"
    assert permits.has_hook(file)
    assert "hubbub" in json.loads((home / ".claude.json").read_text())["mcpServers"]


async def test_nothing_is_written_where_the_hook_cannot_be(hub: Any, hubbub: Any, home: Path) -> None:
    hub.streams["Serve"] = opens
    file = home / ".claude/settings.json"
    file.parent.mkdir()
    file.write_text("{")
    ran = await hubbub("mcp", "install", "claude-code", "--permits")
    assert ran.status == 1
    assert str(file) in ran.error["message"]
    assert not (home / ".claude.json").exists()


async def test_print_shows_the_hook_and_changes_nothing(hub: Any, hubbub: Any, home: Path) -> None:
    ran = await hubbub("mcp", "install", "claude-code", "--permits", "--print")
    (shown,) = ran.lines
    assert json.loads(shown["hook"]) == {"hooks": {"PermissionRequest": [{"hooks": [HOOK]}]}}
    assert not (home / ".claude").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("cursor", "--permits"), "only claude-code"),
        (("claude-code", "--permits", "--server", "one"), "name a profile"),
    ],
)
async def test_only_claude_code_with_a_profile_can_ask_so(
    words: tuple[str, ...], problem: str, hub: Any, hubbub: Any, home: Path
) -> None:
    ran = await hubbub("mcp", "install", *words)
    assert ran.status == 2
    assert problem in ran.error["message"]


@pytest.mark.parametrize(
    ("offered", "asked", "said"),
    [
        (True, True, "permits: hubbub_permit; Claude Code asks there"),
        (True, False, "permits: hubbub_permit; Claude Code does not ask there"),
        (False, True, "which is not there: set `people = true` for the profile"),
        (False, False, ""),
    ],
)
def test_check_says_whether_claude_code_can_and_does_ask(
    offered: bool, asked: bool, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = machine(tmp_path)
    if asked:
        permits.install_hook(permits.find_settings_file(at))
    check.print_permits(Trial("2025-11-25", permits=offered), at)
    out = capsys.readouterr().out
    assert (said in out) if said else not out
