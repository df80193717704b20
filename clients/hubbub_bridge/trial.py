"""Connects to the hub over the bridge as a host does, and says what hosts would make of what it shows."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

from hubbub_bridge.messages import REVISION, Message, dumps, member, text, within
from hubbub_bridge.schemas import SCHEMAS, is_recursive
from hubbub_local.hosts.kinds import NAME

LIMIT_S: Final = 30.0
"""Seconds for a response: longer than the bridge waits for a hub."""

LONGEST_LINE: Final = 64 * 1024 * 1024
"""The most bytes of a response, as the bridge takes from the hub."""

MAX_PAGES: Final = 1000
"""The most pages of one list."""

SHOWN: Final = 5
"""So many names are in a warning."""

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
# A revision of each kind.

LISTS: Final = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
"""Methods by the member of their results; the first three are capabilities, too."""

INSTRUCTIONS: Final = 2048
DESCRIPTION: Final = 4096
NAME_OF_CLAUDE: Final = 128
NAME_OF_APIS: Final = 64
NAME_OF_CURSOR: Final = 60
TOOLS_OF_CURSOR: Final = 40
TOOLS_OF_VSCODE: Final = 128
# Characters that Claude Code shows of instructions, and of a description that it loads at once; characters of
# `mcp__SERVER__TOOL` there, and of a tool in the APIs of models; of server and tool together in Cursor; tools that
# Cursor and VS Code take. docs/hosts has a page for each.

IN_APIS: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(slots=True)
class Trial:
    """What came of connecting in one kind of revision; `failure` is empty if it went well."""

    revision: str
    server: str = ""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    warnings: list[str] = field(default_factory=list[str])
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


class TrialFailed(Exception):
    """The hub cannot be used as a host would use it."""


async def check(command: Sequence[str], environment: Mapping[str, str]) -> list[Trial]:
    """Start the bridge once for each kind of revision, and return what came of it."""
    return [await _try(Trial(revision), command, environment) for revision in (HANDSHAKE, STATELESS)]


async def _try(trial: Trial, command: Sequence[str], environment: Mapping[str, str]) -> Trial:
    try:
        async with _started(command, environment) as host, asyncio.timeout(LIMIT_S):
            await host.look(trial)
    except TrialFailed as failed:
        trial.failure = str(failed)
    except TimeoutError:
        trial.failure = f"no response within {LIMIT_S:g} s"
    except OSError as error:
        trial.failure = f"{command[0]}: {error.strerror}"
    return trial


@asynccontextmanager
async def _started(command: Sequence[str], environment: Mapping[str, str]) -> AsyncGenerator["_Host", None]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, env=environment, limit=LONGEST_LINE
    )
    try:
        yield _Host(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(LIMIT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class _Host:
    """A host that asks one thing after the other, and declares that it can ask people."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._count = 0
        self._envelope: Message = {}

    async def look(self, trial: Trial) -> None:
        """Introduce itself, and list everything. Raises TrialFailed."""
        about = await self._introduce(trial.revision)
        server = within(about, "serverInfo") or within(about, "_meta", "io.modelcontextprotocol/serverInfo")
        trial.server = f"{text(server, 'title') or text(server, 'name')} {text(server, 'version')}".strip()
        offered = within(about, "capabilities")
        listed = {name: await self._list(name, method) for name, method in LISTS.items() if _has(offered, name)}
        trial.counts = {name: len(entries) for name, entries in listed.items()}
        trial.warnings = warnings(text(about, "instructions"), listed.get("tools", []))

    async def _introduce(self, revision: str) -> Message:
        me: Message = {"name": "hubbub-mcp-check", "version": "1"}
        able: Message = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
        if revision == HANDSHAKE:
            about: Message = {"protocolVersion": revision, "capabilities": able, "clientInfo": me}
            found = await self._ask("initialize", about)
            await self._say({"method": "notifications/initialized"})
            return found
        prefix = "io.modelcontextprotocol/"
        self._envelope = {REVISION: revision, f"{prefix}clientInfo": me, f"{prefix}clientCapabilities": able}
        return await self._ask("server/discover", {})

    async def _list(self, name: str, method: str) -> list[Message]:
        found: list[Message] = []
        cursor: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            page = await self._ask(method, cursor)
            found += member(page, name) or []
            if not text(page, "nextCursor"):
                break
            cursor = {"cursor": text(page, "nextCursor")}
        return found

    async def _ask(self, method: str, params: Message) -> Message:
        self._count += 1
        meta = {"_meta": self._envelope} if self._envelope else {}
        await self._say({"id": self._count, "method": method, "params": {**params, **meta}})
        while True:
            line = await self._stdout.readline()
            if not line:
                raise TrialFailed(f"the bridge has ended instead of a response to {method}")
            message = cast("Message", json.loads(line))
            if message.get("id") == self._count and "method" not in message:
                break
        if "error" in message:
            raise TrialFailed(f"{method}: {text(message, 'error', 'message')}")
        return within(message, "result")

    async def _say(self, message: Message) -> None:
        self._stdin.write(dumps({"jsonrpc": "2.0", **message}) + b"\n")
        with suppress(ConnectionError):  # that it has ended, the next read shows
            await self._stdin.drain()


def _has(offered: Mapping[str, Any], name: str) -> bool:
    return ("resources" if name == "resourceTemplates" else name) in offered


def warnings(instructions: str, tools: Sequence[Message]) -> list[str]:
    """Return what hosts would cut off, a line each."""
    said: list[str] = []
    if len(instructions) > INSTRUCTIONS:
        said.append(f"instructions: {len(instructions)} characters, of which Claude Code shows {INSTRUCTIONS}")
    names = [text(tool, "name") for tool in tools]
    prefix = len(f"mcp__{NAME}__")
    long = [text(tool, "name") for tool in tools if len(text(tool, "description")) > DESCRIPTION]
    said += [
        _longer(names, NAME_OF_CLAUDE - prefix, f"left out by Claude Code, with its prefix beyond {NAME_OF_CLAUDE}"),
        _longer(names, NAME_OF_APIS - prefix, f"too long for APIs of models, with the prefix beyond {NAME_OF_APIS}"),
        _longer(names, NAME_OF_CURSOR - len(NAME), f"left out by Cursor, with the hub's name beyond {NAME_OF_CURSOR}"),
        _listed([name for name in names if not IN_APIS.fullmatch(name)], "with characters that APIs of models refuse"),
        _listed(
            [text(tool, "name") for tool in tools if any(is_recursive(tool.get(name)) for name in SCHEMAS)],
            "with a recursive schema, on which some hosts fail whole; `flatten_schemas` of a profile helps",
        ),
        _listed(long, f"whose description Claude Code cuts at {DESCRIPTION} characters"),
    ]
    for host, most in (("Cursor", TOOLS_OF_CURSOR), ("VS Code", TOOLS_OF_VSCODE)):
        if len(names) > most:
            said.append(f"{len(names)} tools: {host} takes {most}; a profile can show fewer")
    return [each for each in said if each]


def _longer(names: Sequence[str], longest: int, problem: str) -> str:
    return _listed([name for name in names if len(name) > longest], problem)


def _listed(names: Sequence[str], problem: str) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} tools {problem}: {', '.join(names[:SHOWN])}{more}"
