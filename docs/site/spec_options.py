"""Writes the options of a server for the library, from the fields of the API that name their key in a configuration."""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from hubbub_shared.spec_fields import SPEC_FIELDS

MODULE = Path(__file__).parents[2] / "clients/hubbub_client/data/spec_options.py"
HEAD = '''"""The options of a server as a configuration has them. `make gen` makes this file from `server.proto`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hubbub_client.data.records import Record, Transport

Roots = Sequence[Mapping[str, Any]] | Literal["ask"]


@dataclass(frozen=True, kw_only=True)
class SpecOptions(Record):
    """The options of a server, in the order of the API; None stands for the default."""

'''
VALUES = {
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "int",
    FieldDescriptor.CPPTYPE_DOUBLE: "float",
    FieldDescriptor.CPPTYPE_STRING: "str",
}
MESSAGES = {"google.protobuf.Duration": "float", "hubbub.v1.StringList": "Sequence[str]"}

OTHERS = {"url": ("transport", "Transport"), "confirm": ("roots", "Roots")}
"""The options that have another form in the API, with their types; the key is that of the option before."""


def _type_of(field: FieldDescriptor) -> str:
    """The type of a field's value as a configuration has it."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return "Mapping[str, str]"
    value = VALUES[field.cpp_type] if message is None else MESSAGES[message.full_name]
    return f"Sequence[{value}]" if field.is_repeated else value


def _lines() -> Iterator[str]:
    """The line of each option. The name alone is needed."""
    for key, field in SPEC_FIELDS.items():
        yield f"    {key}: str\n" if key == "name" else f"    {key}: {_type_of(field.descriptor)} | None = None\n"
        if key in OTHERS:
            yield "    {}: {} | None = None\n".format(*OTHERS[key])


def module() -> str:
    """The text of the module."""
    return HEAD + "".join(_lines())


if __name__ == "__main__":
    MODULE.write_text(module())
