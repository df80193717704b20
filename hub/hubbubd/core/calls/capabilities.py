"""What the caller of a call can answer itself, as MCP client capabilities in the params (2026-07-28, basic, `_meta`).

A call that declares none has the hub's. One that declares some can lead to fewer kinds of questions, never to more.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from hubbubd import payload
from hubbubd.core.inbox.request_states import RequestKind

KEY: Final = "io.modelcontextprotocol/clientCapabilities"
"""The member of `_meta`."""


def declared_capabilities(params: bytes) -> Mapping[str, Any] | None:
    """Return the capabilities that a call's params declare; None if they declare none: then the hub's own apply."""
    if KEY.encode() not in params:
        return None
    meta = _as_mapping(_as_mapping(payload.loads(params)).get("_meta"))
    return _as_mapping(meta[KEY]) if KEY in meta else None


def can_answer(capabilities: Mapping[str, Any], kind: RequestKind, params: Mapping[str, Any]) -> bool:
    """Return whether a client with these capabilities can answer a request of this kind with these MCP params."""
    match kind:
        case RequestKind.ELICITATION_FORM | RequestKind.APPROVAL:
            return "form" in _elicitation_modes(capabilities)
        case RequestKind.ELICITATION_URL:
            return "url" in _elicitation_modes(capabilities)
        case RequestKind.SAMPLING:
            return "sampling" in capabilities and (
                "tools" not in params or "tools" in _as_mapping(capabilities["sampling"])
            )
        case RequestKind.ROOTS:
            return "roots" in capabilities


def needed_capabilities(kind: RequestKind) -> dict[str, Any]:
    """Return the capabilities that a client needs for a request (2026-07-28, basic, error -32021)."""
    match kind:
        case RequestKind.ELICITATION_FORM | RequestKind.APPROVAL:
            return {"elicitation": {"form": {}}}
        case RequestKind.ELICITATION_URL:
            return {"elicitation": {"url": {}}}
        case RequestKind.SAMPLING:
            return {"sampling": {}}
        case RequestKind.ROOTS:
            return {"roots": {}}


def _elicitation_modes(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the modes of elicitation; `{}` is forms alone (2025-11-25, client/elicitation)."""
    if "elicitation" not in capabilities:
        return {}
    return _as_mapping(capabilities["elicitation"]) or {"form": {}}


def _as_mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
