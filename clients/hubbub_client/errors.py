"""The library's exceptions: one class for each gRPC status that callers may want to handle.

HubbubError
├── Cancelled            the call was cancelled
├── InvalidArgument      the request is wrong; `violations` says where
├── DeadlineExceeded     the call took too long
├── NotFound             no such server, call, pending request or task
├── AlreadyExists        the name or id is taken
├── PermissionDenied     the caller is known, but not allowed
├── ResourceExhausted    a limit of the hub is reached
├── FailedPrecondition   right request, wrong state: ALREADY_ANSWERED, SERVER_NOT_CONNECTED, ...
├── Aborted              lost a race; trying again helps
│   └── RevisionConflict   the server has changed since it was read; has its current spec (specs.py)
├── Unimplemented        the hub is older than the client
├── Unavailable          no hub, or no connection to the server; trying again may help
│   └── ConnectionLost     the connection broke; `sent` says whether the hub may have seen the request
├── Unauthenticated      no valid token
└── UpstreamError        the server's own error (status UNKNOWN)
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from google.protobuf.message import DecodeError
from grpc import StatusCode, aio

from hubbub_client import numbers, payload
from hubbub_client.data.records import Fault

DETAILS_KEY = "grpc-status-details-bin"
DOMAIN = "hubbub"


class HubbubError(Exception):
    """The hub refused a request, could not be reached, or reported an error of the server.

    `reason` is stable and UPPER_SNAKE_CASE (google.rpc.ErrorInfo). `metadata` has only strings. `violations` pairs
    the path of a field with its problem. `retry_after_s` is in seconds.
    """

    code = StatusCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        violations: tuple[tuple[str, str], ...] = (),
        retry_after_s: float | None = None,
        help_url: str | None = None,
        code: StatusCode | None = None,
    ) -> None:
        """By default `code` is that of the class, and `reason` the name of the code."""
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.reason = reason or self.code.name
        self.metadata: dict[str, str] = dict(metadata or {})
        self.violations = violations
        self.retry_after_s = retry_after_s
        self.help_url = help_url

    def __str__(self) -> str:
        """Return the message with the reason: `no server 'x' (SERVER_NOT_FOUND)`."""
        return self.message if self.reason in self.message else f"{self.message} ({self.reason})"

    def to_json(self) -> dict[str, Any]:
        """Return `{code, reason, message, metadata}`; the message and the metadata contain the violations."""
        message = self.message
        for path, problem in self.violations:
            if problem not in message:
                message = f"{message}; {path}: {problem}"
        metadata = {**self.metadata, **dict(self.violations)}
        return {"code": self.code.name, "reason": self.reason, "message": message, "metadata": metadata}


class Cancelled(HubbubError):
    """The call was cancelled."""

    code = StatusCode.CANCELLED


class InvalidArgument(HubbubError):
    """The request is wrong; `violations` says where."""

    code = StatusCode.INVALID_ARGUMENT


class DeadlineExceeded(HubbubError):
    """The call took too long."""

    code = StatusCode.DEADLINE_EXCEEDED


class NotFound(HubbubError):
    """No such server, call, pending request or task."""

    code = StatusCode.NOT_FOUND


class AlreadyExists(HubbubError):
    """The name or id is taken."""

    code = StatusCode.ALREADY_EXISTS


class PermissionDenied(HubbubError):
    """The caller is known, but may not do this."""

    code = StatusCode.PERMISSION_DENIED


class ResourceExhausted(HubbubError):
    """A limit of the hub is reached."""

    code = StatusCode.RESOURCE_EXHAUSTED


class FailedPrecondition(HubbubError):
    """The request is right, but not in the present state."""

    code = StatusCode.FAILED_PRECONDITION


class Aborted(HubbubError):
    """Lost a race; trying again helps."""

    code = StatusCode.ABORTED
    conflict: bytes | None = None
    """Current state of the server, if the hub sent it: a serialized `hubbub.v1.RevisionConflict`."""


class Unimplemented(HubbubError):
    """The hub does not have this RPC."""

    code = StatusCode.UNIMPLEMENTED


class Unavailable(HubbubError):
    """No hub (HUB_UNREACHABLE), or a server that cannot be reached."""

    code = StatusCode.UNAVAILABLE


class ConnectionLost(Unavailable):
    """The connection to the hub was lost. If the RPC was not `sent`, the hub has not seen it."""

    def __init__(self, message: str, *, sent: bool = True, **details: Any) -> None:
        super().__init__(message, **details)
        self.sent = sent


class Unauthenticated(HubbubError):
    """No valid token."""

    code = StatusCode.UNAUTHENTICATED


class UpstreamError(HubbubError):
    """The MCP server responded with an error; the metadata has the JSON-RPC error."""

    code = StatusCode.UNKNOWN


_CODES = {cast("tuple[int, str]", code.value)[0]: code for code in StatusCode}
_BY_CODE = {kind.code: kind for kind in HubbubError.__subclasses__()}

# The status of a call's fault, by its code, else by its category; as in the hub.
FAULT_CODES: Mapping[str, StatusCode] = {
    "INVALID_ARGUMENT": StatusCode.INVALID_ARGUMENT,
    "AUTHENTICATION_FAILED": StatusCode.FAILED_PRECONDITION,
    "SERVER_NOT_CONNECTED": StatusCode.FAILED_PRECONDITION,
    "TASK_FAILED": StatusCode.UNKNOWN,
}
FAULT_CATEGORIES: Mapping[str, StatusCode] = {
    "connection": StatusCode.UNAVAILABLE,
    "transport": StatusCode.UNAVAILABLE,
    "timeout": StatusCode.DEADLINE_EXCEEDED,
    "protocol": StatusCode.FAILED_PRECONDITION,
    "server": StatusCode.UNKNOWN,
    "cancelled": StatusCode.CANCELLED,
    "approval": StatusCode.PERMISSION_DENIED,
}


def from_call(call_id: str, state: str, fault: Fault | None) -> HubbubError:
    """Return the exception for a call that failed or was cancelled, the same one that a waiting caller gets."""
    if fault is None:
        return HubbubError(f"the call has ended as {state}, without a reason", metadata={"call_id": call_id})
    details = {key: _as_text(value) for key, value in payload.as_object(fault.details).items() if value is not None}
    metadata = {"category": fault.category, "retryable": str(fault.retryable).lower(), "call_id": call_id}
    code = FAULT_CODES.get(fault.code) or FAULT_CATEGORIES.get(fault.category, StatusCode.INTERNAL)
    return _BY_CODE.get(code, HubbubError)(
        fault.message or fault.code,
        reason=fault.code,
        metadata={**metadata, **details},
        help_url=fault.help_url,
        code=code,
    )


def _as_text(value: object) -> str:
    """Return a string as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


LOST_REASON_MESSAGE: Final = "Internal error from Core"
"""The message of gRPC for a stream that ended before its first message was written: it has lost the reason."""


def from_rpc(failure: aio.AioRpcError) -> HubbubError:
    """Return the exception for a failed RPC, with the details of its google.rpc.Status (AIP-193) if it has one."""
    trailers = failure.trailing_metadata() or ()
    document = next((value for key, value in trailers if key == DETAILS_KEY), None)
    details = _read_details(document) if isinstance(document, bytes) else {}
    code, message = failure.code(), failure.details()
    is_reason_lost = code is StatusCode.INTERNAL and message == LOST_REASON_MESSAGE
    # CANCELLED comes from a hub that stops (https://github.com/grpc/grpc/issues/41785), or from a proxy.
    is_connection_lost = code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED) or is_reason_lost
    if is_connection_lost and "reason" not in details:  # from gRPC here, or from a proxy
        problem, sent = f"the connection to the hub was lost ({message})", not _had_no_connection(message)
        reason = "UNAVAILABLE" if sent else "HUB_UNREACHABLE"
        return ConnectionLost(problem, sent=sent, reason=reason, retry_after_s=details.get("retry_after_s"))
    return _make_error(code, message, details)


def _had_no_connection(message: str | None) -> bool:
    """Return whether an RPC failed without a connection, so that nothing was sent; only gRPC's message tells that."""
    return (message or "").startswith("failed to connect to all addresses")


def from_status(document: bytes) -> HubbubError:
    """Return the exception for a serialized google.rpc.Status, the same one as for an RPC that failed with it."""
    from hubbub_client import status  # imported late, as below

    number, message = status.read_summary(document)
    return _make_error(_CODES.get(number, StatusCode.UNKNOWN), message, _read_details(document))


def _make_error(code: StatusCode, message: str | None, details: dict[str, Any]) -> HubbubError:
    """Return the error for a status; `details` are its further fields."""
    # Only Aborted has a conflict, and its constructor takes none.
    conflict, message = details.pop("conflict", None), message or code.name
    error = _BY_CODE.get(code, HubbubError)(message, code=code, **details)
    if isinstance(error, Aborted):
        error.conflict = conflict
    return error


def _read_details(document: bytes) -> dict[str, Any]:
    """Return the details of a serialized google.rpc.Status, under the names of HubbubError's fields."""
    from hubbub_client import status  # imported late, since few programs see an error

    fields: dict[str, Any] = {}
    with suppress(DecodeError):  # from a proxy, not from a hub
        for name, detail in status.iterate_details(document):
            _add_detail(name, detail, fields)
    return fields


def _add_detail(name: str, detail: Any, fields: dict[str, Any]) -> None:
    """Add the content of a detail of a status to `fields`, by the names of the fields of HubbubError."""
    match name:
        case "ErrorInfo" if detail.domain == DOMAIN:
            fields |= {"reason": detail.reason, "metadata": {each.key: each.value for each in detail.metadata}}
        case "RetryInfo":
            wait = detail.retry_delay
            fields["retry_after_s"] = (numbers.whole(wait.seconds) or 0) + (numbers.whole(wait.nanos) or 0) / 1e9
        case "Help" if detail.links:
            fields["help_url"] = detail.links[0].url
        case "RevisionConflict":
            fields["conflict"] = detail.SerializeToString()
        case "BadRequest":
            fields["violations"] = tuple((each.field, each.description) for each in detail.field_violations)
        case _:
            pass
