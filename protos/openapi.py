"""Prints the OpenAPI document of the API over Connect, from what `buf build --as-file-descriptor-set -o -` prints.

https://spec.openapis.org/oas/v3.1.1.html. Documents are any JSON, and comments of the protos are descriptions; else it
is the JSON of protocol buffers (docs/connect.md). RPCs whose requests stream are not served over Connect.
"""

import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from connectrpc.code import Code
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2

from hubbub.v1 import options_pb2

Schema = dict[str, Any]
ERRORS = Path(__file__).parents[1] / "clients/hubbub_frontend/errors.toml"
PACKAGE = "hubbub/v1/common.proto"
"""The file whose package has the comment that describes the API."""
BEARER = "bearer"
STREAMS = (
    "Each message, of the request and of the response, has five bytes before it: a byte of flags, and its length as "
    "four bytes, the highest first. The last one of a response has the flag 2 and is an EndStream."
)

Type = FieldDescriptorProto.Type
INTEGER: Schema = {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1}
UNSIGNED: Schema = {"type": "integer", "format": "int64", "minimum": 0, "maximum": 2**32 - 1}
LONG: Schema = {"type": ["string", "integer"], "format": "int64", "pattern": "^-?[0-9]+$"}
REAL: Schema = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
SCALARS: Mapping[int, Schema] = {
    Type.TYPE_BOOL: {"type": "boolean"},
    Type.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    Type.TYPE_DOUBLE: REAL,
    Type.TYPE_INT32: INTEGER,
    Type.TYPE_INT64: LONG,
    Type.TYPE_STRING: {"type": "string"},
    Type.TYPE_UINT32: UNSIGNED,
    Type.TYPE_UINT64: LONG,
}
WELL_KNOWN: Mapping[str, Schema] = {
    "google.protobuf.Duration": {
        "type": "string",
        "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$",
        "description": "Seconds.",
        "examples": ["1.5s"],
    },
    "google.protobuf.Timestamp": {
        "type": "string",
        "format": "date-time",
        "description": "An absolute time (RFC 3339).",
        "examples": ["2026-01-31T12:00:00Z"],
    },
    "google.protobuf.FieldMask": {
        "type": "string",
        "description": "Paths of fields, separated by commas.",
        "examples": ["http,timeouts.call"],
    },
}


class Comments:
    """What the protos say of each part of a file, by the numbers of the path that leads to it."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._said = {tuple(at.path): at.leading_comments for at in file.source_code_info.location}

    def of(self, *path: int) -> Schema:
        """The description of a part, where it has one."""
        said = "\n".join(line.removeprefix(" ") for line in self._said.get(path, "").strip("\n").split("\n")).strip()
        return {"description": said} if said else {}


def schemas(file: FileDescriptorProto) -> Iterator[tuple[str, Schema]]:
    """Each message and each enum of a file by its full name."""
    comments = Comments(file)
    for at, message in enumerate(file.message_type):
        yield from _message(message, file.package, comments, (file.MESSAGE_TYPE_FIELD_NUMBER, at))
    for at, enum in enumerate(file.enum_type):
        yield f"{file.package}.{enum.name}", _enum(enum, comments, (file.ENUM_TYPE_FIELD_NUMBER, at))


def _message(
    message: DescriptorProto, within: str, comments: Comments, path: tuple[int, ...]
) -> Iterator[tuple[str, Schema]]:
    name = f"{within}.{message.name}"
    maps = {f".{name}.{inner.name}": inner for inner in message.nested_type if inner.options.map_entry}
    properties: Schema = {}
    for at, field in enumerate(message.field):
        described = comments.of(*path, message.FIELD_FIELD_NUMBER, at)
        if field.HasField("oneof_index") and not field.proto3_optional:
            group = [each.json_name for each in message.field if _choice(each) == field.oneof_index]
            also = f"At most one of {', '.join(group)} is set."
            described = {"description": f"{described.get('description', '')}\n\n{also}".strip()}
        properties[field.json_name] = _field(field, maps) | described
    yield name, {"type": "object", **comments.of(*path), "properties": properties, "additionalProperties": False}
    for at, inner in enumerate(message.nested_type):
        if not inner.options.map_entry:
            yield from _message(inner, name, comments, (*path, message.NESTED_TYPE_FIELD_NUMBER, at))
    for at, enum in enumerate(message.enum_type):
        yield f"{name}.{enum.name}", _enum(enum, comments, (*path, message.ENUM_TYPE_FIELD_NUMBER, at))


def _choice(field: FieldDescriptorProto) -> int | None:
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None


def _field(field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto]) -> Schema:
    if (entry := maps.get(field.type_name)) is not None:
        return {"type": "object", "additionalProperties": _single(entry.field[1])}
    one = _single(field)
    return {"type": "array", "items": one} if field.label == field.LABEL_REPEATED else one


def _single(field: FieldDescriptorProto) -> Schema:
    if field.options.Extensions[options_pb2.json_document]:
        return {}
    if field.type_name:
        return {"$ref": f"#/components/schemas/{field.type_name.removeprefix('.')}"}
    return dict(SCALARS[field.type])


def _enum(enum: EnumDescriptorProto, comments: Comments, path: tuple[int, ...]) -> Schema:
    lines = [comments.of(*path).get("description", ""), ""]
    for at, value in enumerate(enum.value):
        said = comments.of(*path, enum.VALUE_FIELD_NUMBER, at).get("description", "")
        lines.append(f"- `{value.name}`: {' '.join(said.split())}")
    return {"type": "string", "description": "\n".join(lines).strip(), "enum": [value.name for value in enum.value]}


def operations(file: FileDescriptorProto) -> Iterator[tuple[str, Schema]]:
    """Each RPC of a file by its path, but those whose requests stream."""
    comments = Comments(file)
    for at, service in enumerate(file.service):
        for place, method in enumerate(service.method):
            if not method.client_streaming:
                path = (file.SERVICE_FIELD_NUMBER, at, service.METHOD_FIELD_NUMBER, place)
                said = comments.of(*path).get("description", "")
                yield f"/{file.package}.{service.name}/{method.name}", {"post": _operation(service, method, said)}


def _operation(service: ServiceDescriptorProto, method: MethodDescriptorProto, said: str) -> Schema:
    kind = "application/connect+json" if method.server_streaming else "application/json"
    described = f"{said}\n\n{STREAMS}".strip() if method.server_streaming else said
    return {
        "operationId": f"{service.name}_{method.name}",
        "tags": [service.name],
        **({"description": described} if described else {}),
        "requestBody": {"required": True, "content": {kind: {"schema": _single_type(method.input_type)}}},
        "responses": {
            "200": {
                "description": "Messages, one after the other." if method.server_streaming else "The response.",
                "content": {kind: {"schema": _single_type(method.output_type)}},
            },
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _single_type(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name.removeprefix('.')}"}


def errors(reasons: Iterable[str]) -> Schema:
    """What Connect makes of a status (https://connectrpc.com/docs/protocol#error-end-stream), and its first detail."""
    known = {"enum": list(reasons), "description": "`hubbub explain` explains each."}
    reason = {"description": "The stable reason, which is what to go by.", "anyOf": [known, {"type": "string"}]}
    info = {
        "type": "object",
        "description": "The first detail of every error of the hub, as its `debug` has it.",
        "properties": {
            "reason": reason,
            "domain": {"const": "hubbub"},
            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["reason", "domain"],
    }
    detail = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "examples": [error_details_pb2.ErrorInfo.DESCRIPTOR.full_name]},
            "value": {"type": "string", "contentEncoding": "base64", "description": "The message, without padding."},
            "debug": {"description": "The message in JSON, for reading.", "anyOf": [_single_type("ErrorInfo"), {}]},
        },
        "required": ["type", "value"],
    }
    error = {
        "type": "object",
        "properties": {
            "code": {"enum": [code.value for code in Code]},
            "message": {"type": "string"},
            "details": {"type": "array", "items": _single_type("ErrorDetail")},
        },
        "required": ["code"],
    }
    end = {
        "type": "object",
        "description": "The last message of a stream; without `error` it ended well.",
        "properties": {"error": _single_type("Error"), "metadata": {"type": "object"}},
    }
    return {"Error": error, "ErrorDetail": detail, "ErrorInfo": info, "EndStream": end}


def document(files: Iterable[FileDescriptorProto]) -> Schema:
    """The whole document."""
    ours = [file for file in files if file.package == "hubbub.v1"]
    health = FileDescriptorProto()
    health_pb2.DESCRIPTOR.CopyToProto(health)
    about = next(Comments(file).of(file.PACKAGE_FIELD_NUMBER) for file in ours if file.name == PACKAGE)
    tags = [
        {"name": service.name, **Comments(file).of(file.SERVICE_FIELD_NUMBER, at)}
        for file in ours
        for at, service in enumerate(file.service)
        if not all(method.client_streaming for method in service.method)
    ]
    open_to_all = {path: {"post": item["post"] | {"security": []}} for path, item in operations(health)}
    reasons = sorted(tomllib.loads(ERRORS.read_text(encoding="utf-8")))
    named = {name: schema for file in (*ours, health) for name, schema in schemas(file)}
    return {
        "openapi": "3.1.1",
        "info": {"title": "Hubbub", "version": "v1", **about},
        "servers": [{"url": "/"}],
        "security": [{BEARER: []}],
        "tags": [*tags, {"name": "Health", "description": "Whether the hub is well; needs no credential."}],
        "paths": {path: item for file in ours for path, item in operations(file)} | open_to_all,
        "components": {
            "schemas": named | WELL_KNOWN | errors(reasons),
            "responses": {
                "Error": {
                    "description": "What went wrong.",
                    "content": {"application/json": {"schema": _single_type("Error")}},
                }
            },
            "securitySchemes": {BEARER: {"type": "http", "scheme": "bearer"}},
        },
    }


if __name__ == "__main__":
    print(
        json.dumps(document(FileDescriptorSet.FromString(sys.stdin.buffer.read()).file), indent=1, ensure_ascii=False)
    )
