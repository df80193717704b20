"""Connects to the hub over the bridge as a host does, and warns of what hosts would cut off or refuse."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

from hubbub_bridge.messages import REVISION, Message, encode_line, find_member, find_object, find_text
from hubbub_bridge.schemas import SCHEMAS, is_recursive
from hubbub_local.hosts.kinds import NAME
from hubbub_local.hosts.permits import PERMIT

RESPONSE_LIMIT_S: Final = 30.0
"""Seconds for a response: longer than the bridge waits for a hub."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of a response, as the bridge takes from the hub."""

MAX_PAGES: Final = 1000
"""The most pages of one list."""

MAX_NAMES_SHOWN: Final = 5
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

MAX_INSTRUCTIONS_CHARS: Final = 2048
MAX_DESCRIPTION_CHARS: Final = 4096
MAX_CLAUDE_NAME_CHARS: Final = 128
MAX_API_NAME_CHARS: Final = 64
MAX_CURSOR_NAME_CHARS: Final = 60
MAX_CURSOR_TOOLS: Final = 40
MAX_VSCODE_TOOLS: Final = 128
# Characters that Claude Code shows of instructions, and of a description that it loads at once; characters of
# `mcp__SERVER__TOOL` there, and of a tool in the APIs of models; of server and tool together in Cursor; tools that
# Cursor and VS Code take. docs/hosts/each.md has them.

API_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(slots=True)
class Trial:
    """The outcome of connecting with one revision; `failure` is empty if it succeeded."""

    revision: str
    server: str = ""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    warnings: list[str] = field(default_factory=list[str])
    permits: bool = False
    """Whether the host can ask people for permission to use its own tools."""
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the trial as JSON values."""
        return asdict(self)


class TrialFailed(Exception):
    """The hub cannot be used as a host would use it."""


async def try_revisions(
    command: Sequence[str], environment: Mapping[str, str], revisions: Sequence[str] = (HANDSHAKE, STATELESS)
) -> list[Trial]:
    """Start the bridge once for each revision, and return the outcome of each."""
    return [await _fill_in_trial(Trial(revision), command, environment) for revision in revisions]


async def _fill_in_trial(trial: Trial, command: Sequence[str], environment: Mapping[str, str]) -> Trial:
    """Connect with the trial's revision, write the outcome into the trial, and return it."""
    try:
        async with _start_bridge(command, environment) as host, asyncio.timeout(RESPONSE_LIMIT_S):
            await host.fill_in(trial)
    except TrialFailed as error:
        trial.failure = str(error)
    except TimeoutError:
        trial.failure = f"no response within {RESPONSE_LIMIT_S:g} s"
    except OSError as error:
        trial.failure = f"{command[0]}: {error.strerror}"
    return trial


@asynccontextmanager
async def _start_bridge(command: Sequence[str], environment: Mapping[str, str]) -> AsyncGenerator["_Host", None]:
    """Run the bridge for a block, then end it as a host that leaves does: by closing its standard input.

    A bridge that has not ended after RESPONSE_LIMIT_S is killed.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, env=environment, limit=MAX_LINE_BYTES
    )
    try:
        yield _Host(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(RESPONSE_LIMIT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class _Host:
    """A host that sends one request after the other, and declares that it can ask people."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._count = 0
        self._meta: Message = {}

    async def fill_in(self, trial: Trial) -> None:
        """Connect as a host, list everything, and write the findings into `trial`. Raises TrialFailed."""
        introduction = await self._introduce(trial.revision)
        # The result of a handshake has `serverInfo` itself, the result of `server/discover` has it in `_meta`.
        server = find_object(introduction, "serverInfo") or find_object(
            introduction, "_meta", "io.modelcontextprotocol/serverInfo"
        )
        trial.server = (
            f"{find_text(server, 'title') or find_text(server, 'name')} {find_text(server, 'version')}".strip()
        )
        capabilities = find_object(introduction, "capabilities")
        entries_by_list = {
            name: await self._fetch_list(name, method)
            for name, method in LISTS.items()
            if _is_offered(capabilities, name)
        }
        trial.counts = {name: len(entries) for name, entries in entries_by_list.items()}
        trial.permits = any(find_text(tool, "name") == PERMIT for tool in entries_by_list.get("tools", []))
        trial.warnings = list_warnings(find_text(introduction, "instructions"), entries_by_list.get("tools", []))

    async def _introduce(self, revision: str) -> Message:
        """Make the handshake (since 2026-07-28 `server/discover`), and return its result. Raises TrialFailed."""
        client_info: Message = {"name": "hubbub-mcp-check", "version": "1"}
        capabilities: Message = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
        if revision == HANDSHAKE:
            params: Message = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": client_info}
            result = await self._request("initialize", params)
            await self._send({"method": "notifications/initialized"})
            return result
        prefix = "io.modelcontextprotocol/"
        self._meta = {
            REVISION: revision,
            f"{prefix}clientInfo": client_info,
            f"{prefix}clientCapabilities": capabilities,
        }
        return await self._request("server/discover", {})

    async def _fetch_list(self, name: str, method: str) -> list[Message]:
        """Return the entries of one list, from at most MAX_PAGES pages. Raises TrialFailed."""
        entries: list[Message] = []
        cursor: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            page = await self._request(method, cursor)
            entries += find_member(page, name) or []
            if not find_text(page, "nextCursor"):
                break
            cursor = {"cursor": find_text(page, "nextCursor")}
        return entries

    async def _request(self, method: str, params: Message) -> Message:
        """Send a request and return its result. Other messages that come meanwhile are dropped. Raises TrialFailed."""
        self._count += 1
        meta = {"_meta": self._meta} if self._meta else {}
        await self._send({"id": self._count, "method": method, "params": {**params, **meta}})
        while True:
            line = await self._stdout.readline()
            if not line:
                raise TrialFailed(f"the bridge has ended instead of a response to {method}")
            message = cast("Message", json.loads(line))
            if message.get("id") == self._count and "method" not in message:
                break
        if "error" in message:
            raise TrialFailed(f"{method}: {find_text(message, 'error', 'message')}")
        return find_object(message, "result")

    async def _send(self, message: Message) -> None:
        """Send a message to the bridge; drop it if the bridge has ended."""
        self._stdin.write(encode_line({"jsonrpc": "2.0", **message}) + b"\n")
        with suppress(ConnectionError):  # the next read shows that the bridge has ended
            await self._stdin.drain()


def _is_offered(capabilities: Mapping[str, Any], name: str) -> bool:
    """Return whether the hub has the capability that a list needs."""
    return ("resources" if name == "resourceTemplates" else name) in capabilities


def list_warnings(instructions: str, tools: Sequence[Message]) -> list[str]:
    """Return what hosts would cut off, leave out or fail on, one warning per line; empty if nothing is wrong."""
    warnings: list[str] = []
    if len(instructions) > MAX_INSTRUCTIONS_CHARS:
        warnings.append(
            f"instructions: {len(instructions)} characters, of which Claude Code shows {MAX_INSTRUCTIONS_CHARS}"
        )
    names = [find_text(tool, "name") for tool in tools]
    prefix_chars = len(f"mcp__{NAME}__")
    long_descriptions = [
        find_text(tool, "name") for tool in tools if len(find_text(tool, "description")) > MAX_DESCRIPTION_CHARS
    ]
    warnings += [
        _warn_of_long_names(
            names,
            MAX_CLAUDE_NAME_CHARS - prefix_chars,
            f"left out by Claude Code, with its prefix beyond {MAX_CLAUDE_NAME_CHARS}",
        ),
        _warn_of_long_names(
            names,
            MAX_API_NAME_CHARS - prefix_chars,
            f"too long for APIs of models, with the prefix beyond {MAX_API_NAME_CHARS}",
        ),
        _warn_of_long_names(
            names,
            MAX_CURSOR_NAME_CHARS - len(NAME),
            f"left out by Cursor, with the hub's name beyond {MAX_CURSOR_NAME_CHARS}",
        ),
        _warn_of_names(
            [name for name in names if not API_NAME.fullmatch(name)], "with characters that APIs of models refuse"
        ),
        _warn_of_names(
            [find_text(tool, "name") for tool in tools if any(is_recursive(tool.get(name)) for name in SCHEMAS)],
            "with a recursive schema, on which some hosts fail whole; `flatten_schemas` of a profile helps",
        ),
        _warn_of_names(long_descriptions, f"whose description Claude Code cuts at {MAX_DESCRIPTION_CHARS} characters"),
    ]
    for host, max_tools in (("Cursor", MAX_CURSOR_TOOLS), ("VS Code", MAX_VSCODE_TOOLS)):
        if len(names) > max_tools:
            warnings.append(f"{len(names)} tools: {host} takes {max_tools}; a profile can show fewer")
    return [each for each in warnings if each]


def _warn_of_long_names(names: Sequence[str], longest: int, problem: str) -> str:
    """Return a warning that lists the names longer than `longest` characters; empty if there are none."""
    return _warn_of_names([name for name in names if len(name) > longest], problem)


def _warn_of_names(names: Sequence[str], problem: str) -> str:
    """Return a warning that counts tools with a problem, and lists the first names; empty if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    return f"{len(names)} tools {problem}: {', '.join(names[:MAX_NAMES_SHOWN])}{more}"
