"""The programs, as they are started without an account: what each needs in its home, its words and its variables."""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import anyio

from hubbub_local.hosts.permits import PROMPT_TOOL

from ...e2e.conftest import BIN
from .clients import inspecting, proxied
from .dialects import MODEL
from .dialogs import Dialog
from .places import Place
from .puppets import Puppet

MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
RUST = f"{platform.machine()}-unknown-linux-musl"
KEY = "made-up"
MODALITIES = {"input": ["text", "image"], "output": ["text"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An MCP host. `file` is what is started, and `package` has its version; both are below the folder of `peers`.

    `package` is a package.json, or the METADATA of a distribution of Python; a pattern, as names have versions.
    """

    name: str
    """Also for `hubbub mcp install`, if that is how it gets the hub."""
    title: str
    file: str
    package: str
    words: Callable[[Place, str], Sequence[str]] = lambda _, prompt: [prompt]
    """Its arguments, for a prompt."""
    env: Callable[[Place], Mapping[str, str]] = lambda _: {}
    client: Callable[[Place, Path], AbstractAsyncContextManager[Puppet]] | None = None
    """Opens it, for one without a model."""
    settings: Callable[[Place], Mapping[str, Any]] = lambda _: {}
    """What it has in its file before the hub is added to it."""
    settings_file: str = ""
    runner: str = ""
    """What runs `file`, below the folder of `peers`; without it, `file` runs by itself."""
    peers: str = "agents"
    """Its folder among what is installed for the tests."""
    is_installed: bool = True
    """Whether `hubbub mcp install` adds the hub to its settings; else its words say where the hub is."""
    dialog: Dialog | None = None
    """How it is started at a terminal, if it can show a form there."""
    lists: Sequence[str] = ("mcp", "list")
    """Its own command that lists servers, if it has one."""
    install: Sequence[str] = ()
    """Further words of `hubbub mcp install`."""
    way: str = "tools"
    """How people come to be asked: by calls of servers' tools (then it is also the profile), or about its own."""
    over: Sequence[str] = ("http", "bridge")


def _codex_words(place: Place, prompt: str) -> Sequence[str]:
    provider = f'{{name="script", base_url="{place.model}/v1", wire_api="responses", env_key="SCRIPT_KEY"}}'
    settings = ["model_provider=script", f"model_providers.script={provider}", "check_for_update_on_startup=false"]
    settings += ["analytics.enabled=false", "feedback.enabled=false"]
    # It goes on after a second without a server that is not there by then.
    settings += ["mcp_servers.hubbub.required=true"] if place.is_required else []
    given = [word for each in settings for word in ("-c", each)]
    return ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", MODEL, *given, prompt]


def _opencode_settings(place: Place) -> Mapping[str, Any]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Script",
        "options": {"baseURL": f"{place.model}/v1", "apiKey": KEY},
        # Without them it takes the model for one that reads no images.
        "models": {MODEL: {"name": MODEL, "tool_call": True, "attachment": True, "modalities": MODALITIES}},
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


def _qwen_settings(_place: Place) -> Mapping[str, Any]:
    return {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        # Its model would have to search for each tool.
        "tools": {"toolSearch": {"enabled": False}},
    }


def _claude_settings(place: Place) -> Mapping[str, Any]:
    """What it asks at its first start at a terminal."""
    return {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {str(place.folder): {"hasTrustDialogAccepted": True}},
    }


PROMPT = "Call the tools."
_CLAUDE_DIALOG = [
    "--permission-mode",
    "default",
    "--model",
    MODEL,
    "--allowedTools",
    "mcp__hubbub",
    "Read",
    "--",
    PROMPT,
]

CLAUDE_CODE = Program(
    name="claude-code",
    title="Claude Code",
    file=f"node_modules/@anthropic-ai/claude-code-linux-{MACHINE}/claude",
    package="node_modules/@anthropic-ai/claude-code/package.json",
    words=_claude_words("--allowedTools", "mcp__hubbub"),
    env=_claude_env,
    settings=_claude_settings,
    settings_file=".claude.json",
    dialog=Dialog(_CLAUDE_DIALOG, idle_tool="Read"),
)

CODEX = Program(
    name="codex",
    title="Codex",
    file=f"node_modules/@openai/codex-linux-{MACHINE}/vendor/{RUST}/bin/codex",
    package="node_modules/@openai/codex/package.json",
    words=_codex_words,
    env=lambda _: {"SCRIPT_KEY": KEY},
)

GEMINI_CLI = Program(
    name="gemini-cli",
    title="Gemini CLI",
    file="node_modules/@google/gemini-cli/bundle/gemini.js",
    package="node_modules/@google/gemini-cli/package.json",
    words=lambda _, prompt: ["--yolo", "--skip-trust", "--model", "gemini-2.5-flash", "--prompt", prompt],
    env=lambda place: {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": place.model,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    },
    settings=_gemini_settings,
    settings_file=".gemini/settings.json",
    runner="node",
)

OPENCODE = Program(
    name="opencode",
    title="opencode",
    file=f"node_modules/opencode-linux-{MACHINE}/bin/opencode",
    package=f"node_modules/opencode-linux-{MACHINE}/package.json",
    words=lambda _, prompt: ["run", "--model", f"script/{MODEL}", prompt],
    env=lambda _: {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    },
    settings=_opencode_settings,
    settings_file=".config/opencode/opencode.json",
)

QWEN_CODE = Program(
    name="qwen-code",
    title="Qwen Code",
    file="node_modules/@qwen-code/qwen-code/cli.js",
    package="node_modules/@qwen-code/qwen-code/package.json",
    words=lambda _, prompt: ["--approval-mode", "yolo", "--model", MODEL, "--prompt", prompt],
    env=lambda place: {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{place.model}/v1", "OPENAI_MODEL": MODEL},
    settings=_qwen_settings,
    settings_file=".qwen/settings.json",
    runner="node",
)

COPILOT_CLI = Program(
    name="copilot-cli",
    title="Copilot CLI",
    file=f"node_modules/@github/copilot-linux-{MACHINE}/copilot",
    package="node_modules/@github/copilot/package.json",
    words=lambda _, prompt: ["--allow-all-tools", "--disable-builtin-mcps", "--no-color", "--prompt", prompt],
    env=lambda place: {
        "COPILOT_PROVIDER_BASE_URL": f"{place.model}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": MODEL,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    },
    dialog=Dialog(["--allow-all-tools", "--disable-builtin-mcps", "--interactive", PROMPT], asks_first="do you trust"),
)

INSPECTOR = Program(
    name="inspector",
    title="Inspector",
    file="node_modules/.bin/inspector",
    package="node_modules/@modelcontextprotocol/inspector/package.json",
    runner="node",
    peers="npm-hosts",
    client=inspecting,
)

MCP_REMOTE = Program(
    name="mcp-remote",
    title="mcp-remote",
    file="node_modules/mcp-remote/dist/proxy.js",
    package="node_modules/mcp-remote/package.json",
    runner="node",
    peers="npm-hosts",
    client=proxied,
    over=("http",),
)

TYPESCRIPT_SDK = Program(
    name="typescript-sdk",
    title="SDK for TypeScript",
    file=str(Path(__file__).parents[1] / "npm_login.cjs"),
    package="node_modules/@modelcontextprotocol/client/package.json",
    runner="node",
    peers="npm-hosts",
)
"""A script of ours with its client, which only logs in."""

SCRIPTS = Path(__file__).parents[1] / "frameworks"
"""A small program for each framework of Python, which its own environment runs."""


def _framework(name: str, script: str, package: str) -> Program:
    return Program(
        name=name,
        title=name,
        file=str(SCRIPTS / f"{script}.py"),
        package=f"lib/python3*/site-packages/{package}-*.dist-info/METADATA",
        runner="bin/python",
        peers=f"frameworks/{name}",
        is_installed=False,
        words=lambda place, prompt: [place.url or json.dumps(place.bridge), prompt],
        env=lambda place: {
            "TOKEN": place.token,
            "MODEL": MODEL,
            "OPENAI_BASE_URL": f"{place.model}/v1",
            "OPENAI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": place.model,
            "GOOGLE_API_KEY": KEY,
        },
    )


FRAMEWORKS = (
    _framework("openai-agents", "openai_agents", "openai_agents"),
    _framework("langchain-mcp-adapters", "langchain_adapters", "langchain_mcp_adapters"),
    _framework("google-adk", "google_adk", "google_adk"),
    _framework("pydantic-ai", "pydantic_agent", "pydantic_ai_slim"),
    _framework("strands-agents", "strands_agent", "strands_agents"),
    _framework("fastmcp", "fastmcp_client", "fastmcp"),
)

HOSTS = (CLAUDE_CODE, CODEX, GEMINI_CLI, OPENCODE, QWEN_CODE, COPILOT_CLI, INSPECTOR, MCP_REMOTE)
PROGRAMS = (*HOSTS, *FRAMEWORKS)
"""Those that take the tour, in the order of the table."""

LOGGING_IN = (*HOSTS, TYPESCRIPT_SDK)
"""Those that log in with a browser."""

ASKED_FIRST = ("both", "host")
"""Profiles in which the person before a program is asked. There is none: what it answers by itself must not count.

Only over the bridge, which may approve: a token for HTTP may not.
"""

APPROVING = (
    CLAUDE_CODE,
    replace(CLAUDE_CODE, way="prompt tool", words=_claude_words("--permission-prompt-tool", PROMPT_TOOL)),
    replace(CLAUDE_CODE, way="hook", words=_claude_words(), install=("--permits",)),
    *(replace(CLAUDE_CODE, way=way, over=("bridge",)) for way in ASKED_FIRST),
    CODEX,
    *(replace(CODEX, way=way, over=("bridge",)) for way in ASKED_FIRST),
    GEMINI_CLI,
    OPENCODE,
)
"""Programs, and the ways in which people approve what their models want."""


def find_version(program: Program, peers: Path) -> str:
    """Return the version that is installed; nothing if there is none for this machine."""
    folder = peers / program.peers
    package = next(folder.glob(program.package), None)
    needed = [program.file, *([program.runner] if program.runner else [])]
    if package is None or not all((folder / each).exists() for each in needed):
        return ""
    text = package.read_text()
    if package.suffix == ".json":
        return json.loads(text)["version"]
    return next(line.partition(": ")[2] for line in text.splitlines() if line.startswith("Version: "))


def command_of(program: Program, peers: Path) -> list[str]:
    """Return what starts the program, without its words."""
    return [str(peers / program.peers / each) for each in (program.runner, program.file) if each]


def prepare(program: Program, place: Place) -> None:
    """Write what the program has in its home before the hub is added."""
    if program.settings_file:
        file = place.home / program.settings_file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(program.settings(place)))


def environment_of(program: Program, place: Place, peers: Path) -> dict[str, str]:
    """Return all variables that the program is started with."""
    path = f"{BIN}:{peers / program.peers}:/usr/local/bin:/usr/bin:/bin"
    return {"HOME": str(place.home), "PATH": path, "LANG": "C.UTF-8", **program.env(place)}


async def install(
    program: Program, place: Place, peers: Path, hubbub: Sequence[str], options: Sequence[str], *, over: str
) -> None:
    """Add the hub to the program's settings; `hubbub` is the command with its data directory."""
    words = ["mcp", "install", program.name, *options, *program.install, *(["--http"] if over == "http" else [])]
    environment = environment_of(program, place, peers)
    environment |= {"HUBBUB_TOKEN": place.token} if place.token and over != "http" else {}
    ended = await anyio.run_process([*hubbub, *words], check=False, env=environment, stderr=STDOUT)
    if ended.returncode:
        raise RuntimeError(f"hubbub {' '.join(words)}: {ended.stdout.decode()}")
