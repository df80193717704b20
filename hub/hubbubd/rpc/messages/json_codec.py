"""Messages of the API as JSON, for Connect (docs/connect.md).

This is the JSON of protocol buffers (https://protobuf.dev/programming-guides/json) with two differences:

- A field with the option `json_document` is the document itself and not its bytes in base64. The bytes pass as they
  are, and nothing here parses them: numbers keep their digits and objects their repeated names, as over gRPC.
- Nothing is passed over. An unknown field, a repeated one and a value of another type are refused by path.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import cache
from typing import Any, NoReturn, TypeVar

import msgspec
import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from hubbub.v1 import options_pb2
from hubbubd.errors import InvalidArgument, ResourceExhausted
from hubbubd.payload import is_nested_deeper, overwrite_matches

M = TypeVar("M", bound=Message)

MAX_VALUES = 100_000
"""Values that a message in JSON may have, those inside documents not counted; no RPC needs many, and each takes many
times its length in memory."""

MAX_DEPTH = 300
"""Arrays and objects that may be inside each other: more than in any document that the hub parses, and the message
around it. Where msgspec stops by itself depends on the version of Python: from below a thousand to ten thousand."""

_STRING_MESSAGES: Mapping[str, str] = {
    "google.protobuf.Duration": 'a duration such as "1.5s"',
    "google.protobuf.Timestamp": 'a time such as "2026-01-31T12:00:00Z"',
    "google.protobuf.FieldMask": 'names of fields such as "http,timeouts.call"',
}
"""Messages that are a string in JSON."""

_FLOAT_TYPES = frozenset({FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT})
_INTEGER_RANGES: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
"""The smallest and the largest integer of each type."""
_STRING_INTEGERS = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})
"""Integers that a double may not hold, so they are written as strings."""

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_MAX_DIGITS = 400
"""The longest number of a field that is read; documents may have longer ones."""

_SURROGATE_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*(\\)(?=u[dD][89a-fA-F])")
_MASK = b"\xff"
"""Never part of UTF-8."""

_LONE_SURROGATE = "half of a surrogate pair, which is no character"

_KINDS: Mapping[int, str] = {
    ord("{"): "an object",
    ord("["): "an array",
    ord('"'): "a string",
    ord("t"): "true or false",
    ord("f"): "true or false",
    ord("n"): "null",
}
"""What a value is, by its first byte; all others are numbers."""
_NONFINITE = ("NaN", "Infinity", "-Infinity")

_CLEARER_MESSAGES = {"Input data was truncated": "it ends too early"}

_VALUE = msgspec.json.Decoder(msgspec.Raw)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_STRING = msgspec.json.Decoder(str)


@cache
def is_document(field: FieldDescriptor) -> bool:
    """Return whether each value of a field is a JSON document."""
    return field.GetOptions().Extensions[options_pb2.json_document]


def map_value_field(field: FieldDescriptor) -> FieldDescriptor | None:
    """Return the field of a map's values; None for a field that is no map."""
    entry = field.message_type
    return entry.fields_by_name["value"] if entry is not None and entry.GetOptions().map_entry else None


# Writing.


def dumps(message: Message) -> bytes:
    """Return a message as JSON. Raises ValueError for a document in it that is not JSON."""
    return orjson.dumps(_to_plain(message))


def _to_plain(message: Message) -> dict[str, Any]:
    """Return a message as plain values for JSON."""
    plain: dict[str, Any] = {}
    writers = _field_writers(message.DESCRIPTOR)
    for field, value in message.ListFields():
        name, write = writers[field.number]
        plain[name] = write(value)
    return plain


@cache
def _field_writers(kind: Descriptor) -> dict[int, tuple[str, Callable[[Any], Any]]]:
    """Return, by the number of each field, its name in JSON and the function that makes its plain value."""
    return {field.number: (field.json_name, _make_writer(field)) for field in kind.fields}


def _make_writer(field: FieldDescriptor) -> Callable[[Any], Any]:
    """Return the function that makes the plain value of a field, which may be a list or a map."""
    if (values := map_value_field(field)) is not None:
        each = _make_value_writer(values)
        return lambda named: {name: each(value) for name, value in named.items()}
    one = _make_value_writer(field)
    return (lambda values: [one(value) for value in values]) if field.is_repeated else one


def _make_value_writer(field: FieldDescriptor) -> Callable[[Any], Any]:
    """Return the function that makes the plain value of one element of a field."""
    if is_document(field):
        return _embed_document
    if field.message_type is not None:
        return (lambda value: value.ToJsonString()) if field.message_type.full_name in _STRING_MESSAGES else _to_plain
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    if field.type in _FLOAT_TYPES:
        return lambda value: value if math.isfinite(value) else _name_nonfinite(value)
    return str if field.cpp_type in _STRING_INTEGERS else lambda value: value


def _name_nonfinite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _embed_document(document: bytes) -> orjson.Fragment:
    """Return a document as a part of another one; empty bytes stand for null. Raises ValueError if it is not JSON."""
    document.decode()
    try:
        check_json(document or b"null")
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    return orjson.Fragment(document or b"null")


# Reading.


def check_json(data: bytes) -> msgspec.Raw:
    """Check JSON from end to end without parsing it, and return it. Raises ValueError for what is not JSON, and
    RecursionError when it nests too deeply.

    An escaped half of a surrogate pair is JSON, and JavaScript writes it when it cuts a string. msgspec refuses it,
    so meanwhile another byte is in place of its backslash, until `_unmask` puts it back.
    """
    try:
        raw = _VALUE.decode(data)
    except msgspec.DecodeError:
        masked = overwrite_matches(data, _SURROGATE_ESCAPE, _MASK)
        if masked is None:
            raise
        raw = _VALUE.decode(masked)
    if is_nested_deeper(data, MAX_DEPTH):
        raise RecursionError
    return raw


def _unmask(raw: msgspec.Raw) -> bytes:
    """Return the bytes of a value as they were sent, without the mask of `check_json`."""
    return bytes(raw).replace(_MASK, b"\\")


def loads(data: bytes, kind: type[M]) -> M:
    """Return the message that is written in JSON; an empty message for no data.

    Raises InvalidArgument (MALFORMED_REQUEST), with a violation that names the field if a field is wrong, and
    ResourceExhausted (MESSAGE_TOO_LARGE) for very many values.
    """
    message = kind()
    if not data:
        return message
    try:
        data.decode()
        _JsonReader().read_message(message, check_json(data), "")
    except UnicodeDecodeError as exc:
        _refuse("", f"is not JSON: byte {exc.start} is not UTF-8")
    except msgspec.DecodeError as exc:
        _refuse("", f"is not JSON: {_CLEARER_MESSAGES.get(str(exc)) or str(exc).removeprefix('JSON is malformed: ')}")
    except RecursionError:
        _refuse("", "nests too deeply")
    return message


def _refuse(at: str, problem: str) -> NoReturn:
    """Raise InvalidArgument, which names the field at a path if there is one."""
    if at:
        raise InvalidArgument.field(at, problem, reason="MALFORMED_REQUEST")
    raise InvalidArgument(f"the request {problem}", reason="MALFORMED_REQUEST")


class _MemberName:
    """A name in an object. It equals no other, so that one that is repeated is noticed."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _JsonReader:
    """One message being read. Paths are those of the protos, as in all violations; methods raise as `loads`."""

    def __init__(self) -> None:
        self._values_left = MAX_VALUES

    def read_message(self, into: Message, raw: msgspec.Raw, path: str) -> None:
        """Fill a message from a JSON object."""
        if (expected := _STRING_MESSAGES.get(into.DESCRIPTOR.full_name)) is not None:
            _read_string_message(into, raw, path, expected)
            return
        fields = _fields_by_name(into.DESCRIPTOR)
        seen_names: set[str] = set()
        for name, value in self._read_members(raw, path):
            if (field := fields.get(name)) is None:
                known = [each.json_name for each in into.DESCRIPTOR.fields]
                _refuse(_join_path(path, name or '""'), f"unknown field{_did_you_mean(name, known)}")
            at = _join_path(path, field.name)
            if field.name in seen_names:
                _refuse(at, "is given twice")
            seen_names.add(field.name)
            if _kind_of_value(value) == "null" and (field.is_repeated or not is_document(field)):
                continue  # null is as if not given; only for a document it is a value
            if (choice := field.containing_oneof) is not None:
                if choice.full_name in seen_names:
                    _refuse(at, f"only one of {', '.join(each.name for each in choice.fields)} may be given")
                seen_names.add(choice.full_name)
            self._read_field(into, field, value, at)

    def _read_field(self, into: Message, field: FieldDescriptor, raw: msgspec.Raw, at: str) -> None:
        """Read a value into a field, by what the field is: a map, a list, a message or a scalar."""
        if (values := map_value_field(field)) is not None:
            self._read_map(getattr(into, field.name), values, raw, at)
        elif field.is_repeated:
            self._read_list(getattr(into, field.name), field, raw, at)
        elif field.message_type is not None:
            inner = getattr(into, field.name)
            inner.SetInParent()
            self.read_message(inner, raw, at)
        else:
            setattr(into, field.name, _read_scalar(field, raw, at))

    def _read_map(self, into: Any, values: FieldDescriptor, raw: msgspec.Raw, at: str) -> None:
        """Fill a map from a JSON object; `values` is the field of its values."""
        for name, value in self._read_members(raw, at):
            inside = _join_path(at, name)
            if name in into:
                _refuse(inside, "is given twice")
            if values.message_type is not None:
                self.read_message(into[name], value, inside)
            else:
                into[name] = _read_scalar(values, value, inside)

    def _read_list(self, into: Any, field: FieldDescriptor, raw: msgspec.Raw, at: str) -> None:
        """Fill a repeated field from a JSON array."""
        _check_kind("an array", raw, at)
        self._count_values(bytes(raw).count(b","))  # counts all values but one, if not more, before any is decoded
        for index, value in enumerate(_ARRAY.decode(raw)):
            inside = _join_path(at, str(index))
            if field.message_type is not None:
                self.read_message(into.add(), value, inside)
            else:
                into.append(_read_scalar(field, value, inside))

    def _read_members(self, raw: msgspec.Raw, path: str) -> list[tuple[str, msgspec.Raw]]:
        """Return the names and values of an object; a repeated name comes as often as it is there."""
        _check_kind("an object", raw, path)
        try:
            members = msgspec.json.decode(raw, type=dict[_MemberName, msgspec.Raw], dec_hook=self._count_name)
        except UnicodeDecodeError:
            _refuse(path, f"has a name with {_LONE_SURROGATE}")
        return [(name.text, value) for name, value in members.items()]

    def _count_name(self, _kind: type, text: Any) -> _MemberName:
        """Make a name of an object, as msgspec's hook for the type; each counts as a value."""
        self._count_values(1)
        return _MemberName(text)

    def _count_values(self, count: int) -> None:
        """Count values of the message. Raises ResourceExhausted beyond MAX_VALUES."""
        self._values_left -= count
        if self._values_left < 0:
            problem = f"a request in JSON may have {MAX_VALUES} values; send longer ones as application/proto"
            raise ResourceExhausted(problem, reason="MESSAGE_TOO_LARGE", metadata={"limit": str(MAX_VALUES)})


@cache
def _fields_by_name(kind: Descriptor) -> dict[str, FieldDescriptor]:
    """Return the fields of a message by both names that each has."""
    return {name: field for field in kind.fields for name in (field.json_name, field.name)}


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a problem that suggests a similar name; empty if none is similar."""
    similar = get_close_matches(name, known, n=1)
    return f"; did you mean {similar[0]!r}?" if similar else ""


def _kind_of_value(raw: msgspec.Raw) -> str:
    return _KINDS.get(memoryview(raw)[0], "a number")


def _check_kind(expected: str, raw: msgspec.Raw, at: str) -> None:
    """Raise InvalidArgument for a value of another kind than expected, such as `an array`."""
    if (found := _kind_of_value(raw)) != expected:
        _refuse(at, f"must be {expected}, not {found}")


def _read_string(raw: msgspec.Raw, at: str, expected: str = "a string") -> str:
    """Return a JSON string; `expected` says in a refusal what the value should be. Raises InvalidArgument."""
    if (found := _kind_of_value(raw)) != "a string":
        _refuse(at, f"must be {expected}, not {found}")
    try:
        return _STRING.decode(_unmask(raw))
    except msgspec.DecodeError:
        _refuse(at, f"has {_LONE_SURROGATE}")


def _read_string_message(into: Any, raw: msgspec.Raw, at: str, expected: str) -> None:
    """Fill a message that is a string in JSON, such as a Duration. Raises InvalidArgument."""
    text = _read_string(raw, at, expected)
    try:
        into.FromJsonString(text)
    except (ValueError, OverflowError):
        _refuse(at, f"must be {expected}")


def _read_scalar(field: FieldDescriptor, raw: msgspec.Raw, at: str) -> Any:
    """Return a value for a field that is no message, as the field's type has it. Raises InvalidArgument."""
    if is_document(field):
        return _unmask(raw)
    if field.enum_type is not None:
        return _read_enum(field.enum_type, raw, at)
    if field.cpp_type in _INTEGER_RANGES:
        return _read_integer(raw, at, *_INTEGER_RANGES[field.cpp_type])
    if field.type in _FLOAT_TYPES:
        return _read_float(raw, at)
    if field.type == FieldDescriptor.TYPE_BOOL:
        _check_kind("true or false", raw, at)
        return bytes(raw) == b"true"
    text = _read_string(raw, at)
    return _decode_base64(text, at) if field.type == FieldDescriptor.TYPE_BYTES else text


def _read_enum(kind: EnumDescriptor, raw: msgspec.Raw, at: str) -> int:
    """Return the number of an enum's value, which JSON has by its name or number."""
    if _kind_of_value(raw) == "a number":
        return _read_integer(raw, at, *_INTEGER_RANGES[FieldDescriptor.CPPTYPE_INT32])
    name = _read_string(raw, at, f"the name of a value, such as {kind.values[-1].name!r}")
    if (value := kind.values_by_name.get(name)) is None:
        _refuse(at, f"{kind.name} has no such value{_did_you_mean(name, kind.values_by_name)}")
    return value.number


def _read_number_text(raw: msgspec.Raw, at: str, expected: str) -> str:
    """Return the digits of a number, which may be a string in JSON."""
    text = bytes(raw).decode() if _kind_of_value(raw) == "a number" else _read_string(raw, at, expected)
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        _refuse(at, f"must be {expected}")
    return text


def _read_integer(raw: msgspec.Raw, at: str, low: int, high: int) -> int:
    """Return a whole number within bounds, which may also be a string, or written as 1e3."""
    expected = f"a whole number from {low} to {high}"
    text = _read_number_text(raw, at, expected)
    try:
        number = Decimal(text)
        if low <= number <= high and number == number.to_integral_value():
            return int(number)
    except InvalidOperation:  # an exponent of very many digits
        pass
    _refuse(at, f"must be {expected}")


def _read_float(raw: msgspec.Raw, at: str) -> float:
    """Return a number that a double can hold; NaN and the infinities are strings."""
    if _kind_of_value(raw) == "a string" and (text := _read_string(raw, at)) in _NONFINITE:
        return float(text)
    number = float(_read_number_text(raw, at, "a number"))
    if math.isinf(number):
        _refuse(at, "is past the range of a double")
    return number


def _decode_base64(text: str, at: str) -> bytes:
    """Return the bytes of base64, in the alphabet of URLs too, padded or not."""
    try:
        plain = text.rstrip("=").replace("-", "+").replace("_", "/")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        _refuse(at, "must be base64")
