"""What a hub and its servers say is shown at a terminal, and steers none of it."""

import asyncio
import io
import json
import os
import sys
from typing import Any
from unittest.mock import patch

import anyio
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from hubbub_cli.run import exit_status
from hubbub_shared.legible import clean, escape_json, is_clean

from ..command_tree import whole
from .conftest import SERVICES, Refusal

# A title, a colour, a reset, the one-byte CSI, backspaces, turned text, nothing at all, letters of a tag.
TRICK = "\x1b]0;EVIL\x07\x1b[31mRED\x1bc\x9b2J\b\b\b\u202eTURNED\u200b\U000e0041\U000e0042\r"
DEPTH = 5
# These serve, start a hub's neighbour, or write files; what they print of others is that of a test of their own.
# `explain` lists all codes, and asks no hub.
ELSEWHERE = {"explain", "web", "tui", "certs", "agent", "acp", "mcp", "up", "down", "service", "init", "config", "copy"}
VALUES = {"json": "{}", "roots": "[]", "action": "show", "level": "debug", "request": "x"}


def hostile(kind: Descriptor, depth: int = DEPTH) -> Any:
    """A message whose every text says it, JSON included."""
    made = GetMessageClass(kind)()
    for field in kind.fields:
        if field.message_type and field.message_type.GetOptions().map_entry:
            getattr(made, field.name)[TRICK] = TRICK
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth and "Timestamp" not in field.message_type.name:
                inner = hostile(field.message_type, depth - 1)
                held = getattr(made, field.name)
                held.append(inner) if field.is_repeated else held.CopyFrom(inner)
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            if field.name == "next_page_token":
                continue
            value = TRICK if field.type == FieldDescriptor.TYPE_STRING else JSON
            getattr(made, field.name).append(value) if field.is_repeated else setattr(made, field.name, value)
        elif field.type == FieldDescriptor.TYPE_ENUM and not field.is_repeated:
            setattr(made, field.name, 1)
    return made


def _json() -> bytes:
    schema = {"type": "object", "properties": {TRICK: {"type": "string", "title": TRICK, "description": TRICK}}}
    content = [{"type": "text", "text": TRICK}, {"type": "resource_link", "uri": TRICK, "name": TRICK}]
    document = {
        "message": TRICK, "name": TRICK, "uri": TRICK, "url": TRICK, "title": TRICK, "description": TRICK,
        "requestedSchema": schema, "content": content, TRICK: [TRICK, {TRICK: TRICK}], "data": TRICK,
        "messages": [{"role": "user", "content": content[0]}], "contents": [{"uri": TRICK, "text": TRICK}],
    }  # fmt: skip
    return json.dumps(document, ensure_ascii=False).encode()


JSON = _json()
OUTPUTS = {
    method.name: method.output_type
    for messages, _, name in SERVICES
    for method in messages.DESCRIPTOR.services_by_name[name].methods
}


def commands(command: Any, path: tuple[str, ...] = ()) -> list[list[str]]:
    """Each command of the tree, with something for each argument that it must have."""
    inner = getattr(command, "commands", None)
    if inner:
        return [words for name, it in inner.items() if name not in ELSEWHERE for words in commands(it, (*path, name))]
    words = list(path)
    for parameter in command.params:
        if getattr(parameter, "required", False):
            value = VALUES.get(parameter.name, "x")
            words += [value] if not parameter.opts[0].startswith("-") else [parameter.opts[0], value]
        elif parameter.name == "timeout":
            words += ["--timeout", "1"]
    return [words]


ROOT = whole()
COMMANDS = commands(ROOT)


class Screen(io.StringIO):
    """A terminal, as a command sees it."""

    def isatty(self) -> bool:
        return True


class Nobody(io.StringIO):
    """A stdin at which nobody sits."""

    def isatty(self) -> bool:
        return False


def shown(words: list[str], data_dir: Any) -> str:
    """All that a command shows at a terminal without colours."""
    screen = Screen()
    words = ["--data-dir", str(data_dir), *words]
    environ = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"}
    with (
        patch.dict(os.environ, environ, clear=True),
        patch.object(sys, "stdin", Nobody()),
        patch.object(sys, "stdout", screen),
        patch.object(sys, "stderr", screen),
    ):
        try:
            ROOT.main(args=words, standalone_mode=False, prog_name="hubbub")
        except BaseException as error:
            exit_status.report_error(error, as_json="--json" in words)
    return screen.getvalue()


def scripted(hub: Any, *, refuses: bool) -> None:
    """Has the hub say it in every answer, and at the end of each watch."""

    def refusal() -> Refusal:
        return Refusal("NOT_FOUND", TRICK, TRICK, {TRICK.encode("ascii", "ignore").decode(): TRICK}, ((TRICK, TRICK),))

    for name, kind in OUTPUTS.items():

        def reply(_: Any, kind: Any = kind) -> Any:
            if refuses:
                raise refusal()
            return hostile(kind)

        async def stream(_: Any, kind: Any = kind) -> Any:
            yield hostile(kind)
            for field in (field for oneof in kind.oneofs for field in oneof.fields if field.message_type):
                step = hostile(kind)
                getattr(step, field.name).CopyFrom(hostile(field.message_type))
                yield step
            raise refusal()

        hub.replies[name] = reply
        hub.streams[name] = stream


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) > 40
    assert not is_clean(TRICK)


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["people", "json"])
@pytest.mark.parametrize("refuses", [False, True], ids=["answers", "refusals"])
async def test_nothing_that_a_hub_says_steers_the_terminal(hub: Any, refuses: bool, options: list[str]) -> None:
    scripted(hub, refuses=refuses)
    # A loop in another thread has closed: gRPC tells this one, which must not write on the screen.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    found: dict[str, str] = {}
    for words in COMMANDS:
        with anyio.fail_after(60):
            found[" ".join(words)] = await anyio.to_thread.run_sync(shown, [*options, *words], hub.data_dir)
    assert {words: text for words, text in found.items() if clean(text) != text} == {}
    assert {words: text for words, text in found.items() if "Traceback" in text or "INTERNAL" in text} == {}
    assert sum("EVIL" in text for text in found.values()) > len(COMMANDS) / 2


def test_escaped_json_has_the_same_value() -> None:
    document = json.dumps({TRICK: [TRICK, "\U000e0041é"]}, ensure_ascii=False)
    assert json.loads(escape_json(document)) == json.loads(document)
    assert is_clean(escape_json(document))
    assert "é" in escape_json(document)
