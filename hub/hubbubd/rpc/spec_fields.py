"""Maps fields of ServerSpec to keys of a server's configuration, by the proto option `config_key`.

One table serves both directions, the update mask, and the field names in refusals. A missing or duplicate key fails on
import.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from hubbub.v1 import options_pb2, server_pb2
from hubbubd import bounds
from hubbubd.config import ServerConfig

DURATION = Duration.DESCRIPTOR.full_name
STRINGS = server_pb2.StringList.DESCRIPTOR.full_name

OF_FILES = frozenset({"oauth", "ca", "cookies"})
"""Keys that only configuration files have."""

OTHERWISE = frozenset({"transport", "roots"})
"""Keys that the API represents differently."""


@dataclass(frozen=True, slots=True)
class SpecField:
    """A field of the spec, by its path from the top, and its key in the configuration."""

    way: tuple[str, ...]
    key: str
    descriptor: FieldDescriptor

    @property
    def path(self) -> str:
        """The path in an update mask."""
        return ".".join(self.way)

    def value(self, spec: Message) -> Any:
        """Return the value for its key; None where the spec leaves it out."""
        holder = spec
        for name in self.way[:-1]:
            if not holder.HasField(name):
                return None
            holder = getattr(holder, name)
        name = self.way[-1]
        if self.descriptor.has_presence and not holder.HasField(name):
            return None
        return _plain(self.descriptor, getattr(holder, name))

    def put(self, spec: Message, value: Any) -> None:
        """Set the field in a spec from the value of its key."""
        holder: Any = spec
        for name in self.way[:-1]:
            holder = getattr(holder, name)
            holder.SetInParent()
        _fill(self.descriptor, holder, self.way[-1], value)


def _plain(field: FieldDescriptor, value: Any) -> Any:
    """Return an API value as the configuration has it; None for an empty one without presence."""
    kind = field.message_type and field.message_type.full_name
    if kind == STRINGS:
        return list(value.values)
    if kind == DURATION:
        return [seconds(each) for each in value] or None if field.is_repeated else seconds(value)
    if field.is_repeated:
        return (dict(cast("Mapping[str, str]", value)) if isinstance(value, Mapping) else list(value)) or None
    return value if field.has_presence else value or None


def _fill(field: FieldDescriptor, holder: Any, name: str, value: Any) -> None:
    kind = field.message_type and field.message_type.full_name
    if kind == STRINGS:
        getattr(holder, name).SetInParent()
        getattr(holder, name).values.extend(value)
    elif kind == DURATION and field.is_repeated:
        getattr(holder, name).extend(map(duration, value))
    elif kind == DURATION:
        getattr(holder, name).CopyFrom(duration(value))
    elif field.is_repeated:
        held = getattr(holder, name)
        held.update(value) if isinstance(value, Mapping) else held.extend(value)
    else:
        setattr(holder, name, value)


def seconds(value: Duration) -> float:
    """Return a duration in seconds, to the microsecond, clamped."""
    return round(bounds.real(value.seconds + value.nanos / 1e9) or 0.0, 6)


def duration(value: float) -> Duration:
    """Return seconds as a Duration, to the microsecond, clamped."""
    found = Duration()
    found.FromMicroseconds(round((bounds.seconds(value) or 0.0) * 1_000_000))
    return found


def _walk(message: Descriptor, way: tuple[str, ...] = ()) -> Iterator[SpecField]:
    for field in message.fields:
        key = field.GetOptions().Extensions[options_pb2.config_key]
        if key:
            yield SpecField((*way, field.name), key, field)
        elif field.message_type is not None and field.name != "roots":
            yield from _walk(field.message_type, (*way, field.name))


def _table() -> Mapping[str, SpecField]:
    found = {field.key: field for field in _walk(server_pb2.ServerSpec.DESCRIPTOR)}
    keys = set(found) | OTHERWISE | OF_FILES
    assert keys == set(ServerConfig.model_fields), keys ^ set(ServerConfig.model_fields)
    return MappingProxyType(found)


FIELDS = _table()
"""Fields of the spec by key of the configuration."""

PATHS: Mapping[str, str] = MappingProxyType(
    {key: field.path for key, field in FIELDS.items()} | {"transport": "http.variant", "roots": "roots"}
)
"""Path in the spec of each key of the configuration."""
