"""What goes wrong between the hub and a server, classified: one table, and the ways into it.

A `Fault` comes from one of four kinds of evidence: an exception of the network, an HTTP status, a response that cannot
be read, or a process that ended.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping
from time import time
from typing import Any, Final, cast

import httpx2

from hubbubd import bounds
from hubbubd.errors import Category, Fault, FaultCode, UpstreamError

BODY_EXCERPT: Final = 300
"""Characters of a refused response's body that are kept in a fault's details."""

PASSING: Final = frozenset({404, 408, 421, 423, 425})
"""Statuses below 500 that can pass by themselves. A gateway says 404 for a server that is just being deployed."""
LONGEST_WAIT_S: Final = 86_400.0
"""The longest wait that is read out of a `Retry-After`."""

_CODES: Final[Mapping[str, tuple[Category, bool, str]]] = {
    FaultCode.AUTHENTICATION_FAILED: (Category.SERVER, False, "the server refused the credentials"),
    "COMMAND_NOT_ALLOWED": (Category.CONNECTION, False, "the operator does not allow it"),
    "COMMAND_NOT_EXECUTABLE": (Category.CONNECTION, False, "the command cannot be executed"),
    "COMMAND_NOT_FOUND": (Category.CONNECTION, False, "there is no such command"),
    "CONFIG_INVALID": (Category.CONNECTION, False, "the configuration does not hold"),
    FaultCode.CONNECTION_LOST: (Category.CONNECTION, True, "the connection was lost"),
    "CONNECTION_REFUSED": (Category.CONNECTION, True, "nothing accepts connections there"),
    "CONNECTION_TIMEOUT": (Category.TIMEOUT, True, "the server did not connect in time"),
    "GET_STREAM_LOST": (Category.TRANSPORT, True, "the stream of what the server asks broke and did not come back"),
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
    """A fault as the table has it; `message` adds to the table's sentence, `None` details are left out."""
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
    """The fault as an exception."""
    return UpstreamError(fault(code, message, **details))


def of_status(status: int, headers: httpx2.Headers, body: bytes, *, session: bool) -> Fault:
    """What an HTTP status of 400 and above means; `session` says that the request named one."""
    text = body[: BODY_EXCERPT * 4].decode("utf-8", "replace").strip()[:BODY_EXCERPT] or None
    wait = retry_after_s(headers)
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
        return fault("RATE_LIMITED", note, retry_after_s=wait, status=status, body=text)
    if status == 404 and session:
        return fault("SESSION_LOST", note, status=status, body=text)
    if status == 404:
        note += "; check its url"
    passes = status >= 500 or status in PASSING
    return fault("HTTP_ERROR", note, retryable=passes, retry_after_s=wait, status=status, body=text)


def retry_after_s(headers: httpx2.Headers) -> float | None:
    """Seconds a `Retry-After` header asks to wait, a day at most; None without a usable one."""
    return bounds.wait_text(headers.get("retry-after", ""), time(), LONGEST_WAIT_S)


def of_exception(exc: BaseException) -> Fault:
    """What an exception out of a transport means; groups and causes are looked through."""
    causes = tuple(_causes(exc))
    for cause in causes:
        if isinstance(cause, UpstreamError):
            return cause.fault
    text = str(exc) or type(exc).__name__
    for kind, code in (
        (httpx2.ConnectTimeout, "CONNECTION_TIMEOUT"),
        (ssl.SSLError, "TLS_FAILED"),
        (socket.gaierror, "HOST_NOT_FOUND"),
        (ConnectionRefusedError, "CONNECTION_REFUSED"),
        (httpx2.ConnectError, "CONNECTION_REFUSED"),
        (httpx2.InvalidURL, "CONFIG_INVALID"),
        (httpx2.UnsupportedProtocol, "CONFIG_INVALID"),
        (httpx2.SSEError, "INVALID_RESPONSE"),
        (httpx2.LocalProtocolError, "INVALID_RESPONSE"),
        (httpx2.TransportError, "CONNECTION_LOST"),
    ):
        if any(isinstance(cause, kind) for cause in causes):
            return fault(code, text, error=text)
    for cause in causes:
        if isinstance(cause, httpx2.HTTPStatusError):
            return of_status(cause.response.status_code, cause.response.headers, b"", session=False)
    return fault("TRANSPORT_ERROR", text, error=repr(exc))


def _causes(exc: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException] = [exc]
    seen: set[int] = set()
    while waiting and len(seen) < 100:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(cast("BaseExceptionGroup[BaseException]", one).exceptions)
        else:
            yield one
        waiting.extend(cause for cause in (one.__cause__, one.__context__) if cause is not None)
