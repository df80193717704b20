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
from hubbubd.timing.turns import wait_for_turn
from hubbubd.upstream import faults
from hubbubd.upstream.messages.streams import NoSideOutput, SideOutput
from hubbubd.upstream.ports import Era, Hello, LostDuringProbe
from hubbubd.upstream.protocol.capabilities import (
    as_object,
    declare_capabilities,
    is_shared_method,
    narrow_capabilities,
    remove_apps,
)
from hubbubd.upstream.protocol.repair import (
    REPAIRABLE_VALUES,
    Repairer,
    ResultFindings,
    fill_in_caching,
    fill_in_introduction,
    validation_error,
)
from hubbubd.upstream.protocol.schema_check import Mismatch, check, count_values
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

_NAME_PARAMS: Final = {
    **NAME_BEARING_METHODS,
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
"""The param that Mcp-Name repeats, by method; for the tasks extension see SEP-2663, routing headers."""

ParamsAndHeaders = tuple[dict[str, Any] | None, dict[str, str]]
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

    def fit_params(self, method: str, params: dict[str, Any] | None) -> ParamsAndHeaders:
        """Return the params of a message as this revision has them, and the headers that go with them over HTTP.

        `params` is not changed. Raises InvalidArgument for what no header can express.
        """
        ...

    def normalize_result(self, result: dict[str, Any]) -> None:
        """Put defaults into a result where members are missing or invalid, as the revision wants them."""
        ...


_REQUEST_META_KEYS: Final = frozenset({CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY})
"""Keys of `_meta` that only stateless revisions have; a handshake declares these things once per connection."""


@dataclass(frozen=True, slots=True)
class HandshakeRevision:
    """Up to 2025-11-25: the handshake has exchanged everything."""

    version: str
    era: Era = Era.HANDSHAKE

    def fit_params(self, method: str, params: dict[str, Any] | None) -> ParamsAndHeaders:
        """Return the params without what only later revisions have, and the header that names the revision."""
        meta = as_object(params["_meta"]) if params is not None and "_meta" in params else {}
        if params is not None and not _REQUEST_META_KEYS.isdisjoint(meta):
            meta = {key: value for key, value in meta.items() if key not in _REQUEST_META_KEYS}
            params = {key: value for key, value in params.items() if key != "_meta"}
            if meta:
                params["_meta"] = meta
        return params, {MCP_PROTOCOL_VERSION_HEADER: self.version}

    def normalize_result(self, result: dict[str, Any]) -> None:
        """Leave the result as it is."""


@dataclass(frozen=True, slots=True)
class StatelessRevision:
    """From 2026-07-28: each request carries client info and capabilities (basic, `_meta`; transports, headers)."""

    version: str
    capabilities: dict[str, Any]
    era: Era = Era.STATELESS
    tool_headers: ToolHeaders = field(default_factory=ToolHeaders)
    _call_capabilities: dict[str, Any] = field(init=False)
    """The capabilities of a call whose caller declares none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_call_capabilities", remove_apps(self.capabilities))

    def fit_params(self, method: str, params: dict[str, Any] | None) -> ParamsAndHeaders:
        """Return the params with `_meta`'s envelope, and headers that repeat parts of them. Raises InvalidArgument.

        Capabilities that the params declare narrow those of the hub.
        """
        own_params = params or {}
        own_meta = as_object(own_params.get("_meta"))
        caller_capabilities: object = own_meta.get(CLIENT_CAPABILITIES_META_KEY)
        is_caller_known = CLIENT_CAPABILITIES_META_KEY in own_meta or is_shared_method(method)
        meta: dict[str, Any] = {
            **own_meta,
            PROTOCOL_VERSION_META_KEY: self.version,
            CLIENT_INFO_META_KEY: CLIENT_INFO,
            CLIENT_CAPABILITIES_META_KEY: narrow_capabilities(
                self.capabilities if is_caller_known else self._call_capabilities, caller_capabilities
            ),
        }
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version, MCP_METHOD_HEADER: method}
        name = own_params.get(_NAME_PARAMS.get(method, ""))
        try:
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
                if method == "tools/call" and (header_names := self.tool_headers.find_header_names(name)):
                    headers.update(mcp_param_headers(header_names, own_params.get("arguments") or {}))
        except UnicodeEncodeError:
            problem = "a text that is repeated as a header has half of a surrogate pair, which no header can express"
            raise InvalidArgument.field("params", problem) from None
        return {**own_params, "_meta": meta}, headers

    def normalize_result(self, result: dict[str, Any]) -> None:
        """Default `resultType` to "complete" (basic, results), and a negative `ttlMs` to 0 (caching)."""
        result.setdefault("resultType", "complete")
        ttl = result.get("ttlMs")
        if isinstance(ttl, int | float) and ttl < 0:
            result["ttlMs"] = 0


SendRequest = Callable[[str, dict[str, Any] | None, dict[str, str]], Awaitable[dict[str, Any]]]
"""Sends a request of the negotiation, which is never cancelled at the server. Raises PeerError, UpstreamError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Negotiation:
    """Finds the revision of a new connection.

    `last_era` is the era found last time, None if unknown. `findings` collects what deviates from MCP. `side_output` is
    told when the probe begins and ends.
    """

    config: ServerConfig
    send: SendRequest
    last_era: Era | None
    limit: Callable[[float | None], AbstractContextManager[anyio.CancelScope]] = anyio.move_on_after
    side_output: SideOutput = field(default_factory=NoSideOutput)
    findings: ResultFindings = field(default_factory=ResultFindings)

    async def run(self) -> tuple[Hello, Revision]:
        """Return the server's introduction and the revision in force. Raises UpstreamError."""
        try:
            return await self._negotiate()
        except PeerError as refusal:
            if refusal.code == UNSUPPORTED_PROTOCOL_VERSION:
                raise _version_mismatch(refusal.message, _supported_revisions(refusal)) from None
            details = {"code": refusal.code, "message": refusal.message, "data": refusal.data}
            note = f"it refused the handshake: {refusal.message}"
            raise faults.error("INVALID_RESPONSE", note, error=details) from None
        finally:
            self.side_output.release()

    async def _negotiate(self) -> tuple[Hello, Revision]:
        """Negotiate the configured revision, or else the newest that hub and server have in common.

        Return the server's introduction and the revision in force. Raises PeerError, UpstreamError.
        """
        configured = self.config.protocol
        if configured == LATEST_MODERN_VERSION:
            return await self._discover()
        if configured != "auto" or self.config.transport == "sse":
            return await self._handshake(LATEST_HANDSHAKE_VERSION if configured == "auto" else configured)
        if self.last_era is not Era.HANDSHAKE and (introduction := await self._probe()) is not None:
            return introduction
        try:
            introduction = await self._handshake(LATEST_HANDSHAKE_VERSION)
        except PeerError as refusal:
            if not _means_stateless(refusal):
                raise
        else:
            self.side_output.fold()
            return introduction
        # A stateless server after all: it was slow to answer the probe, or has replaced an older one.
        return await self._discover()

    async def _probe(self) -> tuple[Hello, Revision] | None:
        """Ask a server to introduce itself without a handshake; return its introduction and revision.

        Return None if it does not know that request, or does not respond in time: then the handshake is to be tried.
        Lines that it writes to stderr meanwhile are held back. Raises PeerError, UpstreamError.
        """
        limit = None if self.last_era is Era.STATELESS else min(PROBE_LIMIT_S, self.config.connect_timeout_s / 3)
        self.side_output.hold()
        with self.limit(limit):
            try:
                return await self._discover()
            except PeerError as refusal:
                if refusal.code != UNSUPPORTED_PROTOCOL_VERSION or not (offered := _supported_revisions(refusal)):
                    return None
                if not set(offered) & set(HANDSHAKE_PROTOCOL_VERSIONS):
                    raise
            except UpstreamError as exc:
                if not _may_take_handshake(exc.fault):
                    raise _probe_error(exc.fault) from None
        return None

    async def _discover(self) -> tuple[Hello, Revision]:
        """Return the introduction of a stateless server. Raises PeerError, UpstreamError."""
        version = LATEST_MODERN_VERSION
        revision = StatelessRevision(version, declare_capabilities(self.config, version))
        fitted = revision.fit_params("server/discover", None)
        try:
            raw = await self.send("server/discover", *fitted)
        except PeerError as refusal:
            # A server that refuses a revision, but lists it as supported, is asked again.
            if refusal.code != UNSUPPORTED_PROTOCOL_VERSION or version not in _supported_revisions(refusal):
                raise
            raw = await self.send("server/discover", *fitted)
        revision.normalize_result(raw)
        await _check_introduction(DiscoverResult, raw, self.findings)
        supported: list[str] = raw["supportedVersions"]
        if version not in supported:
            offered = [each[:NAME_CHARACTERS] for each in supported[:MAX_VERSIONS]]
            raise _version_mismatch(f"it speaks {', '.join(offered)}", offered)
        hello = Hello(
            protocol_version=version,
            era=Era.STATELESS,
            server_info=_bounded_server_info(as_object(raw.get("_meta")).get(SERVER_INFO_META_KEY)),
            capabilities=_bounded_capabilities(raw.get("capabilities")),
            instructions=_bounded_instructions(raw.get("instructions")),
        )
        return hello, revision

    async def _handshake(self, version: str) -> tuple[Hello, Revision]:
        """Make the handshake; if the server refuses this revision and lists others, again in one that both speak.

        (2025-11-25, lifecycle, error handling.) Raises PeerError, UpstreamError.
        """
        try:
            return await self._initialize(version)
        except (PeerError, UpstreamError) as refusal:
            offered = _offered_revisions(refusal, version)
            common = sorted(set(offered) & set(HANDSHAKE_PROTOCOL_VERSIONS))
            if not offered or (isinstance(refusal, PeerError) and _means_stateless(refusal)):
                raise
            if not common or self.config.protocol != "auto":
                advice = f'; set protocol = "{common[-1]}"' if common else ""
                note = f"the hub asked for {version}, the server speaks {', '.join(offered)}{advice}"
                raise _version_mismatch(note, offered) from None
        return await self._initialize(common[-1])

    async def _initialize(self, version: str) -> tuple[Hello, Revision]:
        """Make the handshake, asking for a version; the server may choose another one."""
        params = {
            "protocolVersion": version,
            "capabilities": declare_capabilities(self.config, version),
            "clientInfo": CLIENT_INFO,
        }
        raw = await self.send("initialize", params, {})
        await _check_introduction(InitializeResult, raw, self.findings)
        chosen: str = raw["protocolVersion"]
        if chosen not in HANDSHAKE_PROTOCOL_VERSIONS or (self.config.protocol != "auto" and chosen != version):
            raise _version_mismatch(f"the hub asked for {version}, the server chose {chosen}", [chosen])
        hello = Hello(
            protocol_version=chosen,
            era=Era.HANDSHAKE,
            server_info=_bounded_server_info(raw.get("serverInfo")),
            capabilities=_bounded_capabilities(raw.get("capabilities")),
            instructions=_bounded_instructions(raw.get("instructions")),
        )
        return hello, HandshakeRevision(chosen)


async def _check_introduction(model: type[BaseModel], raw: dict[str, Any], findings: ResultFindings) -> None:
    """Validate an introduction in turns, as it may be long, and repair an invalid one. Raises UpstreamError."""
    validate = partial(model.model_validate, by_name=False)
    try:
        for _ in check(validate, raw):
            await wait_for_turn()
    except Mismatch as exc:
        if count_values(raw, REPAIRABLE_VALUES) >= REPAIRABLE_VALUES or not _repair_introduction(
            validate, raw, findings
        ):
            raise faults.error("INVALID_RESPONSE", str(exc)) from None


def _repair_introduction(validate: Callable[[Any], object], raw: dict[str, Any], findings: ResultFindings) -> bool:
    """Repair an introduction in place; return whether it is valid now."""
    filled_in = [fill_in(raw) for fill_in in (fill_in_introduction, fill_in_caching)]
    error, noted_before = validation_error(validate, raw), findings.repaired.count
    if error is not None and not Repairer(validate).repair(raw, error, findings, "members of it"):
        return False
    if any(filled_in) and findings.repaired.count == noted_before:
        findings.repaired.add("what is missing in it")
    return True


def _bounded_server_info(sent: object) -> dict[str, Any]:
    """Return the server info; of one that is too long (icons, for example) only the names."""
    info = as_object(sent)
    if len(payload.dumps(info)) <= INTRODUCTION_BYTES:
        return info
    names = {member: info.get(member) for member in ("name", "title", "version")}
    return {member: name[:NAME_CHARACTERS] for member, name in names.items() if isinstance(name, str)}


def _bounded_capabilities(sent: object) -> dict[str, Any]:
    """Return the server's capabilities. Raises UpstreamError (INVALID_RESPONSE) when they are too long."""
    declared = as_object(sent)
    size = len(payload.dumps(declared))
    if size > INTRODUCTION_BYTES:
        note = f"its capabilities take {size} bytes, and {INTRODUCTION_BYTES} are allowed"
        raise faults.error("INVALID_RESPONSE", note, limit=INTRODUCTION_BYTES)
    return declared


def _bounded_instructions(sent: str | None) -> str | None:
    """Return the instructions, cut after the last character that fits into INTRODUCTION_BYTES."""
    encoded = (sent or "").encode(errors="replace")
    return sent if len(encoded) <= INTRODUCTION_BYTES else encoded[:INTRODUCTION_BYTES].decode(errors="ignore")


def _supported_revisions(refusal: PeerError) -> list[str]:
    """Return the first revisions that a refusal lists; none if it is malformed."""
    data = as_object(refusal.data)
    listed_revisions = data.get("supported")
    first_listed = cast("list[Any]", listed_revisions)[:MAX_VERSIONS] if isinstance(listed_revisions, list) else None
    bounded_data = {"supported": first_listed, "requested": data.get("requested")}
    try:
        supported = UnsupportedProtocolVersionErrorData.model_validate(bounded_data).supported
    except ValidationError:
        return []
    return [revision[:NAME_CHARACTERS] for revision in supported]


def _offered_revisions(refusal: PeerError | UpstreamError, requested: str) -> list[str]:
    """Return the other revisions that a refusal of a handshake lists, in data or text; [] for any other reason."""
    if isinstance(refusal, PeerError) and (listed := _supported_revisions(refusal)):
        return [revision for revision in listed if revision != requested]
    text = refusal.message
    if isinstance(refusal, UpstreamError):
        if refusal.fault.code != FaultCode.HTTP_ERROR or refusal.fault.details.get("status") != 400:
            return []
        text = str(refusal.fault.details.get("body") or "")
    if "version" not in text.lower():
        return []
    dates = dict.fromkeys(_DATE.findall(text[:NAME_CHARACTERS]))
    return [date for date in dates if date != requested and date in ALL_PROTOCOL_VERSIONS]


def _version_mismatch(note: str, supported: list[str]) -> UpstreamError:
    """Return the error of a server with which the hub has no revision in common."""
    return faults.error("PROTOCOL_VERSION_MISMATCH", note, supported=supported)


def _may_take_handshake(fault: Fault) -> bool:
    """Return whether `initialize` may still work after `server/discover` failed this way."""
    if fault.code == FaultCode.PROTOCOL_VERSION_MISMATCH:
        return bool(set(fault.details["supported"]) & set(HANDSHAKE_PROTOCOL_VERSIONS))
    # A server that does not know the method may refuse it by an HTTP status, or respond with what is no introduction.
    # If it refuses the method by a JSON-RPC error, that is a PeerError, which `_probe` handles.
    return fault.code in (FaultCode.HTTP_ERROR, FaultCode.INVALID_RESPONSE)


def _means_stateless(refusal: PeerError) -> bool:
    """Return whether a refused `initialize` shows a stateless server: no older one lacks it or requires headers."""
    if refusal.code == UNSUPPORTED_PROTOCOL_VERSION:
        return LATEST_MODERN_VERSION in _supported_revisions(refusal)
    return refusal.code in (HEADER_MISMATCH, METHOD_NOT_FOUND)


def _probe_error(fault: Fault) -> UpstreamError:
    """Return the error of a failed probe: LostDuringProbe for a lost connection, as the server may have exited."""
    if fault.code != FaultCode.CONNECTION_LOST:
        return UpstreamError(fault)
    return LostDuringProbe(replace(fault, details={**fault.details, "during": "probe"}))
