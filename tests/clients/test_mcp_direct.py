"""Servers of the hub that a host has directly as well: named, and switched off in the host's own way if wanted."""

import json
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from .host_files_of import home

__all__ = ["home"]

FILES: dict[str, Any] = {"command": "npx", "args": ["files"]}
"""A server that the hub has as well."""

OWN: dict[str, Any] = {"command": "own"}
HUB: dict[str, Any] = {"command": "/old/hubbub", "args": ["mcp"]}
DIRECT = {"files": FILES, "own": OWN, "hubbub": HUB}


def has_directly(home: Path, name: str, text: str) -> Path:
    """A host with a server that the hub has as well; its file."""
    config = home / ".config/hubbub/hubbub.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[servers.files]\ncommand = "npx"\nargs = ["files"]\n')
    file = home / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(text)
    return file


async def test_servers_that_a_host_has_directly_as_well_are_named_and_stay(hub: Any, hubbub: Any, home: Path) -> None:
    file = has_directly(home, ".cursor/mcp.json", json.dumps({"mcpServers": DIRECT}))
    ran = await hubbub("mcp", "install", "cursor")
    assert ran.lines[0]["direct"] == ["files"]
    assert ran.lines[0]["taken_out"] == ran.lines[0]["switched_off"] == []
    assert json.loads(file.read_text())["mcpServers"].keys() == {"files", "own", "hubbub"}


async def test_they_are_taken_out_of_a_host_without_a_switch_and_the_way_back_is_printed(
    hub: Any, hubbub: Any, home: Path
) -> None:
    file = has_directly(home, ".cursor/mcp.json", json.dumps({"mcpServers": DIRECT}))
    ran = await hubbub("mcp", "install", "cursor", "--replace", json=False)
    assert "taken out, since the hub has them: files" in ran.err
    assert json.loads(file.read_text())["mcpServers"].keys() == {"own", "hubbub"}
    (back,) = (line.partition("hub: ")[2] for line in ran.err.splitlines() if line.startswith("to go back"))
    subprocess.run(shlex.split(back), check=True)
    assert json.loads(file.read_text())["mcpServers"] == DIRECT


CODEX = """\
# mine
[mcp_servers.files]  # of the project
command = "npx"
args = ["files"]
enabled = true

[mcp_servers.own]
command = "own"
"""
GOOSE = """\
extensions:
  files:  # mine
    type: stdio
    enabled: true
    cmd: npx
    args: [files]
  own:
    type: stdio
    cmd: own
"""
PLAIN = json.dumps({"mcpServers": DIRECT})
OPENCODE = json.dumps({"mcp": {"files": {"type": "local", "command": ["npx", "files"], "enabled": True}}})
WINDSURF = json.dumps({"mcpServers": {"files": FILES}})
EXCLUDED = json.dumps({"mcp": {"excluded": ["x"]}, "mcpServers": DIRECT})
READ: dict[str, Any] = {".json": json.loads, ".toml": tomllib.loads, ".yaml": yaml.safe_load}
SWITCHES = {
    "codex": (".codex/config.toml", CODEX, ("mcp_servers", "files", "enabled"), False),
    "goose": (".config/goose/config.yaml", GOOSE, ("extensions", "files", "enabled"), False),
    "opencode": (".config/opencode/opencode.json", OPENCODE, ("mcp", "files", "enabled"), False),
    "windsurf": (".codeium/windsurf/mcp_config.json", WINDSURF, ("mcpServers", "files", "disabled"), True),
    "zed": (
        ".config/zed/settings.json",
        json.dumps({"context_servers": DIRECT}),
        ("context_servers", "files", "enabled"),
        False,
    ),
    "gemini-cli": (".gemini/settings.json", EXCLUDED, ("mcp", "excluded"), ["x", "files"]),
    "qwen-code": (".qwen/settings.json", PLAIN, ("mcp", "excluded"), ["files"]),
}


def member(root: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        root = root[name]
    return root


@pytest.mark.parametrize("host", SWITCHES)
async def test_they_stay_switched_off_where_a_host_has_a_switch_of_its_own(
    host: str, hub: Any, hubbub: Any, home: Path
) -> None:
    name, text, path, off = SWITCHES[host]
    file = has_directly(home, name, text)
    ran = await hubbub("mcp", "install", host, "--replace")
    assert (ran.lines[0]["switched_off"], ran.lines[0]["taken_out"]) == (["files"], []), ran.err
    after, before = READ[file.suffix](file.read_text()), READ[file.suffix](text)
    assert member(after, path) == off
    section = path[0] if path[0] != "mcp" or host == "opencode" else "mcpServers"
    assert after[section].pop("hubbub") is not None
    assert after[section].keys() == before[section].keys() - {"hubbub"}
    assert ("# mine" in text) == ("# mine" in file.read_text())
    again = await hubbub("mcp", "install", host)  # what is switched off is not there twice
    assert again.lines[0]["direct"] == []
    assert again.lines[0]["changed"] is False


async def test_claude_code_has_servers_for_one_folder_which_are_switched_off_there(
    hub: Any, hubbub: Any, home: Path
) -> None:
    projects: dict[str, Any] = {"/p/a": {"mcpServers": {"files": {"type": "stdio", **FILES}}, "allowedTools": []}}
    text = json.dumps({"projects": projects, "mcpServers": {"files": FILES}})
    file = has_directly(home, ".claude.json", text)
    ran = await hubbub("mcp", "install", "claude-code", "--replace")
    assert ran.lines[0]["direct"] == ["files", "files in /p/a"]
    assert (ran.lines[0]["taken_out"], ran.lines[0]["switched_off"]) == (["files"], ["files in /p/a"])
    after = json.loads(file.read_text())
    assert after["projects"] == {"/p/a": {**projects["/p/a"], "disabledMcpServers": ["files"]}}
    assert [*after["mcpServers"]] == ["hubbub"]
    assert json.loads(Path(ran.lines[0]["backup"]).read_text()) == json.loads(text)


async def test_copilot_keeps_its_switch_in_another_file_of_which_a_copy_stays_too(
    hub: Any, hubbub: Any, home: Path
) -> None:
    has_directly(home, ".copilot/mcp-config.json", PLAIN)
    settings = home / ".copilot/settings.json"
    settings.write_text('{"beep": true}')
    ran = await hubbub("mcp", "install", "copilot-cli", "--replace")
    assert ran.lines[0]["switched_off"] == ["files"]
    assert json.loads(settings.read_text()) == {"beep": True, "disabledMcpServers": ["files"]}
    assert Path(ran.lines[0]["other_backups"][str(settings)]).read_text() == '{"beep": true}'


async def test_the_way_back_leaves_files_alone_that_were_not_changed(hub: Any, hubbub: Any, home: Path) -> None:
    file = has_directly(home, ".copilot/mcp-config.json", PLAIN)
    await hubbub("mcp", "install", "copilot-cli")
    ran = await hubbub("mcp", "install", "copilot-cli", "--replace", json=False)
    back = [line.partition("hub: ")[2] for line in ran.err.splitlines() if line.startswith("to go back")]
    assert back == [f"rm {home / '.copilot/settings.json'}"]
    assert "files" in json.loads(file.read_text())["mcpServers"]


async def test_the_command_that_switches_them_off_has_all_that_was_asked_for(hub: Any, hubbub: Any, home: Path) -> None:
    has_directly(home, ".claude.json", PLAIN)
    words = ("--login", "--url", "https://hub.example/mcp", "--permits")
    ran = await hubbub("mcp", "install", "claude-code", *words, json=False)
    assert f"mcp install claude-code {' '.join(words)} --replace`" in ran.err


async def test_a_switch_that_cannot_be_set_leaves_every_file_as_it_is(hub: Any, hubbub: Any, home: Path) -> None:
    text = '[mcp_servers]\nfiles = {command = "npx", args = ["files"]}\n'
    file = has_directly(home, ".codex/config.toml", text)
    ran = await hubbub("mcp", "install", "codex", "--replace")
    assert ran.status == 1
    assert "cannot be changed here" in ran.error["message"]
    assert file.read_text() == text
