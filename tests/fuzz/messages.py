"""Requests of the API, made from its descriptors."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from .chance import TEXTS, Chance

SERVERS = ("toy", "asker", "away", "added")
METHODS = ("tools/call", "tools/list", "ping", "prompts/get", "resources/read", "logging/setLevel", "tasks/get", "x/y")
PLAUSIBLE: dict[str, tuple[str, ...]] = {
    "server": SERVERS,
    "name": (*SERVERS, "added", "local"),
    "names": SERVERS,
    "servers": ("*", "toy", "a*", "[!x]*"),
    "method": METHODS,
    "uri": ("file:///x", "test://y"),
    "url": ("https://192.0.2.1/mcp", "http://127.0.0.1:9/mcp"),
    "roots": ("ask", "[]", '[{"uri":"file:///x"}]'),
    "command": ("/bin/sh", "python3"),
}
SPEC = {"name", "url", "command", "args", "env", "headers", "roots"}
FLOATS = (0.0, 0.5, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e308, 1e-308, 60.0)
LARGEST = {FieldDescriptor.CPPTYPE_INT32: 2**31, FieldDescriptor.CPPTYPE_INT64: 2**63}
REMEMBERED = {"id", "name", "resume_token", "next_page_token", "call_id", "task_id"}


class Memory:
    """Ids and tokens of responses: what was there a moment ago is the most interesting to ask for."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[str]] = {}

    def note(self, message: Message) -> None:
        for name, value in _texts(message):
            self._seen.setdefault(name, deque(maxlen=100)).append(value)

    def recall(self, name: str, chance: Chance) -> str | None:
        wanted = {"claim_id": "id", "page_token": "next_page_token", "ids": "id"}.get(name, name)
        seen = self._seen.get(wanted) or self._seen.get("id")
        return chance.of(seen) if seen else None


def _texts(message: Message) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            inner = value if isinstance(value, Message) else next(iter(value), None)
            if isinstance(inner, Message):
                yield from _texts(inner)
        elif field.name in REMEMBERED and isinstance(value, str) and value:
            yield field.name, value


class Maker:
    """Makes one request. A calm one has names that mean something, so that it gets past the first check."""

    def __init__(self, chance: Chance, memory: Memory) -> None:
        self._chance = chance
        self._memory = memory
        self._calm = not chance.one_in(3)

    def request(self, kind: Descriptor) -> bytes:
        """A request of this kind: mostly one that could be right, sometimes broken bytes or mere noise."""
        if self._calm:
            return self.message(kind).SerializeToString()
        if self._chance.one_in(12):
            return self._chance.noise(200)
        raw = self.message(kind).SerializeToString()
        return self._chance.broken(raw) if self._chance.one_in(3) else raw

    def message(self, kind: Descriptor, depth: int = 4) -> Message:
        """A message of this kind, each of its fields set or not."""
        made = GetMessageClass(kind)()
        for field in kind.fields:
            if self._chance.one_in(4) or (depth == 0 and field.type == FieldDescriptor.TYPE_MESSAGE):
                continue
            if field.containing_oneof and self._chance.one_in(2) and made.WhichOneof(field.containing_oneof.name):
                continue
            if (
                self._calm
                and kind.name == "ServerSpec"
                and field.name not in ("name", "http")
                and not self._chance.one_in(20)
            ):
                continue
            self._fill(made, field, depth)
        return made

    def _fill(self, made: Any, field: FieldDescriptor, depth: int) -> None:
        chance = self._chance
        if field.message_type and field.message_type.GetOptions().map_entry:
            entries = getattr(made, field.name)
            for _ in range(chance.upto(2)):
                entries[chance.text()] = chance.text()
        elif field.is_repeated:
            many = 2000 if chance.one_in(200) else chance.upto(3)
            getattr(made, field.name).extend([self._value(field, depth - 1) for _ in range(many)])
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(made, field.name).CopyFrom(self.message(field.message_type, depth - 1))
        else:
            setattr(made, field.name, self._value(field, depth))

    def _value(self, field: FieldDescriptor, depth: int) -> Any:
        chance = self._chance
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_MESSAGE:
                return self.message(field.message_type, depth)
            case FieldDescriptor.CPPTYPE_ENUM:
                numbers = [value.number for value in field.enum_type.values]
                return chance.of(numbers if self._calm else [*numbers, -1, 99])
            case FieldDescriptor.CPPTYPE_BOOL:
                return chance.one_in(2)
            case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
                return chance.of((0.0, 0.5, 1.0, 60.0) if self._calm else FLOATS)
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                good = {"name": "echo", "arguments": {"text": "x"}}
                return chance.document(good if self._calm or chance.one_in(2) else chance.value())
            case FieldDescriptor.CPPTYPE_STRING:
                return self._text(field.name)
            case kind:
                most = LARGEST.get(kind, 2**32)
                wild = (1001, most - 1) if most == 2**32 else (1001, most - 1, -1, -most)
                return chance.of((0, 1, 2, 100) if self._calm else wild)

    def _text(self, name: str) -> str:
        chance = self._chance
        if chance.one_in(12 if self._calm else 2):
            return chance.text()
        known = PLAUSIBLE.get(name)
        if known and not chance.one_in(4):
            return chance.of(known)
        return self._memory.recall(name, chance) or chance.of(TEXTS)
