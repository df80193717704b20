"""Calls that were not made since nobody approved them: what the model gets, so that it does not try again blindly."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from hubbubd import bounds, payload
from hubbubd.errors import Category, Fault, HubError, UpstreamError

REASON: Final = "hubbub/reason"
"""The member of `_meta` that has the code."""

_NOT_AGAIN: Final = "Do not call it again unless the person asks for it."
_UNITS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"))


class _ExplainDenial(Protocol):
    """Returns what the model is to read, from the hub's message and the details of the fault."""

    def __call__(self, message: str, details: Mapping[str, Any]) -> str: ...


def is_denial(fault: Fault) -> bool:
    """Return whether this fault says that a call was not made since people or a rule did not allow it."""
    return fault.code in _EXPLANATIONS


def render_denied_call(fault: Fault) -> bytes:
    """Return the result for a tool's call that was not made. `is_denial` must be true for its fault."""
    return _render_denial(fault.code, fault.message, fault.details)


def render_refused_call(error: HubError) -> bytes | None:
    """Return the result for a tool's call that was refused since it was not approved; None for any other error."""
    if isinstance(error, UpstreamError):
        fault = error.fault
        return _render_denial(fault.code, fault.message, fault.details) if fault.category is Category.APPROVAL else None
    return _render_denial(error.reason, error.message, error.metadata) if error.reason in _EXPLANATIONS else None


def describe_duration(duration_s: float) -> str:
    """Return a duration in words, such as "2 hours": in the largest unit of which it is a whole number."""
    whole_s = round(duration_s)
    for unit_s, unit in _UNITS:
        if whole_s and whole_s % unit_s == 0:
            count = whole_s // unit_s
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{whole_s} second{'s' if whole_s != 1 else ''}"


def _render_denial(code: str, message: str, details: Mapping[str, Any]) -> bytes:
    """Return a tool's result that explains why the call was not made; `code` is one of _EXPLANATIONS."""
    text = _EXPLANATIONS[code](message, details)
    return payload.dumps({"content": [{"type": "text", "text": text}], "isError": True, "_meta": {REASON: code}})


def _explain_denied(message: str, details: Mapping[str, Any]) -> str:
    """Explain that a call was denied: by a person, if `details` name one."""
    if not details.get("denied_by"):
        return f"This call was not made: {message}. {_NOT_AGAIN}"
    reason = str(details.get("reason", "")).strip()
    return f"A person said no to this call{_format_reason(reason)} {_NOT_AGAIN}"


def _explain_expired(message: str, details: Mapping[str, Any]) -> str:
    """Explain that nobody approved a call in time."""
    waited_s = bounds.parse_real(str(details.get("waited_s", "")), low=0)
    if waited_s is None:
        return f"Nobody approved this call in time, so it was not made. {_NOT_AGAIN}"
    return f"Nobody approved this call within {describe_duration(waited_s)}, so it was not made. {_NOT_AGAIN}"


def _explain_withdrawn(message: str, details: Mapping[str, Any]) -> str:
    """Explain that the question was withdrawn before anybody decided."""
    return f"{_end_sentence(message)} Nobody has said no: it may be called again."


def _explain_rule_denied(message: str, details: Mapping[str, Any]) -> str:
    """Explain that a rule does not allow a call."""
    reason = str(details.get("message", "")).strip()
    return (
        f"A rule of the hub ({details.get('rule', '')}) does not allow this call{_format_reason(reason)} {_NOT_AGAIN}"
    )


def _explain_too_large(message: str, details: Mapping[str, Any]) -> str:
    """Explain that the arguments are too large to be approved."""
    return f"This call was not made: {message}. Call it with smaller arguments."


def _format_reason(text: str) -> str:
    """Return the end of a sentence: a colon and the reason; without a reason a full stop."""
    return f": {_end_sentence(text, capital=False)}" if text else "."


def _end_sentence(text: str, *, capital: bool = True) -> str:
    """Return a text with a full stop at its end, and by default a capital letter at its beginning."""
    sentence = text if text.endswith((".", "!", "?")) else f"{text}."
    return sentence[:1].upper() + sentence[1:] if capital else sentence


_EXPLANATIONS: Final[Mapping[str, _ExplainDenial]] = {
    "APPROVAL_DENIED": _explain_denied,
    "APPROVAL_EXPIRED": _explain_expired,
    "APPROVAL_WITHDRAWN": _explain_withdrawn,
    "APPROVAL_RULE_DENIED": _explain_rule_denied,
    "APPROVAL_TOO_LARGE": _explain_too_large,
}
