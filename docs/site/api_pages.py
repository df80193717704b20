"""The pages about the API in the site: one for each file of the protos, with its service, messages and comments."""

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files as resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

from hubbub.v1 import options_pb2

PROTOS = Path(__file__).resolve().parents[2] / "protos"
PACKAGE = "hubbub.v1"
KINDS = "The names in capitals are reasons or statuses that an RPC may end with: see [errors](../errors.md).\n"

Field = FieldDescriptorProto
LocationPath = tuple[int, ...]
"""Where an element stands in a file: numbers of fields and indexes (descriptor.proto, SourceCodeInfo.Location)."""


def read_protos() -> Sequence[FileDescriptorProto]:
    """The files of the API, with their comments."""
    names = sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / "hubbub/v1").glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "api.binpb"
        known = resources("grpc_tools") / "_proto"
        words = ["protoc", "-I", str(PROTOS), "-I", str(known), "--include_source_info", f"--descriptor_set_out={out}"]
        if protoc.main([*words, *names]) != 0:
            sys.exit("the protos cannot be read")
        return FileDescriptorSet.FromString(out.read_bytes()).file


class Page:
    """The page of one file."""

    def __init__(self, file: FileDescriptorProto, page_of: dict[str, str]) -> None:
        self._file = file
        self._page_of = page_of
        self._comments = {
            tuple(location.path): location.leading_comments or location.trailing_comments
            for location in file.source_code_info.location
        }

    def render(self) -> str:
        """The whole page."""
        return "\n".join([*self._lines()]).rstrip() + "\n"

    def summary(self) -> str:
        """What the page is of, in a sentence."""
        return self._comment((6, 0)) if self._file.service else self._describe_shared()

    def conventions(self) -> str:
        """What holds for the whole API: the comment of its package."""
        comment = self._comment((2,)).partition(":\n")[2].replace("docs/access.md", "[access](../access.md)")
        return re.sub(r"^  ", "", comment, flags=re.MULTILINE)

    def _describe_shared(self) -> str:
        return "Messages that several services share." if self._file.message_type else "Options of fields."

    def _comment(self, path: LocationPath, *, row: bool = False) -> str:
        lines = [line.removeprefix(" ") for line in self._comments.get(path, "").strip("\n").split("\n")]
        comment = "\n".join(lines).strip()
        return re.sub(r"\s+", " ", comment).replace("|", "\\|") if row else comment

    def _lines(self) -> Iterator[str]:
        title = self._file.service[0].name if self._file.service else page_name(self._file).capitalize()
        yield f"# {title}\n"
        if not self._file.service:
            yield f"{self.summary()}\n"
        for index, service in enumerate(self._file.service):
            yield from self._service(service, (6, index))
        if self._file.message_type:
            yield "## Messages\n"
        for index, message in enumerate(self._file.message_type):
            yield from self._message(message, message.name, (4, index))
        if self._file.enum_type:
            yield "## Enums\n"
        for index, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, enum.name, (5, index))
        yield from self._extensions()

    def _service(self, service: ServiceDescriptorProto, path: LocationPath) -> Iterator[str]:
        yield f"{self._comment(path)}\n"
        yield f"Over Connect it is at `/{PACKAGE}.{service.name}/METHOD` ([connect.md](../connect.md)). {KINDS}"
        yield "## RPCs\n"
        for index, method in enumerate(service.method):
            request_type = ("stream of " if method.client_streaming else "") + self._link(method.input_type)
            response_type = ("stream of " if method.server_streaming else "") + self._link(method.output_type)
            yield f"### {service.name}.{method.name}\n"
            yield f"{self._comment((*path, 2, index))}\n"
            yield f"{request_type} → {response_type}\n"

    def _message(self, message: DescriptorProto, name: str, path: LocationPath) -> Iterator[str]:
        yield f"### {name}\n"
        if comment := self._comment(path):
            yield f"{comment}\n"
        maps = {f"{name}.{inner.name}": inner for inner in message.nested_type if inner.options.map_entry}
        if message.field:
            yield "| Field | Type | What it says |\n|---|---|---|"
            for index, field in enumerate(message.field):
                description = self._describe_field(message, field, (*path, 2, index))
                yield f"| `{field.name}` | {self._field_type(field, maps)} | {description} |"
            yield ""
        elif not comment:
            yield "It has no fields.\n"
        for index, inner in enumerate(message.nested_type):
            if not inner.options.map_entry:
                yield from self._message(inner, f"{name}.{inner.name}", (*path, 3, index))
        for index, enum in enumerate(message.enum_type):
            yield from self._enum(enum, f"{name}.{enum.name}", (*path, 4, index))

    def _describe_field(self, message: DescriptorProto, field: FieldDescriptorProto, path: LocationPath) -> str:
        comment = self._comment(path, row=True)
        if field.HasField("oneof_index") and not field.proto3_optional:
            comment += f" *One of `{message.oneof_decl[field.oneof_index].name}`.*"
        if key := field.options.Extensions[options_pb2.config_key]:
            comment += f" In a configuration file: `{key}`."
        return comment.strip()

    def _field_type(self, field: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> str:
        if (entry := maps.get(field.type_name.removeprefix(f".{PACKAGE}."))) is not None:
            return f"map of {self._type_name(entry.field[0])} to {self._type_name(entry.field[1])}"
        many = "list of " if field.label == Field.LABEL_REPEATED else ""
        return many + self._type_name(field) + (", may be unset" if field.proto3_optional else "")

    def _type_name(self, field: FieldDescriptorProto) -> str:
        if field.type_name:
            return self._link(field.type_name)
        if field.options.Extensions[options_pb2.json_document]:
            return "JSON, as bytes"
        return Field.Type.Name(field.type).removeprefix("TYPE_").lower()

    def _link(self, name: str) -> str:
        short = name.removeprefix(f".{PACKAGE}.")
        if short == name:
            return f"`{name.removeprefix('.')}`"
        page = self._page_of[short.partition(".")[0]]
        return f"[{short}]({'' if page == page_name(self._file) else f'{page}.md'}#{short.replace('.', '').lower()})"

    def _enum(self, enum: EnumDescriptorProto, name: str, path: LocationPath) -> Iterator[str]:
        yield f"### {name}\n"
        if comment := self._comment(path):
            yield f"{comment}\n"
        yield "| Value | What it says |\n|---|---|"
        for index, value in enumerate(enum.value):
            yield f"| `{value.name}` | {self._comment((*path, 2, index), row=True)} |"
        yield ""

    def _extensions(self) -> Iterator[str]:
        if self._file.extension:
            yield "## Options\n\n| Option | Of | Type | What it says |\n|---|---|---|---|"
        for index, each in enumerate(self._file.extension):
            of = each.extendee.removeprefix(".")
            yield f"| `{each.name}` | `{of}` | {self._type_name(each)} | {self._comment((7, index), row=True)} |"


def page_name(file: FileDescriptorProto) -> str:
    return Path(file.name).stem


def render_index(files: Iterable[FileDescriptorProto], pages: dict[str, Page]) -> str:
    """The page that leads to all others."""
    rows = [
        f"| [{file.service[0].name if file.service else page_name(file).capitalize()}]({page_name(file)}.md) |"
        f" {pages[page_name(file)].summary().partition(chr(10) * 2)[0].replace(chr(10), ' ')} |"
        for file in sorted(files, key=lambda file: (not file.service, page_name(file)))
    ]
    return (
        """# The API

The package `hubbub.v1`, as the protos define it (`protos/hubbub/v1`). It only gains: what is here
stays. [Connect](../connect.md) describes the same API as JSON over HTTP, and a hub that serves Connect has it as
OpenAPI at `/openapi.json`.

| Page | What it has |
|---|---|
"""
        + "\n".join(rows)
        + """


## What holds everywhere

"""
        + pages["common"].conventions()
        + "\n"
    )


def render_pages() -> dict[str, str]:
    """The text of each page by its name."""
    files = [file for file in read_protos() if file.package == PACKAGE]
    where = {each.name: page_name(file) for file in files for each in (*file.message_type, *file.enum_type)}
    pages = {page_name(file): Page(file, where) for file in files}
    return {"README.md": render_index(files, pages), **{f"{name}.md": page.render() for name, page in pages.items()}}
