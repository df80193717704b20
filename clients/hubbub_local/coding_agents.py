"""Coding agents that speak ACP: how each is started, installed and logged in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

ANY: Final = "acp"
"""The name that stands for an agent with a command line of the person's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingAgent:
    """One agent: `command` starts it as a speaker of ACP; `install` and `log_in` say in words what comes before.

    `env` and `mode` are what it takes to have it ask before it runs a command or changes a file.
    """

    title: str
    command: tuple[str, ...]
    install: str
    log_in: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    mode: str = ""


AGENTS: Final[Mapping[str, CodingAgent]] = MappingProxyType(
    {
        "opencode": CodingAgent(
            title="opencode",
            command=("opencode", "acp"),
            install="npm install -g opencode-ai",
            log_in="opencode auth login",
            env={"OPENCODE_PERMISSION": '{"edit":"ask","bash":"ask","webfetch":"ask"}'},
        ),
        "gemini": CodingAgent(
            title="Gemini CLI",
            command=("gemini", "--acp"),
            install="npm install -g @google/gemini-cli",
            log_in="start gemini once and choose how, or set GEMINI_API_KEY",
            mode="default",
        ),
        "qwen": CodingAgent(
            title="Qwen Code",
            command=("qwen", "--acp", "--approval-mode", "default"),
            install="npm install -g @qwen-code/qwen-code",
            log_in="start qwen once and type /auth, or set OPENAI_API_KEY",
            mode="default",
        ),
        "claude": CodingAgent(
            title="Claude Code",
            command=("claude-agent-acp",),
            install="npm install -g @agentclientprotocol/claude-agent-acp",
            log_in="claude /login, or set ANTHROPIC_API_KEY",
            mode="default",
        ),
        "codex": CodingAgent(
            title="Codex",
            command=("codex-acp",),
            install="npm install -g @agentclientprotocol/codex-acp",
            log_in="codex login, or set OPENAI_API_KEY",
            mode="read-only",
        ),
        "goose": CodingAgent(
            title="Goose",
            command=("goose", "acp"),
            install="see https://block.github.io/goose",
            log_in="goose configure",
        ),
        "copilot": CodingAgent(
            title="Copilot CLI",
            command=("copilot", "--acp"),
            install="npm install -g @github/copilot",
            log_in="copilot login",
        ),
    }
)
