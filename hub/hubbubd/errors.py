"""The errors that the hub raises on purpose. `rpc/status.py` maps them to gRPC statuses.

HubError                 for callers of the API: a kind (the class), a stable `reason`, a sentence, metadata
├── InvalidArgument      the request itself is wrong; `violations` says which fields and why
├── NotFound             no such server, call, pending request or task
├── AlreadyExists        the name or id is taken
├── FailedPrecondition   right request, wrong moment: ALREADY_ANSWERED, SERVER_NOT_CONNECTED, ...
├── PermissionDenied     known, but not allowed
├── Unauthenticated      no valid credential
├── ResourceExhausted    a documented limit is reached (quota, rate limit, queue)
├── Unavailable          the hub cannot do it now (store, shutdown); retrying may help
├── Aborted              lost a race inside the hub (optimistic concurrency); retrying helps
└── UpstreamError        a connection or a call failed; carries the classified `Fault`
ConfigError              a setting is wrong; names the key (the daemon exits with 2)
PeerError                a JSON-RPC error, as it came from a server or goes to one
VaultError               the secrets of a server cannot be read or kept
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, cast

from hubbubd.bounds import Span
from hubbubd.redaction import REDACTION

HELP_PATH = "errors/"
"""Directory of the pages about each reason, in this repository."""


class Category(StrEnum):
    """Which part of a call or connection failed."""

    CONNECTION = "connection"
    TRANSPORT = "transport"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    SERVER = "server"
    CANCELLED = "cancelled"
    APPROVAL = "approval"
    """No part has failed: people did not approve it."""


class FaultCode(StrEnum):
    """The codes of faults that the hub acts upon; all others are only reported. `hubbub explain` explains each."""

    AUTHENTICATION_FAILED = "AUTHENTICATION_FAILED"
    CONNECTION_LOST = "CONNECTION_LOST"
    HTTP_ERROR = "HTTP_ERROR"
    INVALID_RESPONSE = "INVALID_RESPONSE"
    PROTOCOL_VERSION_MISMATCH = "PROTOCOL_VERSION_MISMATCH"
    SESSION_LOST = "SESSION_LOST"


class HelpLinks:
    """Where the site of the documents is served: the setting `help_base_url`, global to the process."""

    base = ""

    @classmethod
    def serve_at(cls, url: str | None) -> None:
        """Make help links absolute; None leaves them as paths within the site."""
        cls.base = f"{url.rstrip('/')}/" if url else ""


def help_url(reason: str) -> str:
    """Return the link to the page about a reason."""
    return f"{HelpLinks.base}{HELP_PATH}{reason.lower()}.html"


def first_cause(exc: Exception) -> Exception:
    """Return the first exception within an exception group, which a task group raises; another one as it is."""
    while isinstance(exc, ExceptionGroup):
        exc = cast("ExceptionGroup[Exception]", exc).exceptions[0]
    return exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a connection or call failed, classified. Data in records, not an exception; redacted on creation.

    `details` is JSON: server, method, elapsed_s, error; for stdio exit_code and stderr (the last lines).
    """

    code: str
    category: Category
    message: str
    retryable: bool = False
    retry_after_s: Span | None = None
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", REDACTION.redact_text(self.message))
        object.__setattr__(self, "details", REDACTION.redact_value(self.details))

    @property
    def help_url(self) -> str:
        """The link to the page about this code."""
        return help_url(self.code)


class HubError(Exception):
    """Base of errors for callers. `reason` is stable, UPPER_SNAKE_CASE; `metadata` has only strings. Redacted."""

    reason = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Redact known secrets in all parts. Without a `reason`, that of the class holds."""
        message = REDACTION.redact_text(message)
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).reason
        self.metadata: dict[str, str] = dict(REDACTION.redact_value(metadata or {}))
        self.retry_after_s = retry_after_s


class InvalidArgument(HubError):
    """The request is invalid; `violations` pairs each field's path with its problem."""

    reason = "INVALID_ARGUMENT"

    def __init__(self, message: str, violations: tuple[tuple[str, str], ...] = (), *, reason: str | None = None):
        """Each of `violations` is the path of a field, and its problem. Without a `reason`, that of the class holds."""
        super().__init__(message, reason=reason)
        self.violations = violations

    @classmethod
    def field(cls, path: str, problem: str, *, reason: str | None = None) -> Self:
        """Return an error with one violation, which is also the message."""
        return cls(f"{path}: {problem}", ((path, problem),), reason=reason)

    @classmethod
    def fields(cls, violations: tuple[tuple[str, str], ...], *, reason: str | None = None) -> Self:
        """Return an error with these violations, each a field's path and its problem; its message lists them all."""
        return cls("; ".join(f"{path}: {problem}" for path, problem in violations), violations, reason=reason)


class InvalidServerConfig(InvalidArgument):
    """A server may not be configured like this; `violations` name keys of its configuration."""


class NotFound(HubError):
    """No such thing, or one out of the caller's scope. `noun` is server, call, request, task or service."""

    reason = "NOT_FOUND"

    def __init__(self, noun: str, name: str) -> None:
        super().__init__(f"no {noun} {name!r}", reason=f"{noun.upper()}_NOT_FOUND", metadata={noun: name})


class AlreadyExists(HubError):
    """The name or id is taken."""

    reason = "ALREADY_EXISTS"


class FailedPrecondition(HubError):
    """The request is valid, but not in the current state."""

    reason = "FAILED_PRECONDITION"


class PermissionDenied(HubError):
    """The caller lacks a permission."""

    reason = "PERMISSION_DENIED"


class Unauthenticated(HubError):
    """No valid credential."""

    reason = "UNAUTHENTICATED"


class ResourceExhausted(HubError):
    """A documented limit is reached."""

    reason = "RESOURCE_EXHAUSTED"


class Unavailable(HubError):
    """The hub cannot do it now; retrying may help."""

    reason = "UNAVAILABLE"


class UnknownOutcome(Unavailable):
    """The change may have been made, or may be yet; the records will show."""

    reason = "OUTCOME_UNKNOWN"


class Aborted(HubError):
    """Lost a race inside the hub; retrying helps."""

    reason = "ABORTED"


class UpstreamError(HubError):
    """A connection or call failed; `fault` says how."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message, reason=fault.code, retry_after_s=fault.retry_after_s)
        self.fault = fault


class ConfigError(Exception):
    """A setting is invalid. `key` is its dotted path, with the file where there is one."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class VaultError(OSError):
    """The secrets of a server cannot be read or kept. If it was said in time, nothing was changed."""


class Overtaken(VaultError):
    """Another member of the fleet has written these secrets since this member read them: it has the server now."""


class PeerError(Exception):
    """A JSON-RPC error: received from a server, or raised to answer one."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @property
    def details(self) -> dict[str, Any]:
        """The error as `Fault.details`."""
        details: dict[str, Any] = {"jsonrpc_code": self.code, "jsonrpc_message": self.message}
        return details if self.data is None else {**details, "jsonrpc_data": self.data}
