"""Protocol revisions: negotiation of the one a server speaks, and what each request carries in it.

Up to 2025-11-25 a connection begins with a handshake (`initialize`); from 2026-07-28 on each request is self-contained.
Which family a server belongs to is found by a probe, `server/discover`: any reply that is no sign of the newer family
means the handshake. A server of 2024 may ignore the probe, so its time limit is short (PROBE_LIMIT_S, and at most a
third of the connect timeout). A server that exits on the probe gets the handshake at the next attempt.
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, cast

import anyio
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HEADER_MISMATCH,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    DiscoverResult,
    InitializeResult,
    UnsupportedProtocolVersionErrorData,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
)
from pydantic import BaseModel, ValidationError

from hubbub_shared import __version__
from hubbubd import bounds, payload
from hubbubd.config import ServerConfig
from hubbubd.errors import Fault, FaultCode, InvalidArgument, PeerError, UpstreamError
from hubbubd.timing.turns import turn
from hubbubd.upstream import faults
from hubbubd.upstream.messages.streams import NoSideOutput, SideOutput
from hubbubd.upstream.ports import Era, Hello, LostDuringProbe
from hubbubd.upstream.protocol.repair import (
    MENDABLE,
    Repairer,
    ResultFindings,
    supply_caching,
    supply_introduction,
    validation_error,
)
from hubbubd.upstream.protocol.schema_check import Mismatch, check, weight
from hubbubd.upstream.protocol.tool_headers import ToolHeaders

PROBE_LIMIT_S: Final = 5.0
"""Seconds to wait for `server/discover` from a server not known to answer it."""

TASKS_REVISION: Final = "2025-11-25"
"""The only revision with tasks, of servers (client tasks) and of the hub (receiver tasks)."""

CLIENT_INFO: Final = {"name": "hubbub", "title": "Hubbub", "version": __version__}

INTRODUCTION_BYTES: Final = bounds.INTRODUCTION_BYTES
"""The most that is kept of each part of a server's introduction: every watcher of servers gets it."""

NAME_CHARACTERS: Final = 1000
"""The most characters kept of a name in an introduction that is too long."""

MAX_VERSIONS: Final = 100
"""How many of the revisions that a server lists are examined."""

ALL_PROTOCOL_VERSIONS: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION)

_DATE: Final = re.compile(r"\b20\d\d-\d\d-\d\d\b")
"""How revisions are named."""

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

_NAMED_BY: Final = {
    **NAME_BEARING_METHODS,
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
"""The param that Mcp-Name repeats, by method; for the tasks extension see SEP-2663, routing headers."""

Stamped = tuple[dict[str, Any] | None, dict[str, str]]
"""The params to send, and the headers that go with them over HTTP."""


class Revision(Protocol):
    """The revision in force on a connection."""

    @property
    def version(self) -> str:
        """The value of MCP-Protocol-Version."""
        ...

    @property
    def era(self) -> Era:
        """The family it belongs to."""
        ...

    def stamp(self, method: str, params: dict[str, Any] | None) -> Stamped:
        """Return what a request or notification carries in this revision."""
        ...

    def complete(self, result: dict[str, Any]) -> None:
        """Normalize a result in place: defaults for members that may be missing or invalid."""
        ...


_OF_A_REQUEST: Final = frozenset({CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY})
"""What a request says in newer revisions, and a connection in those with a handshake."""


@dataclass(frozen=True, slots=True)
class HandshakeRevision:
    """Up to 2025-11-25: the handshake has exchanged everything."""

    version: str
    era: Era = Era.HANDSHAKE

    def stamp(self, method: str, params: dict[str, Any] | None) -> Stamped:
        """Return the params without what only later revisions have, and the header that names the revision."""
        meta = _object((params or {}).get("_meta"))
        if params is not None and not _OF_A_REQUEST.isdisjoint(meta):
            kept = {key: value for key, value in meta.items() if key not in _OF_A_REQUEST}
            bare = {key: value for key, value in params.items() if key != "_meta"}
            params = {**bare, "_meta": kept} if kept else bare
        return params, {MCP_PROTOCOL_VERSION_HEADER: self.version}

    def complete(self, result: dict[str, Any]) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class StatelessRevision:
    """From 2026-07-28: each request carries client info and capabilities (basic, `_meta`; transports, headers)."""

    version: str
    capabilities: dict[str, Any]
    era: Era = Era.STATELESS
    tool_headers: ToolHeaders = field(default_factory=ToolHeaders)

    def stamp(self, method: str, params: dict[str, Any] | None) -> Stamped:
        """Return the params with `_meta`'s envelope, and headers that repeat parts of them. Raises InvalidArgument.

        Capabilities that the params declare narrow those of the hub.
        """
        given = params or {}
        said = _object(given.get("_meta"))
        meta: dict[str, Any] = {
            **said,
            PROTOCOL_VERSION_META_KEY: self.version,
            CLIENT_INFO_META_KEY: CLIENT_INFO,
            CLIENT_CAPABILITIES_META_KEY: narrowed(self.capabilities, said.get(CLIENT_CAPABILITIES_META_KEY)),
        }
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version, MCP_METHOD_HEADER: method}
        name = given.get(_NAMED_BY.get(method, ""))
        try:
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
                if method == "tools/call" and (mapped := self.tool_headers.of(name)):
                    headers.update(mcp_param_headers(mapped, given.get("arguments") or {}))
        except UnicodeEncodeError:
            problem = "a text that is repeated as a header has half of a surrogate pair, which no header can express"
            raise InvalidArgument.field("params", problem) from None
        return {**given, "_meta": meta}, headers

    def complete(self, result: dict[str, Any]) -> None:
        """Default `resultType` to "complete" (basic, results), and a negative `ttlMs` to 0 (caching)."""
        result.setdefault("resultType", "complete")
        ttl = result.get("ttlMs")
        if isinstance(ttl, int | float) and ttl < 0:
            result["ttlMs"] = 0


def capabilities(config: ServerConfig, version: str) -> dict[str, Any]:
    """Return the capabilities that the hub declares to this server in this revision."""
    declared: dict[str, Any] = {"roots": {} if version == LATEST_MODERN_VERSION else {"listChanged": True}}
    asks: dict[str, Any] = {}
    if config.elicitation:
        declared["elicitation"] = {"form": {}, "url": {}}
        asks["elicitation"] = {"create": {}}
    if config.sampling:
        declared["sampling"] = {"tools": {}}
        asks["sampling"] = {"createMessage": {}}
    if config.receiver_tasks and asks and version == LATEST_HANDSHAKE_VERSION:
        declared["tasks"] = {"list": {}, "cancel": {}, "requests": asks}
    if version == LATEST_MODERN_VERSION:
        declared["extensions"] = {TASKS_EXTENSION: {}}
    return declared


def narrowed(hub: dict[str, Any], caller: object) -> dict[str, Any]:
    """Return the hub's capabilities without what the caller of a call did not declare, if it declared any."""
    if not isinstance(caller, dict):
        return hub
    own = cast("dict[str, Any]", caller)
    left = {name: value for name, value in hub.items() if name not in _OF_CALLERS or name in own}
    for name in ("elicitation", "sampling", "extensions"):
        if name in left:
            parts = _object(own[name]) or ({"form": {}} if name == "elicitation" else {})  # `{}` is forms alone
            left[name] = {part: value for part, value in _object(left[name]).items() if part in parts}
    return left


_OF_CALLERS: Final = frozenset({"elicitation", "sampling", "roots", "extensions"})
"""Capabilities that say which requests a client answers."""

Ask = Callable[[str, dict[str, Any] | None, dict[str, str]], Awaitable[dict[str, Any]]]
"""Sends a request of the negotiation, which is never cancelled at the server. Raises PeerError, UpstreamError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Negotiation:
    """Finds the revision of a new connection.

    `hint` is the era found last time; `found` gets what is odd, and `side_output` is told how the probe ends.
    """

    config: ServerConfig
    ask: Ask
    hint: Era | None
    limit: Callable[[float | None], AbstractContextManager[anyio.CancelScope]] = anyio.move_on_after
    side_output: SideOutput = field(default_factory=NoSideOutput)
    found: ResultFindings = field(default_factory=ResultFindings)

    async def run(self) -> tuple[Hello, Revision]:
        """Return the server's introduction and the revision in force. Raises UpstreamError."""
        try:
            return await self._negotiate()
        except PeerError as refusal:
            if refusal.code == UNSUPPORTED_PROTOCOL_VERSION:
                raise _mismatch(refusal.message, _supported(refusal)) from None
            said = {"code": refusal.code, "message": refusal.message, "data": refusal.data}
            note = f"it refused the handshake: {refusal.message}"
            raise faults.error("INVALID_RESPONSE", note, error=said) from None
        finally:
            self.side_output.release()

    async def _negotiate(self) -> tuple[Hello, Revision]:
        pinned = self.config.protocol
        if pinned == LATEST_MODERN_VERSION:
            return await self._discover()
        if pinned != "auto" or self.config.transport == "sse":
            return await self._handshake(LATEST_HANDSHAKE_VERSION if pinned == "auto" else pinned)
        if self.hint is not Era.HANDSHAKE and (found := await self._probe()) is not None:
            return found
        try:
            connected = await self._handshake(LATEST_HANDSHAKE_VERSION)
        except PeerError as refusal:
            if not _means_stateless(refusal):
                raise
        else:
            self.side_output.fold()
            return connected
        # A stateless server after all: it was slow to answer the probe, or has replaced an older one.
        return await self._discover()

    async def _probe(self) -> tuple[Hello, Revision] | None:
        limit = None if self.hint is Era.STATELESS else min(PROBE_LIMIT_S, self.config.connect_timeout_s / 3)
        self.side_output.hold()
        with self.limit(limit):
            try:
                return await self._discover()
            except PeerError as refusal:
                if refusal.code != UNSUPPORTED_PROTOCOL_VERSION or not (offered := _supported(refusal)):
                    return None
                if not set(offered) & set(HANDSHAKE_PROTOCOL_VERSIONS):
                    raise
            except UpstreamError as exc:
                if not _means_handshake(exc.fault):
                    raise _during_probe(exc.fault) from None
        return None

    async def _discover(self) -> tuple[Hello, Revision]:
        version = LATEST_MODERN_VERSION
        revision = StatelessRevision(version, capabilities(self.config, version))
        question = revision.stamp("server/discover", None)
        try:
            raw = await self.ask("server/discover", *question)
        except PeerError as refusal:
            # Refusing a revision and listing it as supported means: ask again in this one.
            if refusal.code != UNSUPPORTED_PROTOCOL_VERSION or version not in _supported(refusal):
                raise
            raw = await self.ask("server/discover", *question)
        revision.complete(raw)
        await _check(DiscoverResult, raw, self.found)
        supported: list[str] = raw["supportedVersions"]
        if version not in supported:
            offered = [each[:NAME_CHARACTERS] for each in supported[:MAX_VERSIONS]]
            raise _mismatch(f"it speaks {', '.join(offered)}", offered)
        hello = Hello(
            protocol_version=version,
            era=Era.STATELESS,
            server_info=_info(_object(raw.get("_meta")).get(SERVER_INFO_META_KEY)),
            capabilities=_able(raw.get("capabilities")),
            instructions=_instructions(raw.get("instructions")),
        )
        return hello, revision

    async def _handshake(self, version: str) -> tuple[Hello, Revision]:
        """Make the handshake, once more in a revision that both speak if the server refuses this one and lists others.

        (2025-11-25, lifecycle, error handling.) Raises PeerError, UpstreamError.
        """
        try:
            return await self._initialize(version)
        except (PeerError, UpstreamError) as refusal:
            offered = _offered(refusal, version)
            common = sorted(set(offered) & set(HANDSHAKE_PROTOCOL_VERSIONS))
            if not offered or (isinstance(refusal, PeerError) and _means_stateless(refusal)):
                raise
            if not common or self.config.protocol != "auto":
                advice = f'; set protocol = "{common[-1]}"' if common else ""
                note = f"the hub asked for {version}, the server speaks {', '.join(offered)}{advice}"
                raise _mismatch(note, offered) from None
        return await self._initialize(common[-1])

    async def _initialize(self, version: str) -> tuple[Hello, Revision]:
        params = {
            "protocolVersion": version,
            "capabilities": capabilities(self.config, version),
            "clientInfo": CLIENT_INFO,
        }
        raw = await self.ask("initialize", params, {})
        await _check(InitializeResult, raw, self.found)
        chosen: str = raw["protocolVersion"]
        if chosen not in HANDSHAKE_PROTOCOL_VERSIONS or (self.config.protocol != "auto" and chosen != version):
            raise _mismatch(f"the hub asked for {version}, the server chose {chosen}", [chosen])
        hello = Hello(
            protocol_version=chosen,
            era=Era.HANDSHAKE,
            server_info=_info(raw.get("serverInfo")),
            capabilities=_able(raw.get("capabilities")),
            instructions=_instructions(raw.get("instructions")),
        )
        return hello, HandshakeRevision(chosen)


async def _check(model: type[BaseModel], raw: dict[str, Any], found: ResultFindings) -> None:
    """Validate an introduction, which may be long, in turns, and mend one that is not. Raises UpstreamError."""
    validate = partial(model.model_validate, by_name=False)
    try:
        for _ in check(validate, raw):
            await turn()
    except Mismatch as exc:
        if weight(raw, MENDABLE) >= MENDABLE or not _is_mended(validate, raw, found):
            raise faults.error("INVALID_RESPONSE", str(exc)) from None


def _is_mended(validate: Callable[[Any], object], raw: dict[str, Any], found: ResultFindings) -> bool:
    supplied = [supply(raw) for supply in (supply_introduction, supply_caching)]
    why, counted = validation_error(validate, raw), found.mended.count
    if why is not None and not Repairer(validate).mend(raw, why, found, "members of it"):
        return False
    if any(supplied) and found.mended.count == counted:
        found.mended.add("what is missing in it")
    return True


def _info(said: object) -> dict[str, Any]:
    """Return the server info; of one that is too long (icons, for example) only the names."""
    info = _object(said)
    if len(payload.dumps(info)) <= INTRODUCTION_BYTES:
        return info
    named = {name: info.get(name) for name in ("name", "title", "version")}
    return {name: value[:NAME_CHARACTERS] for name, value in named.items() if isinstance(value, str)}


def _able(said: object) -> dict[str, Any]:
    """Return the server's capabilities. Raises UpstreamError (INVALID_RESPONSE) when they are too long."""
    able = _object(said)
    if (size := len(payload.dumps(able))) > INTRODUCTION_BYTES:
        note = f"its capabilities take {size} bytes, and {INTRODUCTION_BYTES} are allowed"
        raise faults.error("INVALID_RESPONSE", note, limit=INTRODUCTION_BYTES)
    return able


def _instructions(said: str | None) -> str | None:
    return said and said[:INTRODUCTION_BYTES]


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _supported(refusal: PeerError) -> list[str]:
    """Return the first revisions that a refusal lists; none if it is malformed."""
    said = _object(refusal.data)
    named = said.get("supported")
    first = cast("list[Any]", named)[:MAX_VERSIONS] if isinstance(named, list) else None
    beginning = {"supported": first, "requested": said.get("requested")}
    try:
        offered = UnsupportedProtocolVersionErrorData.model_validate(beginning).supported
    except ValidationError:
        return []
    return [each[:NAME_CHARACTERS] for each in offered]


def _offered(refusal: PeerError | UpstreamError, asked: str) -> list[str]:
    """Return the other revisions that a refused handshake lists, as data or in its text; none if it is about another
    matter."""
    if isinstance(refusal, PeerError) and (listed := _supported(refusal)):
        return [each for each in listed if each != asked]
    text = refusal.message
    if isinstance(refusal, UpstreamError):
        if refusal.fault.code != FaultCode.HTTP_ERROR or refusal.fault.details.get("status") != 400:
            return []
        text = str(refusal.fault.details.get("body") or "")
    if "version" not in text.lower():
        return []
    found = dict.fromkeys(_DATE.findall(text[:NAME_CHARACTERS]))
    return [each for each in found if each != asked and each in ALL_PROTOCOL_VERSIONS]


def _mismatch(note: str, supported: list[str]) -> UpstreamError:
    return faults.error("PROTOCOL_VERSION_MISMATCH", note, supported=supported)


def _means_handshake(fault: Fault) -> bool:
    """Return whether `initialize` may still work after `server/discover` failed this way."""
    if fault.code == FaultCode.PROTOCOL_VERSION_MISMATCH:
        return bool(set(fault.details["supported"]) & set(HANDSHAKE_PROTOCOL_VERSIONS))
    return fault.code in (FaultCode.HTTP_ERROR, FaultCode.INVALID_RESPONSE)


def _means_stateless(refusal: PeerError) -> bool:
    """Return whether a refused `initialize` shows a stateless server.

    No older server lacks the method, or requires headers with it.
    """
    if refusal.code == UNSUPPORTED_PROTOCOL_VERSION:
        return LATEST_MODERN_VERSION in _supported(refusal)
    return refusal.code in (HEADER_MISMATCH, METHOD_NOT_FOUND)


def _during_probe(fault: Fault) -> UpstreamError:
    if fault.code != FaultCode.CONNECTION_LOST:
        return UpstreamError(fault)
    return LostDuringProbe(replace(fault, details={**fault.details, "during": "probe"}))
