"""Maps errors to gRPC statuses, with details as google.rpc defines them. The only place that does.

Every status has ErrorInfo (domain "hubbub", the stable reason) and, where it helps, RetryInfo, BadRequest and Help.
They travel in trailing metadata, whose size is limited, so all of it is bounded.
"""

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, cast

import grpc
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details_pb2
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from hubbubd import bounds, errors, payload
from hubbubd.core.access import Permission
from hubbubd.errors import Category, Fault, HubError, InvalidArgument, PeerError, UpstreamError
from hubbubd.rpc.context import principal
from hubbubd.store import StoreUnavailable, WriteConflict

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

DOMAIN = "hubbub"

CODES: Mapping[type[Exception], grpc.StatusCode] = MappingProxyType(
    {
        errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
        errors.NotFound: grpc.StatusCode.NOT_FOUND,
        errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
        errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
        errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
        errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
        errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
        errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
        errors.Aborted: grpc.StatusCode.ABORTED,
        PeerError: grpc.StatusCode.UNKNOWN,
        StoreUnavailable: grpc.StatusCode.UNAVAILABLE,
        WriteConflict: grpc.StatusCode.ABORTED,
    }
)

FAULT_CODES: Mapping[Category, grpc.StatusCode] = MappingProxyType(
    {
        Category.CONNECTION: grpc.StatusCode.UNAVAILABLE,
        Category.TRANSPORT: grpc.StatusCode.UNAVAILABLE,
        Category.TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
        Category.PROTOCOL: grpc.StatusCode.FAILED_PRECONDITION,
        Category.SERVER: grpc.StatusCode.UNKNOWN,
        Category.CANCELLED: grpc.StatusCode.CANCELLED,
        Category.APPROVAL: grpc.StatusCode.PERMISSION_DENIED,
    }
)

# Reasons whose category or class would map to a misleading code. UNAUTHENTICATED in particular is about the caller's
# own credential, never about the hub's at a server.
REASON_CODES: Mapping[str, grpc.StatusCode] = MappingProxyType(
    {
        "INVALID_ARGUMENT": grpc.StatusCode.INVALID_ARGUMENT,
        "AUTHENTICATION_FAILED": grpc.StatusCode.FAILED_PRECONDITION,
        "SERVER_NOT_CONNECTED": grpc.StatusCode.FAILED_PRECONDITION,
        "TASK_FAILED": grpc.StatusCode.UNKNOWN,
    }
)

_REASONS: Mapping[type[Exception], str] = MappingProxyType(
    {PeerError: "SERVER_ERROR", StoreUnavailable: "STORE_UNAVAILABLE", WriteConflict: "CONFLICT"}
)


def _status_number(code: grpc.StatusCode) -> int:
    return cast("tuple[int, str]", code.value)[0]


_CODES_BY_NUMBER = {_status_number(code): code for code in grpc.StatusCode}


class Detailed(errors.Aborted):
    """An error with further API messages in its status details, as far as they fit."""

    def __init__(self, error: errors.Aborted, *details: Message) -> None:
        super().__init__(error.message, reason=error.reason, metadata=error.metadata)
        self.details = details


class Passed(HubError):
    """An error of another member of the fleet, with the status that the member sent."""

    def __init__(self, status: Status) -> None:
        info = error_info(status)
        super().__init__(status.message, reason=info.reason, metadata=info.metadata)
        self.status = status


class PassedDenial(Passed, errors.PermissionDenied):
    """A passed error for a caller that lacks a permission."""


def error_of_status(status: Status) -> Passed:
    """Return the exception for the status of another member; PERMISSION_DENIED becomes a PermissionDenied."""
    is_denial = status.code == _status_number(grpc.StatusCode.PERMISSION_DENIED)
    return (PassedDenial if is_denial else Passed)(status)


def error_info(status: Status) -> details_pb2.ErrorInfo:
    """Return the ErrorInfo (reason and metadata) of a status that a hub sent; an empty one for other statuses."""
    info = details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info):
            break
    return info if info.domain == DOMAIN else details_pb2.ErrorInfo()


# gRPC peers refuse more than 8 KiB of metadata. Details are base64-encoded; the message is sent twice, once
# percent-encoded: three bytes per byte that is not ASCII.
_DETAILS_BYTES = 3072
_MESSAGE_BYTES = 768
_CLIPS = (1024, 384, 128, 40)  # bytes of each text in the details; the first that makes them fit
_ENTRIES = 16  # of metadata, and of violations

# The delay may come from a server, which can ask for any number.
_LONGEST_RETRY_S = 86_400.0


def code_of(exc: Exception) -> grpc.StatusCode:
    """Return an error's status code; INTERNAL for an exception that no table lists, which is a fault of the hub."""
    if isinstance(exc, Passed):
        return _CODES_BY_NUMBER.get(exc.status.code, grpc.StatusCode.UNKNOWN)
    if isinstance(exc, HubError) and exc.reason in REASON_CODES:
        return REASON_CODES[exc.reason]
    if isinstance(exc, UpstreamError):
        return FAULT_CODES[exc.fault.category]
    return next((CODES[kind] for kind in type(exc).__mro__ if kind in CODES), grpc.StatusCode.INTERNAL)


def status_of(exc: Exception) -> Status:
    """Return an error's status, small enough for trailing metadata.

    Internal errors are not shown to callers: they get a random incident id, under which the traceback is logged.
    """
    if isinstance(exc, Passed):
        return exc.status
    code = code_of(exc)
    if code is grpc.StatusCode.INTERNAL:
        incident = secrets.token_hex(6)
        log.error("incident", incident=incident, exc_info=exc)
        exc = HubError(f"internal error, incident {incident}", metadata={"incident": incident})
    number = _status_number(code)
    message = _clip(str(exc), _MESSAGE_BYTES)
    status = Status()
    # Cut the texts shorter until all fit. What is too long even then is sent as it is.
    for clip in _CLIPS:
        status = Status(
            code=number, message=message, details=[_pack(detail) for detail in _standard_details(exc, clip)]
        )
        if status.ByteSize() <= _DETAILS_BYTES:
            break
    _add_details(status, exc.details if isinstance(exc, Detailed) else ())
    return status


def _add_details(status: Status, details: Sequence[Message]) -> None:
    """Add details to a status; a detail that does not fit loses its largest fields until it does."""
    for detail in details:
        shortened = type(detail)()
        shortened.CopyFrom(detail)
        while status.ByteSize() + _pack(shortened).ByteSize() > _DETAILS_BYTES and (parts := shortened.ListFields()):
            largest = max(parts, key=lambda part: len(copy_only_field(shortened, part[0].name).SerializeToString()))
            shortened.ClearField(largest[0].name)
        status.details.append(_pack(shortened))


def copy_only_field(message: Message, name: str) -> Message:
    """Return a copy of a message with only one of its fields."""
    copy = type(message)()
    copy.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.name != name:
            copy.ClearField(field.name)
    return copy


def wait_over_error() -> UpstreamError:
    """Return the error for a call that took longer than its caller was willing to wait."""
    message = "the call took longer than its caller wanted to wait"
    return UpstreamError(Fault(code="WAIT_OVER", category=Category.TIMEOUT, message=message))


async def abort(context: Context, exc: Exception) -> NoReturn:
    """End the RPC with the error's status. Raises CancelledError when its caller has disconnected."""
    status = rpc_status.to_status(status_of(exc))  # pyright: ignore[reportUnknownMemberType] - it has no types
    try:
        await context.abort(status.code, status.details, status.trailing_metadata)
    except grpc.aio.InternalError:
        # The status cannot be sent. Otherwise gRPC would log an internal error for each caller that leaves early.
        raise asyncio.CancelledError from None


def _pack(detail: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed


def _standard_details(exc: Exception, clip: int) -> Iterator[Message]:
    """Yield an error's details as google.rpc has them, each text cut to `clip` bytes."""
    reason = exc.reason if isinstance(exc, HubError) else _REASONS[type(exc)]
    metadata = {key: _clip(value, clip) for key, value in list(_error_metadata(exc).items())[:_ENTRIES]}
    yield details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)
    if isinstance(exc, InvalidArgument) and exc.violations:
        yield _bad_request_detail(exc.violations, clip)
    if isinstance(exc, HubError) and exc.retry_after_s is not None:
        retry = details_pb2.RetryInfo()
        wait_s = bounds.clamp_seconds(exc.retry_after_s, high=_LONGEST_RETRY_S) or 0.0
        retry.retry_delay.FromMilliseconds(round(wait_s * 1000))
        yield retry
    yield details_pb2.Help(links=[details_pb2.Help.Link(description=reason, url=errors.help_url(reason))])


def _bad_request_detail(violations: tuple[tuple[str, str], ...], clip: int) -> Message:
    """Return the detail with the invalid fields: the first _ENTRIES of them, each text cut to `clip` bytes."""
    listed = [(_clip(path, clip), _clip(problem, clip)) for path, problem in violations[:_ENTRIES]]
    if len(violations) > _ENTRIES:
        listed.append(("", f"and {len(violations) - _ENTRIES} more"))
    fields = [details_pb2.BadRequest.FieldViolation(field=path, description=problem) for path, problem in listed]
    return details_pb2.BadRequest(field_violations=fields)


def _error_metadata(exc: Exception) -> dict[str, str]:
    """Return the metadata for an error's ErrorInfo."""
    match exc:
        case UpstreamError():
            return {**exc.metadata, **_fault_metadata(exc.fault)}
        case HubError():
            return exc.metadata
        case PeerError():
            return _jsonrpc_metadata(exc.code, exc.message, exc.data)
        case _:
            return {}


def _fault_metadata(fault: Fault) -> dict[str, str]:
    """Return a fault's details as metadata; without lines of a server's log unless the caller may see them."""
    metadata = {"category": fault.category.value, "retryable": str(fault.retryable).lower()}
    details = {key: value for key, value in fault.details.items() if value is not None}
    if not principal().may(Permission.SEE, str(details.get("server", ""))):
        details.pop("stderr", None)  # lines of a server's log need `see`
    return metadata | {key: _as_text(value) for key, value in details.items()}


def _jsonrpc_metadata(code: int, message: str, data: object) -> dict[str, str]:
    """Return the JSON-RPC error of a server as metadata."""
    metadata = {"jsonrpc_code": str(code), "jsonrpc_message": message}
    return metadata if data is None else metadata | {"jsonrpc_data": _as_text(data)}


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else payload.dumps(value).decode()


def _clip(text: str, size: int) -> str:
    """Cut a text to `size` bytes of UTF-8; the ellipsis that marks the cut has three of them.

    Lone surrogates, which UTF-8 cannot encode, are replaced.
    """
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= size else raw[: size - 3].decode("utf-8", "ignore") + "…"
