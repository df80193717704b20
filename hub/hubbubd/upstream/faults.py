"""Classification of what goes wrong between the hub and a server: one table of faults, and the ways into it.

A `Fault` is made from one of four kinds of evidence: a network exception, an HTTP status, a response that cannot be
used, or a process that ended.
"""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from time import time
from typing import Any, Final, cast

from hubbubd import bounds
from hubbubd.errors import Category, Fault, FaultCode, UpstreamError

BODY_EXCERPT: Final = 300
"""Characters of an error response's body that are kept in a fault's details."""

BODY_IN_MESSAGE: Final = 150
"""Characters of such a body that are in the fault's message, too."""

PAGE_BYTES: Final = 4096
"""Bytes of an error response's body that are looked at, for an excerpt or the title of a page."""

_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{1,300})", re.IGNORECASE)

TEMPORARY_STATUSES: Final = frozenset({404, 408, 421, 423, 425})
"""Statuses below 500 that can be temporary. A gateway answers 404 for a server that is just being deployed."""
LONGEST_WAIT_S: Final = 86_400.0
"""The longest wait that is read from a `Retry-After`, in seconds."""

_CODES: Final[Mapping[str, tuple[Category, bool, str]]] = {
    FaultCode.AUTHENTICATION_FAILED: (Category.SERVER, False, "the server refused the credentials"),
    "COMMAND_NOT_ALLOWED": (Category.CONNECTION, False, "the operator does not allow it"),
    "COMMAND_NOT_EXECUTABLE": (Category.CONNECTION, False, "the command cannot be executed"),
    "COMMAND_NOT_FOUND": (Category.CONNECTION, False, "there is no such command"),
    "CONFIG_INVALID": (Category.CONNECTION, False, "the configuration is invalid"),
    FaultCode.CONNECTION_LOST: (Category.CONNECTION, True, "the connection was lost"),
    "CONNECTION_REFUSED": (Category.CONNECTION, True, "nothing accepts connections there"),
    "CONNECTION_TIMEOUT": (Category.TIMEOUT, True, "the server did not connect in time"),
    "HOST_NOT_ALLOWED": (Category.CONNECTION, False, "the operator does not allow it"),
    "HOST_NOT_FOUND": (Category.CONNECTION, True, "the host's name does not resolve"),
    FaultCode.HTTP_ERROR: (Category.TRANSPORT, False, "the server answered with an HTTP error"),
    FaultCode.INVALID_RESPONSE: (Category.PROTOCOL, False, "the server's response is not MCP"),
    "METHOD_NOT_IN_REVISION": (Category.PROTOCOL, False, "the method is not one to call in this revision"),
    FaultCode.PROTOCOL_VERSION_MISMATCH: (Category.PROTOCOL, False, "no protocol revision in common"),
    "RATE_LIMITED": (Category.SERVER, True, "the server asks for fewer requests"),
    FaultCode.SESSION_LOST: (Category.TRANSPORT, True, "the server does not know the session any more"),
    "START_FAILED": (Category.CONNECTION, True, "the process cannot be started"),
    "TLS_FAILED": (Category.CONNECTION, True, "TLS failed"),
    "TRANSPORT_ERROR": (Category.TRANSPORT, True, "the transport failed"),
    "VARIABLE_NOT_ALLOWED": (Category.CONNECTION, False, "the operator does not allow it"),
    "VARIABLE_NOT_SET": (Category.CONNECTION, False, "an environment variable is not set"),
    "WORKING_DIRECTORY_INVALID": (Category.CONNECTION, False, "the working directory cannot be entered"),
}


def fault(
    code: str,
    message: str | None = None,
    *,
    retryable: bool | None = None,
    retry_after_s: float | None = None,
    **details: Any,
) -> Fault:
    """Return the fault with this code, with the category and sentence of the table; append `message` to the sentence.

    If `retryable` is None, the table decides it. Details that are None are omitted.
    """
    category, usually_retryable, sentence = _CODES[code]
    return Fault(
        code=code,
        category=category,
        message=f"{sentence}: {message}" if message else sentence,
        retryable=usually_retryable if retryable is None else retryable,
        retry_after_s=retry_after_s,
        details={key: value for key, value in details.items() if value is not None},
    )


def error(code: str, message: str | None = None, **details: Any) -> UpstreamError:
    """Return an UpstreamError with a fault of the table; the arguments are those of `fault`."""
    return UpstreamError(fault(code, message, **details))


def fault_from_status(status: int, headers: Mapping[str, str], body: bytes, *, in_session: bool) -> Fault:
    """Return the fault for an HTTP status of 400 and above.

    With `in_session` the request named a session, so 404 means that the server no longer knows the session. `headers`
    must find names in any case, as they are looked up in lower case.
    """
    text = _body_excerpt(headers, body)
    wait_s = read_retry_after_s(headers)
    note = f"HTTP {status}"
    if status in (401, 403):
        challenge = headers.get("www-authenticate")
        return fault(
            "AUTHENTICATION_FAILED",
            f"{note}; check the token in its headers",
            status=status,
            body=text,
            challenge=challenge,
        )
    if status == 429:
        return fault("RATE_LIMITED", note, retry_after_s=wait_s, status=status, body=text)
    if status == 404 and in_session:
        return fault("SESSION_LOST", note, status=status, body=text)
    if status == 404:
        note += "; check its url"
    if text is not None:
        note += f": {' '.join(text.split())[:BODY_IN_MESSAGE]}"
    is_temporary = status >= 500 or status in TEMPORARY_STATUSES
    return fault("HTTP_ERROR", note, retryable=is_temporary, retry_after_s=wait_s, status=status, body=text)


def _body_excerpt(headers: Mapping[str, str], body: bytes) -> str | None:
    """Return the beginning of an error's body; of a page of HTML its title, as the rest is for browsers.

    None for an empty body.
    """
    beginning = body[:PAGE_BYTES].decode("utf-8", "replace").strip()
    if "html" in headers.get("content-type", "").lower() or beginning[:9].lower() in ("<!doctype", "<html>"):
        title = _TITLE.search(beginning)
        return f"a page of HTML, {title[1].strip()[:BODY_EXCERPT]!r}" if title else "a page of HTML"
    return beginning[:BODY_EXCERPT] or None


def is_sign_of_life(fault: Fault) -> bool:
    """Return whether only a running server can have caused the fault of a request."""
    if fault.code == FaultCode.HTTP_ERROR:  # from 502 on, a gateway answers for a server that may be gone
        status = fault.details.get("status")
        return isinstance(status, int) and status < HTTPStatus.BAD_GATEWAY
    return fault.code in (FaultCode.AUTHENTICATION_FAILED, FaultCode.INVALID_RESPONSE)


def read_retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks to wait, at most a day; None without a valid one."""
    return bounds.parse_wait_s(headers.get("retry-after", ""), time(), LONGEST_WAIT_S)


def fault_from_exception(exc: BaseException) -> Fault:
    """Return the fault for an exception of a transport.

    If a cause carries a fault, return this fault; else the fault of a known network error, or TRANSPORT_ERROR.
    """
    causes = tuple(_iterate_causes(exc))
    for cause in causes:
        if isinstance(cause, UpstreamError):
            return cause.fault
    text = str(exc) or type(exc).__name__
    for kind, code in (
        (ssl.SSLError, "TLS_FAILED"),
        (socket.gaierror, "HOST_NOT_FOUND"),
        (ConnectionRefusedError, "CONNECTION_REFUSED"),
    ):
        if any(isinstance(cause, kind) for cause in causes):
            return fault(code, text, error=text)
    return fault("TRANSPORT_ERROR", text, error=repr(exc))


def _iterate_causes(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, each once: they may form a cycle. Of a group, yield the members instead.

    At most 100 exceptions are examined.
    """
    pending: list[BaseException] = [exc]
    seen: set[int] = set()
    while pending and len(seen) < 100:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, BaseExceptionGroup):
            pending.extend(cast("BaseExceptionGroup[BaseException]", current).exceptions)
        else:
            yield current
        pending.extend(cause for cause in (current.__cause__, current.__context__) if cause is not None)
