"""Reads google.rpc.Status (AIP-193), as far as hubs use it, without the package of generated messages.

Imported only when an RPC fails, since the import takes time.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from hubbub.v1.server_pb2 import RevisionConflict

# The fields to read of each message: name, number, type, and whether it is repeated.
# https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto
_MESSAGES: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "Status": (("code", 1, "int64", False), ("message", 2, "string", False), ("details", 3, "Detail", True)),
    "Detail": (("type_url", 1, "string", False), ("value", 2, "bytes", False)),
    "ErrorInfo": (("reason", 1, "string", False), ("domain", 2, "string", False), ("metadata", 3, "Entry", True)),
    "Entry": (("key", 1, "string", False), ("value", 2, "string", False)),
    "RetryInfo": (("retry_delay", 1, "Duration", False),),
    "Duration": (("seconds", 1, "int64", False), ("nanos", 2, "int32", False)),
    "Help": (("links", 1, "Link", True),),
    "Link": (("url", 2, "string", False),),
    "BadRequest": (("field_violations", 1, "FieldViolation", True),),
    "FieldViolation": (("field", 1, "string", False), ("description", 2, "string", False)),
}
_PACKAGE = "hubbub_client"
UNKNOWN = 2
_TYPES = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
}


def _make_field(name: str, number: int, type_name: str, repeated: bool) -> FieldDescriptorProto:
    """Return the descriptor of a field."""
    return FieldDescriptorProto(
        name=name,
        number=number,
        type=_TYPES.get(type_name, FieldDescriptorProto.TYPE_MESSAGE),
        type_name=None if type_name in _TYPES else f".{_PACKAGE}.{type_name}",
        label=FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL,
    )


# A separate pool, since the program may have loaded the generated messages too.
_POOL = DescriptorPool()
_POOL.AddSerializedFile(
    FileDescriptorProto(
        name="status.proto",
        package=_PACKAGE,
        syntax="proto3",
        message_type=[
            DescriptorProto(name=name, field=[_make_field(*each) for each in fields])
            for name, fields in _MESSAGES.items()
        ],
    ).SerializeToString()
)


def _message_class(name: str) -> Any:
    """Return the class for a message of _MESSAGES, from the pool."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


_STATUS = _message_class("Status")
_DETAILS = {
    RevisionConflict.DESCRIPTOR.full_name: RevisionConflict,
    **{f"google.rpc.{name}": _message_class(name) for name in ("ErrorInfo", "RetryInfo", "Help", "BadRequest")},
}


def read_summary(document: bytes) -> tuple[int, str]:
    """Return the code and the message of a status; UNKNOWN for one that cannot be read."""
    try:
        status = _STATUS.FromString(document)
    except DecodeError:
        return UNKNOWN, ""
    return status.code, status.message


def iterate_details(document: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the name and the message of each known detail of a status. Raises DecodeError."""
    for each in _STATUS.FromString(document).details:
        name = each.type_url.rpartition("/")[2]
        if name in _DETAILS:
            yield name.rpartition(".")[2], _DETAILS[name].FromString(each.value)
