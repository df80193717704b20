"""MCP hosts: where each keeps its servers, and which entry it needs for the hub."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from hubbub_local.platform_dirs import Machine

NAME: Final = "hubbub"
"""The hub's name at each host, which puts it before the names of tools."""

DESCRIPTION: Final = "All MCP servers of the hub"
"""What the hub is, for hosts that want to know; Goose leaves out an endpoint that does not say."""

TOOL_TIMEOUT_S: Final = 300
"""Seconds for a call, where a host lets one say so: people take longer than its default."""

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeCommand:
    """The bridge as a host starts it."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def plain(self) -> Entry:
        """The entry of the bridge in the form that most hosts have."""
        env = {"env": dict(self.env)} if self.env else {}
        return {"command": self.command, "args": list(self.args), **env}


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """The hub's endpoint over HTTP, with the token for it; None for a host that logs in."""

    url: str
    token: str | None

    def make_headers(self, name: str = "headers") -> Entry:
        """Return the member `name` of an entry, with the headers that the host is to send; empty without a token."""
        return {name: {"Authorization": f"Bearer {self.token}"}} if self.token is not None else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProgram:
    """One host. `file` is JSON, TOML or YAML by its ending; servers are in its member `section`, by name.

    `files` are all files that the host reads for the person, if there are several.

    `stdio` and `http` make the hub's entry for the file; `http` is None where a host takes no URL there. `link` makes
    an entry a link that installs it.
    """

    name: str
    title: str
    file: Callable[[Machine], Path]
    section: str = "mcpServers"
    stdio: Callable[[BridgeCommand], Entry] = lambda bridge: bridge.plain
    http: Callable[[Url], Entry] | None = lambda url: {"url": url.url, **url.make_headers()}
    link: Callable[[Entry], str] | None = None
    files: Callable[[Machine], list[Path]] | None = None
    afterwards: str = "Restart it."
    log_in: str = ""
    """How a person has the host log in at the hub, once the entry is there."""

    flag_off: Entry | None = None
    """What an entry has that is switched off, where a host has that."""

    list_off: Callable[[Machine], "OffList"] | None = None
    """The names of servers that are switched off, where a host keeps them as a list."""

    listing: "Listing | None" = None
    """Its own command that lists its servers, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffList:
    """A list of names in a file of a host: its servers of these names are switched off."""

    file: Path
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A host's command that lists its servers. `connects` says whether it connects to each and says how that went."""

    command: tuple[str, ...]
    connects: bool = True


def _find_claude_code_file(machine: Machine) -> Path:
    """Return Claude Code's file of settings that has its servers."""
    return Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"


def _find_codex_file(machine: Machine) -> Path:
    """Return Codex's file of settings."""
    return Path(machine.environ.get("CODEX_HOME") or machine.home / ".codex") / "config.toml"


def _find_gemini_file(machine: Machine) -> Path:
    """Return Gemini CLI's file of settings."""
    return machine.home / ".gemini" / "settings.json"


def _find_qwen_file(machine: Machine) -> Path:
    """Return Qwen Code's file of settings."""
    return machine.home / ".qwen" / "settings.json"


def _find_goose_file(machine: Machine) -> Path:
    """Return Goose's file of settings."""
    if machine.platform == "win32":
        return machine.application_dir("Block") / "goose" / "config" / "config.yaml"
    base = Path(machine.environ.get("XDG_CONFIG_HOME") or machine.home / ".config")
    return base / "goose" / "config.yaml"


def _find_opencode_files(machine: Machine) -> list[Path]:
    """Return the files of opencode, which reads all of them; the last one that has a setting counts."""
    base = Path(machine.environ.get("XDG_CONFIG_HOME") or machine.home / ".config") / "opencode"
    return [base / name for name in ("config.json", "opencode.json", "opencode.jsonc")]


def _find_opencode_file(machine: Machine) -> Path:
    """Return the file to change: `opencode.jsonc` if it is there, else `opencode.json`."""
    *_, plain, commented = _find_opencode_files(machine)
    return commented if commented.exists() else plain


def _find_copilot_file(machine: Machine) -> Path:
    """Return Copilot CLI's file of servers."""
    return Path(machine.environ.get("COPILOT_HOME") or machine.home / ".copilot") / "mcp-config.json"


def _find_zed_file(machine: Machine) -> Path:
    """Return Zed's file of settings. A relative XDG_CONFIG_HOME does not count."""
    if machine.platform == "win32":
        return machine.application_dir("Zed") / "settings.json"
    config = machine.environ.get("XDG_CONFIG_HOME", "") if machine.platform != "darwin" else ""
    return (Path(config) if config.startswith("/") else machine.home / ".config") / "zed" / "settings.json"


def _make_opencode_stdio_entry(bridge: BridgeCommand) -> Entry:
    """Return the hub's entry for opencode, which starts the bridge."""
    env = {"environment": dict(bridge.env)} if bridge.env else {}
    return {"type": "local", "command": [bridge.command, *bridge.args], **env, "enabled": True}


def _make_opencode_http_entry(url: Url) -> Entry:
    """Return the hub's entry for opencode, with the hub's URL."""
    # With a token, opencode is not to look for a log-in.
    own = {**url.make_headers(), "oauth": False} if url.token is not None else {}
    return {"type": "remote", "url": url.url, **own, "enabled": True}


def _make_goose_stdio_entry(bridge: BridgeCommand) -> Entry:
    """Return the hub's entry for Goose, which starts the bridge."""
    return {
        "name": NAME,
        "description": DESCRIPTION,
        "type": "stdio",
        "enabled": True,
        "cmd": bridge.command,
        "args": list(bridge.args),
        "envs": dict(bridge.env),
        "timeout": TOOL_TIMEOUT_S,
    }


def _make_goose_http_entry(url: Url) -> Entry:
    """Return the hub's entry for Goose, with the hub's URL."""
    return {
        "name": NAME,
        "description": DESCRIPTION,
        "type": "streamable_http",
        "enabled": True,
        "uri": url.url,
        **url.make_headers(),
        "timeout": TOOL_TIMEOUT_S,
    }


def _make_vscode_link(entry: Entry) -> str:
    """Return a link that has VS Code install an entry of the hub."""
    return f"vscode:mcp/install?{quote(json.dumps({'name': NAME, **entry}))}"


def _make_cursor_link(entry: Entry) -> str:
    """Return a link that has Cursor install an entry of the hub."""
    config = base64.b64encode(json.dumps(entry).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={NAME}&config={quote(config)}"


HOSTS: Final[Mapping[str, HostProgram]] = {
    host.name: host
    for host in (
        HostProgram(
            name="claude-code",
            title="Claude Code",
            file=_find_claude_code_file,
            stdio=lambda bridge: {"type": "stdio", **bridge.plain},
            http=lambda url: {"type": "http", "url": url.url, **url.make_headers()},
            afterwards="Start a new session; `/mcp` shows it there.",
            log_in="`claude mcp login hubbub`, or `/mcp` in a session",
            listing=Listing(command=("claude", "mcp", "list")),
        ),
        HostProgram(
            name="claude-desktop",
            title="Claude Desktop",
            file=lambda machine: machine.application_dir("Claude") / "claude_desktop_config.json",
            http=None,
        ),
        HostProgram(
            name="vscode",
            title="VS Code",
            file=lambda machine: machine.application_dir("Code") / "User" / "mcp.json",
            section="servers",
            stdio=lambda bridge: {"type": "stdio", **bridge.plain},
            http=lambda url: {"type": "http", "url": url.url, **url.make_headers()},
            link=_make_vscode_link,
            afterwards="Start it there with `MCP: List Servers`.",
            log_in="start it with `MCP: List Servers`",
        ),
        HostProgram(
            name="cursor",
            title="Cursor",
            file=lambda machine: machine.home / ".cursor" / "mcp.json",
            link=_make_cursor_link,
            log_in="its settings, under MCP",
        ),
        HostProgram(
            name="codex",
            title="Codex",
            file=_find_codex_file,
            section="mcp_servers",
            stdio=lambda bridge: {**bridge.plain, "tool_timeout_sec": TOOL_TIMEOUT_S},
            http=lambda url: {"url": url.url, **url.make_headers("http_headers"), "tool_timeout_sec": TOOL_TIMEOUT_S},
            log_in="`codex mcp login hubbub`",
            flag_off={"enabled": False},
            listing=Listing(command=("codex", "mcp", "list"), connects=False),
        ),
        HostProgram(
            name="goose",
            title="Goose",
            file=_find_goose_file,
            section="extensions",
            stdio=_make_goose_stdio_entry,
            http=_make_goose_http_entry,
            log_in="start a session",
            flag_off={"enabled": False},
        ),
        HostProgram(
            name="gemini-cli",
            title="Gemini CLI",
            file=_find_gemini_file,
            http=lambda url: {"httpUrl": url.url, **url.make_headers()},
            log_in="`/mcp auth hubbub` in a session",
            list_off=lambda machine: OffList(file=_find_gemini_file(machine), path=("mcp", "excluded")),
            listing=Listing(command=("gemini", "mcp", "list")),
        ),
        HostProgram(
            name="qwen-code",
            title="Qwen Code",
            file=_find_qwen_file,
            http=lambda url: {"httpUrl": url.url, **url.make_headers()},
            log_in="`/mcp` in a session, then *Authenticate*",
            list_off=lambda machine: OffList(file=_find_qwen_file(machine), path=("mcp", "excluded")),
            listing=Listing(command=("qwen", "mcp", "list")),
        ),
        HostProgram(
            name="opencode",
            title="opencode",
            file=_find_opencode_file,
            files=_find_opencode_files,
            section="mcp",
            stdio=_make_opencode_stdio_entry,
            http=_make_opencode_http_entry,
            log_in="`opencode mcp auth hubbub`",
            flag_off={"enabled": False},
            listing=Listing(command=("opencode", "mcp", "list")),
        ),
        HostProgram(
            name="copilot-cli",
            title="Copilot CLI",
            file=_find_copilot_file,
            stdio=lambda bridge: {"type": "local", **bridge.plain, "tools": ["*"]},
            http=lambda url: {"type": "http", "url": url.url, **url.make_headers(), "tools": ["*"]},
            log_in="start it: it opens the browser",
            list_off=lambda machine: OffList(
                file=_find_copilot_file(machine).with_name("settings.json"), path=("disabledMcpServers",)
            ),
            listing=Listing(command=("copilot", "mcp", "list"), connects=False),
        ),
        HostProgram(
            name="windsurf",
            title="Windsurf",
            file=lambda machine: machine.home / ".codeium" / "windsurf" / "mcp_config.json",
            http=lambda url: {"serverUrl": url.url, **url.make_headers()},
            log_in="its settings, under MCP",
            flag_off={"disabled": True},
        ),
        HostProgram(
            name="zed",
            title="Zed",
            file=_find_zed_file,
            section="context_servers",
            afterwards="The settings of its agent show it.",
            log_in="the settings of its agent",
            flag_off={"enabled": False},
        ),
    )
}
"""docs/hosts/each.md has a row for each."""
