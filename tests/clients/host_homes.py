"""A home with servers in the files of all hosts, of the forms that these publish."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "work"
"""The folder, below the home, that has files of its own."""

SECRET: Final = "ghp_0123456789abcdefABCDEFghij"

FILES: Final[Mapping[str, Any]] = {
    ".config/Claude/claude_desktop_config.json": {
        "globalShortcut": "Ctrl+Space",
        "mcpServers": {
            "files": {"command": "npx", "args": ["-y", "@mcp/files", "/srv/ada"]},
            "github": {"command": "docker", "args": ["run", "-i", "gh"], "env": {"GITHUB_TOKEN": SECRET}},
            "literal": {"command": "echo", "args": ["${HOME}"]},
        },
    },
    ".claude.json": {
        "numStartups": 7,
        "mcpServers": {
            "files": {"type": "stdio", "command": "npx", "args": ["-y", "@mcp/files", "/srv/ada"], "env": {}},
            "tickets": {"type": "http", "url": "https://t.example/mcp", "headers": {"X-Team": "${TEAM:-all}"}},
            "hubbub": {"type": "stdio", "command": "/usr/bin/hubbub", "args": ["mcp"]},
        },
        "projects": {"/srv/shop": {"mcpServers": {"shop": {"command": "shop", "args": ["${PORT}"]}}, "history": []}},
    },
    ".config/Code/User/mcp.json": """{
  // what VS Code writes, with comments and a comma too many
  "inputs": [
    {"type": "promptString", "id": "key", "description": "Search key", "password": true},
    {"type": "pickString", "id": "region", "description": "Region", "options": ["eu", "us"], "default": "eu"},
  ],
  "servers": {
    "search": {"type": "stdio", "command": "uvx", "args": ["search", "--region=${input:region}"],
               "env": {"SEARCH_WITH": "${input:key}"}},
    "open": {"type": "stdio", "command": "x", "args": ["${workspaceFolder}"]},
    "notes": {"type": "sse", "url": "https://n.example/events", "headers": {"Authorization": "Bearer ${input:key}"}},
  },
}""",
    ".config/Code/User/settings.json": '{"mcp": {"servers": {"old": {"command": "old", "args": ["${userHome}/x"]}}}}',
    ".cursor/mcp.json": {
        "mcpServers": {
            "files": {"command": "npx", "args": ["other"]},
            "linear": {"url": "https://l.example/sse", "headers": {"Authorization": "Bearer ${env:LINEAR}"}},
            "dotenv": {"command": "d", "envFile": "${userHome}/secrets.env", "env": {"A": "own"}},
        }
    },
    "secrets.env": 'A=from file\nB="two words"\n# C=1\nexport D=$A\n',
    ".codeium/windsurf/mcp_config.json": {
        "mcpServers": {
            "figma": {"serverUrl": "https://f.example/mcp", "disabledTools": ["delete*"]},
            "off": {"command": "off", "disabled": True},
        }
    },
    ".config/zed/settings.json": """// Zed settings
{
  "theme": "One Dark", // dark
  "context_servers": {
    "zed-new": {"source": "custom", "command": "zn", "args": ["a"], "env": {"PORT": 8080}},
    "zed-old": {"command": {"path": "zo", "args": ["b"], "env": null}, "settings": {}},
    "by-extension": {"source": "extension", "settings": {}},
  },
}""",
    ".codex/config.toml": """model = "o4"
[mcp_servers.docs]
command = "docs"
env_vars = ["DOCS_HOME"]
enabled_tools = ["find", "read*"]
[mcp_servers.remote]
url = "https://c.example/mcp"
bearer_token_env_var = "REMOTE_TOKEN"
http_headers = { X-Client = "codex" }
env_http_headers = { X-Org = "ORG" }
""",
    ".config/goose/config.yaml": """GOOSE_MODEL: x
extensions:
  developer: {type: builtin, enabled: true}
  memory:
    type: stdio
    enabled: true
    cmd: memory
    args: [--fast]
    envs: {LEVEL: "2"}
    env_keys: [MEMORY_KEY]
    timeout: 300
  far:
    type: streamable_http
    uri: https://g.example/mcp
    headers: {Authorization: "Bearer ${FAR_KEY}"}
    env_keys: [FAR_KEY]
    enabled: false
""",
    ".gemini/settings.json": """{
  // what Gemini CLI has
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "mcpServers": {
    "python": {"command": "python", "args": ["-m", "$GEMINI_MODULE"], "env": {"KEY": "${GEMINI_THING:-none}"},
               "cwd": "~/src/../python", "timeout": 15000, "trust": true,
               "includeTools": ["find"], "excludeTools": ["drop"]},
    "gemini-http": {"httpUrl": "https://gem.example/mcp", "headers": {"X-Price": "5$"}},
  },
}""",
    ".qwen/settings.json": {"mcpServers": {"qwen-old": {"url": "https://q.example/events"}}},
    ".config/opencode/opencode.jsonc": """{
  "$schema": "https://opencode.ai/config.json", // written by opencode
  "mcp": {
    "local": {"type": "local", "command": ["bun", "x", "thing"], "environment": {"A": "{env:OPEN_THING}"}},
    "behind": {"type": "remote", "url": "https://o.example/mcp", "headers": {"X-Key": "{file:~/key.txt}"}},
    "resting": {"type": "local", "command": ["rest"], "enabled": false},
    "hubbub-too": {"type": "local", "command": ["/usr/bin/hubbub", "mcp"]},
  },
}""",
    ".copilot/mcp-config.json": {
        "mcpServers": {
            "pilot": {"tools": ["*"], "type": "local", "command": "pilot", "args": ["a"], "timeout": 5000},
            "picked": {"tools": ["one"], "type": "http", "url": "https://p.example/mcp"},
        }
    },
    f"{FOLDER}/.mcp.json": {"mcpServers": {"here": {"command": "./server", "args": ["${ROOT:-.}"]}}},
    f"{FOLDER}/.vscode/mcp.json": {"servers": {"space": {"command": "s", "args": ["${workspaceFolder}/a"]}}},
}
"""The content of each file, below a home."""


def planted(home: Path) -> Path:
    """Make all of these files, and return the folder."""
    for name, content in FILES.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return home / FOLDER
