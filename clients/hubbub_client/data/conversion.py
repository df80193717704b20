"""Converts the hub's messages to records, by their descriptors.

JSON bytes become values, enums short lower-case strings, timestamps aware datetimes, and durations milliseconds. An
unset field (an empty string, enum zero) becomes None. If the record does not allow None, it becomes an empty string,
`unknown`, the epoch or an empty record instead. `read` raises nothing, whatever the hub sends.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from grpc import StatusCode

from hubbub_client import numbers, payload
from hubbub_client.data.records import RECORDS, Record
from hubbub_client.errors import HubbubError
from hubbub_shared.durations import to_seconds

R = TypeVar("R", bound=Record)
UNKNOWN = "unknown"
UNREADABLE = (ValueError, RecursionError)

# Fields of records, and so of the JSON, that have another name in the API: message, its field, the record's field.
NAMES: Mapping[str, Mapping[str, str]] = {
    "ApiToken": {"hold": "hold_ms"},
    "Approval": {"approved_at": "at"},
    "ApprovalRule": {"remember": "remember_ms"},
    "AuditEntry": {"kind": "sort"},
    "Call": {"pending_request_ids": "pending_ids", "perhaps_pending_request_ids": "perhaps_pending_ids"},
    "Event": {"occurred_at": "at", "type": "what"},
    "Finding": {"severity": "verdict"},
    "FleetMember": {"silent": "silent_ms"},
    "GetFleetResponse": {"clock_offset": "clock_offset_ms"},
    "GetStatusResponse": {
        "doubted_time": "doubted_ms",
        "open_pending_requests": "open_requests",
        "pending_requests": "requests",
        "read_at": "now",
    },
    "PendingRequest": {"events": "moments", "expires_at": "deadline"},
    "PendingRequestKindCount": {"kind": "state"},
    "ResourceUpdate": {"read_at": "at"},
    "ServerEvent": {"occurred_at": "at"},
    "Task": {"pending_request_ids": "pending_ids", "poll_interval": "poll_interval_ms", "ttl": "ttl_ms"},
    "TaskCount": {"status": "state"},
    "UnownedServer": {"since": "since_ms"},
}


def read(kind: type[R], message: Message) -> R:
    """Return the record of a message. A field that cannot be read is None, and the record's `defect` names it."""
    values: dict[str, Any] = {}
    defect = ""
    for name, read_field in _field_readers(message.DESCRIPTOR, kind):
        try:
            values[name] = read_field(message)
        except UNREADABLE as problem:  # one bad payload must not spoil a whole list
            values[name] = None
            defect = f"{name} cannot be read: {problem}"
    if defect and "defect" in values:
        values["defect"] = defect
    return kind(**values)


def read_result(data: bytes) -> Any:
    """Return the value of a payload outside a record. Raises HubbubError (ANSWER_UNREADABLE)."""
    try:
        return payload.loads(data)
    except UNREADABLE as problem:
        message = f"the response of the hub cannot be read: {problem}"
        raise HubbubError(message, reason="ANSWER_UNREADABLE", code=StatusCode.DATA_LOSS) from None


def read_document(data: bytes) -> Any:
    """Return the value of a payload; None if it cannot be read."""
    try:
        return payload.loads(data)
    except UNREADABLE:
        return None


def enum_number(enum: EnumDescriptor, name: str) -> Any:
    """Return the number of a short name such as `connected`. Raises ValueError, which lists the known names."""
    prefix = _enum_prefix(enum)
    short_names = [each.name.removeprefix(prefix).lower() for each in enum.values if each.number]
    if name not in short_names:
        raise ValueError(f"{name!r} is not one of {', '.join(short_names)}")
    return enum.values_by_name[prefix + name.upper()].number


def enum_numbers(enum: EnumDescriptor, names: Collection[str]) -> list[Any]:
    """Return the numbers of several short names. Raises ValueError as `enum_number`."""
    return [enum_number(enum, name) for name in names]


def enum_name(message: Message, field: str) -> str:
    """Return the short name of an enum field's value, such as `connected`."""
    name: str = _make_value_converter(cast("FieldDescriptor", message.DESCRIPTOR.fields_by_name[field]), "")(
        getattr(message, field)
    )
    return name


def _enum_prefix(enum: EnumDescriptor) -> str:
    """Return the prefix of the names of an enum's values: `CALL_STATE_` of CALL_STATE_UNSPECIFIED and the others."""
    zero = enum.values_by_number[0].name
    return zero.removesuffix("UNSPECIFIED")


@cache
def _field_readers(message: Descriptor, kind: type[Record]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Return the name of each field of a record, with a function that takes its value from a message."""
    # The annotations are texts, such as `datetime | None`.
    annotations = {each.name: str(each.type) for each in dataclasses.fields(kind)}
    names = NAMES.get(message.name, {})
    return tuple(
        (name, _make_field_reader(each, may_be_none="None" in annotations.get(name, "None")))
        for each in message.fields
        for name in [names.get(each.name, each.name)]
    )


def _make_field_reader(spec: FieldDescriptor, *, may_be_none: bool) -> Callable[[Any], Any]:
    """Return the function that takes the value of a field from a message.

    It returns None for an optional field that is not set, if the record allows None or the field is JSON bytes.
    """
    name, convert = spec.name, _make_value_converter(spec, None if may_be_none and not spec.is_repeated else "")
    if spec.is_repeated:
        return lambda message: tuple(convert(item) for item in getattr(message, name))
    if spec.has_presence and (may_be_none or spec.type == FieldDescriptor.TYPE_BYTES):
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _make_value_converter(spec: FieldDescriptor, unset: str | None) -> Callable[[Any], Any]:
    """Return the function that converts one value of a field.

    An empty string becomes `unset`; enum zero becomes None if `unset` is None, else UNKNOWN.
    """
    match spec.type:
        case FieldDescriptor.TYPE_BYTES:
            return payload.loads
        case FieldDescriptor.TYPE_STRING:
            return lambda value: value or unset
        case FieldDescriptor.TYPE_ENUM:
            assert spec.enum_type is not None
            prefix, zero_name = _enum_prefix(spec.enum_type), None if unset is None else UNKNOWN
            short_names = {each.number: each.name.removeprefix(prefix).lower() for each in spec.enum_type.values}
            # A newer hub may send numbers that this client does not know.
            return lambda number: short_names.get(number, str(number)) if number else zero_name
        case FieldDescriptor.TYPE_MESSAGE:
            assert spec.message_type is not None
            if spec.message_type.full_name == "google.protobuf.Timestamp":
                return lambda value: numbers.date(value.seconds, value.nanos)
            if spec.message_type.full_name == "google.protobuf.Duration":
                return lambda value: round(to_seconds(value) * 1000)
            kind = RECORDS[spec.message_type.name]
            return lambda value: read(kind, value)
        case _:
            return lambda value: value
