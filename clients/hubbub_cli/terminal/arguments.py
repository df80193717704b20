"""The arguments of a call: one JSON object, `key=value`, or a form that a person fills in."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from hubbub_cli.output.printer import note
from hubbub_cli.run.session import MAX_QUOTED_CHARS, Settings, Usage, parse_json_object
from hubbub_client.payload import as_object, as_objects
from hubbub_frontend import arguments
from hubbub_frontend.forms import fields

if TYPE_CHECKING:
    from hubbub_client.data.literals import CatalogKind
    from hubbub_client.hub import Hub

MAX_FILE_BYTES = 4 * 1024 * 1024
"""The longest value that is read from a file: as much as a message of the API may have."""

Kind = Literal["tool", "prompt"]
HELP = "Its arguments: KEY=VALUE as often as needed, or one JSON object."


def parse_without_schema(words: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the arguments if they need no schema: those of a JSON object, or {} for no words.

    None for words `key=value`, which a schema has to give types. Raises Usage.
    """
    if not words:
        return {}
    if arguments.are_key_values(words):
        return None
    if not words[0].lstrip().startswith(("{", "[")):
        raise Usage(f"{words[0][:MAX_QUOTED_CHARS]} is neither KEY=VALUE nor a JSON object")
    return parse_json_object(words[0], "arguments")


def parse_with_schema(words: Sequence[str], schema: object) -> dict[str, Any]:
    """Return the arguments that words `key=value` give, with values of the types that a schema wants. Raises Usage."""
    try:
        return arguments.parse_arguments(words, schema, read_file)
    except arguments.MistypedArgument as error:
        raise Usage(str(error)) from None


async def resolve_arguments(
    hub: "Hub", settings: Settings, kind: Kind, server: str, name: str, words: Sequence[str] | None, *, form: bool
) -> dict[str, Any]:
    """Return the arguments of a tool or prompt, from the command's words and, at a terminal, from the person.

    A JSON object is taken as it is. KEY=VALUE is read by the schema; then the person is asked for required arguments
    that are missing, and with `form` for all. Raises Usage, HubbubError if the schema is needed and not known, and
    Exit if the person leaves the form.
    """
    if form and not settings.interactive:
        raise Usage("a form needs a terminal; give KEY=VALUE, or one JSON object")
    values = parse_without_schema(words)
    # An object is complete, and without a terminal nobody can be asked: so no schema is needed.
    if values is not None and not form and (words or not settings.interactive):
        return values
    from hubbub_client.errors import HubbubError

    try:
        schema = await find_schema(hub, settings, kind, server, name)
    except HubbubError as error:
        if values is not None and not form:
            return values  # no arguments; when the call is sent, the hub says what is wrong
        if error.reason == "SERVER_NOT_CONNECTED":
            error.add_note("until then, give the arguments as one JSON object")
        raise
    if values is None:
        values = parse_with_schema(words or (), schema)
    missing_fields = arguments.missing_fields(values, schema)
    fields_to_ask = fields(schema) if form else missing_fields
    if not fields_to_ask:
        return values
    if not settings.interactive:
        names = ", ".join(field.name for field in missing_fields)
        show_command = ("catalog", "show", server, name, *(("--kind", kind) if kind != "tool" else ()))
        raise Usage(f"{name} also needs {names}; `{settings.command(*show_command)}` shows them all")
    from hubbub_cli.terminal.answer import FormLeft, fill_in_form  # imported late, since it imports anyio

    note(f"{server}: {name}; Enter takes what is in brackets, !c calls nothing")
    try:
        return await fill_in_form(fields_to_ask, values, {})
    except (EOFError, FormLeft):
        note(f"{name} was not called: the form was left")
        raise typer.Exit(1) from None


async def find_schema(hub: "Hub", settings: Settings, kind: Kind, server: str, name: str) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, or one made of a prompt's arguments. Raises HubbubError."""
    mcp_object = await find_entry(hub, settings, kind, server, name)
    if kind == "tool":
        return dict(as_object(mcp_object.get("inputSchema")))
    definitions = [each for each in as_objects(mcp_object.get("arguments")) if isinstance(each.get("name"), str)]
    return {
        "properties": {
            each["name"]: {"type": "string", "description": each.get("description")} for each in definitions
        },
        "required": [each["name"] for each in definitions if each.get("required") is True],
    }


async def find_entry(hub: "Hub", settings: Settings, kind: "CatalogKind", server: str, name: str) -> Any:
    """Return the MCP object of a tool, prompt, resource, template or skill. Raises NotFound, FailedPrecondition."""
    from hubbub_client.errors import FailedPrecondition, NotFound

    entries, lists = await hub.catalog.read(kind, server)
    for entry in entries:
        mcp_object = as_object(entry.object)
        if name in (mcp_object.get("name"), mcp_object.get("uri"), mcp_object.get("uriTemplate")):
            return mcp_object
    if any(each.freshness == "unknown" for each in lists):
        raise FailedPrecondition(
            f"what {server} offers has not been fetched yet: is it connected?",
            reason="SERVER_NOT_CONNECTED",
            metadata={"server": server},
        )
    raise NotFound(
        f"{server} has no {kind} {name!r}; `{settings.command('catalog', f'{kind}s', '--server', server)}` lists them",
        reason=f"{kind.upper()}_NOT_FOUND" if kind != "template" else "RESOURCE_NOT_FOUND",
        metadata={"server": server, kind: name},
    )


def read_file(path: str) -> str:
    """Return the text of a file that `@PATH` names. Raises ValueError, which says why there is none."""
    try:
        with Path(path).expanduser().open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except RuntimeError:
        raise ValueError(f"{path} cannot be read: there is no such home directory") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError(f"{path} has more than {MAX_FILE_BYTES // 1024**2} MiB")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
