"""The fields of ServerSpec and the keys of the same options in a configuration file, by the proto option `config_key`.

One table serves both directions, the update mask, and the names of fields in refusals.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from hubbub.v1 import options_pb2, server_pb2
from hubbub_shared.durations import to_duration, to_seconds

_DURATION: Final = Duration.DESCRIPTOR.full_name
_STRING_LIST: Final = server_pb2.StringList.DESCRIPTOR.full_name


@dataclass(frozen=True, slots=True)
class SpecField:
    """A field of ServerSpec with its key in a configuration file; `steps` are the names that lead to it."""

    key: str
    steps: tuple[str, ...]
    descriptor: FieldDescriptor

    @property
    def path(self) -> str:
        """The path in an update mask."""
        return ".".join(self.steps)

    def get_value(self, spec: Message) -> Any:
        """Return the value of the field in a spec as a configuration has it; None if the spec leaves it out."""
        *groups, name = self.steps
        message = spec
        for group in groups:
            if not message.HasField(group):
                return None
            message = getattr(message, group)
        if self.descriptor.has_presence and not message.HasField(name):
            return None
        return _read_value(self.descriptor, getattr(message, name))

    def set_value(self, spec: Message, value: Any) -> None:
        """Set the field of a spec.

        Raises TypeError, ValueError, OverflowError or AttributeError if the value does not fit.
        """
        *groups, name = self.steps
        message: Any = spec
        for group in groups:
            message = getattr(message, group)
            message.SetInParent()
        _write_value(self.descriptor, message, name, value)


def _read_value(field: FieldDescriptor, value: Any) -> Any:
    """Return a field's value as a configuration has it.

    None for an empty value of a field without presence, which may also mean that the field is left out.
    """
    message_type = field.message_type and field.message_type.full_name
    if message_type == _STRING_LIST:
        return list(value.values)
    if message_type == _DURATION and not field.is_repeated:
        return to_seconds(value)
    if message_type == _DURATION:
        return [to_seconds(each) for each in value] or None
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, str]", value)) or None
    if field.is_repeated:
        return list(value) or None
    return value if field.has_presence else value or None


def _write_value(field: FieldDescriptor, message: Any, name: str, value: Any) -> None:
    """Set a field of a message to a value as a configuration has it. Raises TypeError and others if it does not fit."""
    message_type = field.message_type and field.message_type.full_name
    if (field.is_repeated or message_type == _STRING_LIST) and isinstance(value, str):
        raise TypeError("must be a list")
    if message_type == _STRING_LIST:
        getattr(message, name).SetInParent()
        getattr(message, name).values.extend(value)
    elif message_type == _DURATION and field.is_repeated:
        getattr(message, name).extend(map(to_duration, value))
    elif message_type == _DURATION:
        getattr(message, name).CopyFrom(to_duration(value))
    elif field.is_repeated and isinstance(value, Mapping):
        getattr(message, name).update(value)
    elif field.is_repeated:
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


def _list_fields(message: Descriptor, steps: tuple[str, ...] = ()) -> Iterator[SpecField]:
    """Yield each field of a message that has a key, also those within its messages.

    The field `roots` is left out: its value in the spec differs from the one in a configuration.
    """
    for field in message.fields:
        key = field.GetOptions().Extensions[options_pb2.config_key]
        if key:
            yield SpecField(key, (*steps, field.name), field)
        elif field.message_type is not None and field.name != "roots":
            yield from _list_fields(field.message_type, (*steps, field.name))


SPEC_FIELDS: Final[Mapping[str, SpecField]] = MappingProxyType(
    {field.key: field for field in _list_fields(server_pb2.ServerSpec.DESCRIPTOR)}
)
"""Fields of the spec by key of the configuration."""

SPEC_PATHS: Final[Mapping[str, str]] = MappingProxyType(
    {key: field.path for key, field in SPEC_FIELDS.items()} | {"transport": "http.variant", "roots": "roots"}
)
"""Path in the spec of each key, also of those that are no plain value there."""
