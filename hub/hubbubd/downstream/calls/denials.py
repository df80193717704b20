"""Calls that were not made since nobody approved them: what the model gets, so that it does not try again blindly."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from hubbubd import bounds, payload
from hubbubd.errors import Category, Fault, HubError, UpstreamError

REASON: Final = "hubbub/reason"
"""The member of `_meta` that has the code."""

_NOT_AGAIN: Final = "Do not call it again unless the person asks for it."
_UNITS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"))


class _Words(Protocol):
    """Returns the words for the model, from the hub's message and the details."""

    def __call__(self, message: str, details: Mapping[str, Any]) -> str: ...


def is_denial(fault: Fault) -> bool:
    """Return whether a call with this fault was not made, as people or a rule did not allow it."""
    return fault.code in _WORDS


def render_denied(fault: Fault) -> bytes:
    """Return the result of a call that was not made, by its fault."""
    return _render(fault.code, fault.message, fault.details)


def render_refused(error: HubError) -> bytes | None:
    """Return the result of a call that was refused for the same reasons; None for an error of another kind."""
    if isinstance(error, UpstreamError):
        fault = error.fault
        return _render(fault.code, fault.message, fault.details) if fault.category is Category.APPROVAL else None
    return _render(error.reason, error.message, error.metadata) if error.reason in _WORDS else None


def in_words(seconds: float) -> str:
    """Return a time in words: in the largest unit of which it is a whole number."""
    whole = round(seconds)
    for length, unit in _UNITS:
        if whole and whole % length == 0:
            count = whole // length
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{whole} second{'s' if whole != 1 else ''}"


def _render(code: str, message: str, details: Mapping[str, Any]) -> bytes:
    words = _WORDS[code](message, details)
    return payload.dumps({"content": [{"type": "text", "text": words}], "isError": True, "_meta": {REASON: code}})


def _denied(message: str, details: Mapping[str, Any]) -> str:
    if not details.get("denied_by"):
        return f"This call was not made: {message}. {_NOT_AGAIN}"
    reason = str(details.get("reason", "")).strip()
    return f"A person said no to this call{_after_colon(reason)} {_NOT_AGAIN}"


def _expired(message: str, details: Mapping[str, Any]) -> str:
    waited_s = bounds.parse_real(str(details.get("waited_s", "")), low=0)
    if waited_s is None:
        return f"Nobody approved this call in time, so it was not made. {_NOT_AGAIN}"
    return f"Nobody approved this call within {in_words(waited_s)}, so it was not made. {_NOT_AGAIN}"


def _withdrawn(message: str, details: Mapping[str, Any]) -> str:
    return f"{_sentence(message)} Nobody has said no: it may be called again."


def _rule_denied(message: str, details: Mapping[str, Any]) -> str:
    said = str(details.get("message", "")).strip()
    return f"A rule of the hub ({details.get('rule', '')}) does not allow this call{_after_colon(said)} {_NOT_AGAIN}"


def _too_large(message: str, details: Mapping[str, Any]) -> str:
    return f"This call was not made: {message}. Call it with smaller arguments."


def _after_colon(text: str) -> str:
    return f": {_sentence(text, capital=False)}" if text else "."


def _sentence(text: str, *, capital: bool = True) -> str:
    ended = text if text.endswith((".", "!", "?")) else f"{text}."
    return ended[:1].upper() + ended[1:] if capital else ended


_WORDS: Final[Mapping[str, _Words]] = {
    "APPROVAL_DENIED": _denied,
    "APPROVAL_EXPIRED": _expired,
    "APPROVAL_WITHDRAWN": _withdrawn,
    "APPROVAL_RULE_DENIED": _rule_denied,
    "APPROVAL_TOO_LARGE": _too_large,
}
