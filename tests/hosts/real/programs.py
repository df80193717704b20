"""The programs, as they are started without an account: what each needs in its home, its words and its variables."""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hubbub_local.hosts.permits import PROMPT_TOOL

from .dialects import MODEL

MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
RUST = f"{platform.machine()}-unknown-linux-musl"
KEY = "made-up"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program is run: its home, its folder of work and the URL of the model."""

    home: Path
    folder: Path
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An MCP host. `name` is that of `hubbub mcp install`; `file` is what is started, below `node_modules`."""

    name: str
    file: str
    words: Callable[[Place, str], Sequence[str]]
    """Its arguments, for a prompt."""
    env: Callable[[Place], Mapping[str, str]]
    settings: Callable[[Place], Mapping[str, Any]] = lambda _: {}
    """What it has in its file before the hub is added to it."""
    settings_file: str = ""
    script: bool = False
    """Whether node runs it."""
    install: Sequence[str] = ()
    """Further words of `hubbub mcp install`."""
    way: str = "tools"
    """How people come to be asked: by calls of servers' tools (then it is also the profile), or about its own."""
    over: Sequence[str] = ("http", "bridge")


def _codex_words(place: Place, prompt: str) -> Sequence[str]:
    provider = f'{{name="script", base_url="{place.model}/v1", wire_api="responses", env_key="SCRIPT_KEY"}}'
    settings = ["model_provider=script", f"model_providers.script={provider}", "check_for_update_on_startup=false"]
    # It goes on after a second without a server that is not there by then.
    settings += ["analytics.enabled=false", "feedback.enabled=false", "mcp_servers.hubbub.required=true"]
    given = [word for each in settings for word in ("-c", each)]
    return ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", MODEL, *given, prompt]


def _opencode_settings(place: Place) -> Mapping[str, Any]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Script",
        "options": {"baseURL": f"{place.model}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": MODEL, "tool_call": True}},
    }
    return {"autoupdate": False, "share": "disabled", "provider": {"script": provider}, "model": f"script/{MODEL}"}


def _gemini_settings(_place: Place) -> Mapping[str, Any]:
    return {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
    }


def _claude_env(place: Place) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": place.model,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
        # It goes on after some seconds without a server that is not there by then.
        "CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "20000",
    }


def _claude_words(*more: str) -> Callable[[Place, str], Sequence[str]]:
    return lambda _, prompt: ["-p", prompt, "--permission-mode", "default", "--model", MODEL, *more]


CLAUDE_CODE = Program(
    name="claude-code",
    file=f"@anthropic-ai/claude-code-linux-{MACHINE}/claude",
    words=_claude_words("--allowedTools", "mcp__hubbub"),
    env=_claude_env,
)

CODEX = Program(
    name="codex",
    file=f"@openai/codex-linux-{MACHINE}/vendor/{RUST}/bin/codex",
    words=_codex_words,
    env=lambda _: {"SCRIPT_KEY": KEY},
)

ASKED_FIRST = ("both", "host")
"""Profiles in which the person before a program is asked. There is none: what it answers by itself must not count.

Only over the bridge, which may approve: a token for HTTP may not.
"""

PROGRAMS = (
    CLAUDE_CODE,
    replace(CLAUDE_CODE, way="prompt tool", words=_claude_words("--permission-prompt-tool", PROMPT_TOOL)),
    replace(CLAUDE_CODE, way="hook", words=_claude_words(), install=("--permits",)),
    *(replace(CLAUDE_CODE, way=way, over=("bridge",)) for way in ASKED_FIRST),
    CODEX,
    *(replace(CODEX, way=way, over=("bridge",)) for way in ASKED_FIRST),
    Program(
        name="gemini-cli",
        file="@google/gemini-cli/bundle/gemini.js",
        words=lambda _, prompt: ["--yolo", "--skip-trust", "--model", "gemini-2.5-flash", "--prompt", prompt],
        env=lambda place: {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": place.model},
        settings=_gemini_settings,
        settings_file=".gemini/settings.json",
        script=True,
    ),
    Program(
        name="opencode",
        file=f"opencode-linux-{MACHINE}/bin/opencode",
        words=lambda _, prompt: ["run", "--model", f"script/{MODEL}", prompt],
        env=lambda _: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        },
        settings=_opencode_settings,
        settings_file=".config/opencode/opencode.json",
    ),
)


def prepare(program: Program, place: Place) -> None:
    """Write what the program has in its home before the hub is added."""
    if program.settings_file:
        file = place.home / program.settings_file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(program.settings(place)))
