"""The shape that each MCP host documents for one server of its settings, strict: what it does not know is wrong.

Claude Code: docs, "Connect Claude Code to tools via MCP". Claude Desktop, Cursor: their pages on MCP. VS Code: docs,
"MCP configuration reference". Codex: `config.schema.json`, RawMcpServerConfig. Goose: `ExtensionConfig` of its sources,
which drops an entry that lacks a required member. Gemini CLI, Qwen Code: docs, "MCP servers". opencode: its
`config.json` schema, McpLocalConfig and McpRemoteConfig; it refuses its whole file for an entry of another form.
Copilot CLI: what `copilot mcp add` writes. Windsurf, Zed: their pages on MCP.
"""

from collections.abc import Mapping
from typing import Any, Final

TEXT: Final = {"type": "string"}
TEXTS: Final = {"type": "array", "items": TEXT}
TEXT_BY_NAME: Final = {"type": "object", "additionalProperties": TEXT}
NUMBER: Final = {"type": "number"}
FLAG: Final = {"type": "boolean"}

Shape = dict[str, Any]


def _shape(required: Mapping[str, Shape], optional: Mapping[str, Shape]) -> Shape:
    properties = {**required, **optional}
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def _of_type(name: str) -> Shape:
    return {"const": name}


_STARTED: Final = {"args": TEXTS, "env": TEXT_BY_NAME}
_GEMINI: Final = {"timeout": NUMBER, "trust": FLAG, "includeTools": TEXTS, "excludeTools": TEXTS, "description": TEXT}
_GEMINI_STARTED: Final = {**_GEMINI, **_STARTED, "cwd": TEXT}
_GEMINI_REACHED: Final = {**_GEMINI, "headers": TEXT_BY_NAME}
_CODEX: Final = {
    **dict.fromkeys(("startup_timeout_sec", "tool_timeout_sec"), NUMBER),
    **dict.fromkeys(("enabled", "required", "supports_parallel_tool_calls"), FLAG),
    **dict.fromkeys(("enabled_tools", "disabled_tools", "scopes"), TEXTS),
}
_GOOSE: Final = {
    **dict.fromkeys(("env_keys", "available_tools"), TEXTS),
    "enabled": FLAG,
    "bundled": FLAG,
    "envs": TEXT_BY_NAME,
    "timeout": {"type": "integer", "minimum": 0},
}
_GOOSE_NAMED: Final = {"name": TEXT, "description": TEXT, "enabled": FLAG}

SHAPES: Final[Mapping[str, Shape]] = {
    "claude-code": {
        "oneOf": [
            _shape({"type": _of_type("stdio"), "command": TEXT}, _STARTED),
            _shape({"type": _of_type("http"), "url": TEXT}, {"headers": TEXT_BY_NAME}),
        ]
    },
    "claude-desktop": _shape({"command": TEXT}, _STARTED),
    "vscode": {
        "oneOf": [
            _shape({"type": _of_type("stdio"), "command": TEXT}, {**_STARTED, "envFile": TEXT, "cwd": TEXT}),
            _shape({"type": _of_type("http"), "url": TEXT}, {"headers": TEXT_BY_NAME}),
        ]
    },
    "cursor": {
        "oneOf": [
            _shape({"command": TEXT}, {**_STARTED, "type": _of_type("stdio"), "envFile": TEXT}),
            _shape({"url": TEXT}, {"headers": TEXT_BY_NAME}),
        ]
    },
    "codex": {
        "oneOf": [
            _shape({"command": TEXT}, {**_CODEX, **_STARTED, "cwd": TEXT, "env_vars": TEXTS}),
            _shape(
                {"url": TEXT},
                {
                    **_CODEX,
                    "bearer_token_env_var": TEXT,
                    "http_headers": TEXT_BY_NAME,
                    "env_http_headers": TEXT_BY_NAME,
                },
            ),
        ]
    },
    "gemini-cli": {"oneOf": [_shape({"command": TEXT}, _GEMINI_STARTED), _shape({"httpUrl": TEXT}, _GEMINI_REACHED)]},
    "qwen-code": {"oneOf": [_shape({"command": TEXT}, _GEMINI_STARTED), _shape({"httpUrl": TEXT}, _GEMINI_REACHED)]},
    "opencode": {
        "oneOf": [
            _shape(
                {"type": _of_type("local"), "command": {**TEXTS, "minItems": 1}},
                {"environment": TEXT_BY_NAME, "enabled": FLAG, "timeout": NUMBER, "cwd": TEXT},
            ),
            _shape(
                {"type": _of_type("remote"), "url": TEXT},
                {"headers": TEXT_BY_NAME, "enabled": FLAG, "timeout": NUMBER, "oauth": {"const": False}},
            ),
        ]
    },
    "copilot-cli": {
        "oneOf": [
            _shape({"type": _of_type("local"), "command": TEXT, "tools": TEXTS}, {**_STARTED, "timeout": NUMBER}),
            _shape(
                {"type": _of_type("http"), "url": TEXT, "tools": TEXTS}, {"headers": TEXT_BY_NAME, "timeout": NUMBER}
            ),
        ]
    },
    "windsurf": {
        "oneOf": [
            _shape({"command": TEXT}, {**_STARTED, "disabled": FLAG, "disabledTools": TEXTS}),
            _shape({"serverUrl": TEXT}, {"headers": TEXT_BY_NAME, "disabled": FLAG, "disabledTools": TEXTS}),
        ]
    },
    "zed": {"oneOf": [_shape({"command": TEXT}, _STARTED), _shape({"url": TEXT}, {"headers": TEXT_BY_NAME})]},
    "goose": {
        "oneOf": [
            _shape({**_GOOSE_NAMED, "type": _of_type("stdio"), "cmd": TEXT, "args": TEXTS}, _GOOSE),
            _shape(
                {**_GOOSE_NAMED, "type": _of_type("streamable_http"), "uri": TEXT}, {**_GOOSE, "headers": TEXT_BY_NAME}
            ),
        ]
    },
}
