"""How hosts introduce themselves: in a handshake, or in the `_meta` of each request."""

from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.bounds import INTRODUCTION_BYTES
from hubbubd.core.access import Principal
from hubbubd.core.jsonrpc import INVALID_PARAMS, UNSUPPORTED_VERSION
from hubbubd.downstream.hosts.host import HANDSHAKE_REVISIONS, MAX_NAME, STATELESS_REVISIONS, McpHost
from hubbubd.downstream.protocol.messages import PROTOCOL_VERSION, Refusal, RequestMessage
from hubbubd.downstream.views.question_policy import select_known_capabilities

INFO: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
# Members of a request's `_meta` (2026-07-28, basic).


def parse_handshake_host(request: RequestMessage, caller: Principal, via: str) -> McpHost:
    """Return the host that sends an `initialize` request. Raises Refusal.

    A host that names an unknown revision is offered the newest one with a handshake.
    """
    revision = request.params.get("protocolVersion")
    if not isinstance(revision, str):
        raise Refusal(INVALID_PARAMS, "params.protocolVersion must be a string")
    info, capabilities = select_known_parts(
        _parse_object(request.params.get("clientInfo"), "params.clientInfo"),
        _parse_object(request.params.get("capabilities"), "params.capabilities"),
    )
    return McpHost(
        principal=caller,
        revision=revision if revision in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0],
        info=info,
        capabilities=capabilities,
        via=via,
    )


def select_known_parts(info: dict[str, Any], capabilities: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of a host's info and capabilities that the hub reads: less than 1 KiB for each session."""
    known_info = {key: info[key][:MAX_NAME] for key in ("name", "version") if isinstance(info.get(key), str)}
    return known_info, select_known_capabilities(capabilities)


def parse_revision(request: RequestMessage) -> str:
    """Return the revision that a request without a handshake names. Raises Refusal for an incomplete `_meta`."""
    meta: dict[str, Any] = request.params.get("_meta") or {}
    missing = [key for key in (PROTOCOL_VERSION, CAPABILITIES) if key not in meta]
    if missing:
        raise Refusal(INVALID_PARAMS, f"params._meta must have {' and '.join(missing)}")
    version = meta[PROTOCOL_VERSION]
    if not isinstance(version, str) or not isinstance(meta[CAPABILITIES], dict):
        raise Refusal(INVALID_PARAMS, f"params._meta: {PROTOCOL_VERSION} is a string, {CAPABILITIES} an object")
    return version


def parse_stateless_host(request: RequestMessage, caller: Principal, via: str) -> McpHost:
    """Return the host that sends a request without a handshake. Raises Refusal."""
    version = parse_revision(request)
    if version not in STATELESS_REVISIONS:
        raise refusal_for_revision(version)
    meta: dict[str, Any] = request.params["_meta"]
    return McpHost(
        principal=caller,
        revision=version,
        info=_parse_object(meta.get(INFO), INFO),
        capabilities=_parse_object(meta[CAPABILITIES], CAPABILITIES),
        via=via,
    )


def refusal_for_revision(version: str) -> Refusal:
    """Return the error for a revision that is not served; it names those that are."""
    data = {"supported": [*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS], "requested": version[:100]}
    return Refusal(UNSUPPORTED_VERSION, "this revision of the protocol is not served", data)


def _parse_object(value: object, where: str) -> dict[str, Any]:
    """Return a value of a host if it is a JSON object, else an empty one. Raises Refusal for an object too long."""
    if not isinstance(value, dict):
        return {}
    members = cast("dict[str, Any]", value)
    if members and len(payload.dumps(members)) > INTRODUCTION_BYTES:
        raise Refusal(INVALID_PARAMS, f"{where} may have {INTRODUCTION_BYTES} bytes")
    return members
