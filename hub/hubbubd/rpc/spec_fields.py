"""Which field of ServerSpec is which key of a server's configuration: read from the option `config_key` of the API.

One table for both directions, for the update mask, and for the names in refusals. A field without its key in the
configuration, or a key twice, fails here, at the start.
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

OF_FILES = frozenset({"oauth", "ca"})
"""Keys that only files have."""

OTHERWISE = frozenset({"transport", "roots"})
"""Keys that the API says in a shape of its own."""


@dataclass(frozen=True, slots=True)
class SpecField:
    """A field of the spec, by its way from the top, and the key of the configuration."""

    way: tuple[str, ...]
    key: str
    descriptor: FieldDescriptor

    @property
    def path(self) -> str:
        """As it stands in an update mask."""
        return ".".join(self.way)

    def value(self, spec: Message) -> Any:
        """The value of its key; None where the spec leaves it out."""
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
        """Has the spec say the value of its key."""
        holder: Any = spec
        for name in self.way[:-1]:
            holder = getattr(holder, name)
            holder.SetInParent()
        _fill(self.descriptor, holder, self.way[-1], value)


def _plain(field: FieldDescriptor, value: Any) -> Any:
    """A value of the API as the configuration has it; None for an empty one that is as good as none."""
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
    """A duration in seconds, to the microsecond. Outside of what is taken for one it is out of bounds as well."""
    return round(bounds.real(value.seconds + value.nanos / 1e9) or 0.0, 6)


def duration(value: float) -> Duration:
    """Seconds as a duration, to the microsecond."""
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
    said = set(found) | OTHERWISE | OF_FILES
    assert said == set(ServerConfig.model_fields), said ^ set(ServerConfig.model_fields)
    return MappingProxyType(found)


FIELDS = _table()
"""Each field of the spec that is a key of the configuration, by that key."""

PATHS: Mapping[str, str] = MappingProxyType(
    {key: field.path for key, field in FIELDS.items()} | {"transport": "http.variant", "roots": "roots"}
)
"""Where the spec says a key of the configuration."""
