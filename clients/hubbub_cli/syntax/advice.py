"""A second look at what went wrong: what was perhaps meant, and the next command to type.

It is for people: with `--json` an error stays as it is. It only adds to an error, as notes (PEP 678), and asks the hub
for at most LIMIT_S. It never replaces or hides the error.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hubbub_cli.run.session import run_in_loop
from hubbub_cli.syntax.usage import add_notes, find_close_names, format_did_you_mean
from hubbub_client.payload import as_list, as_object, as_objects

if TYPE_CHECKING:
    from hubbub_cli.run.session import Settings
    from hubbub_client.data.literals import CatalogKind
    from hubbub_client.data.records import Record
    from hubbub_client.hub import Hub
    from hubbub_client.services.catalog import CatalogEntry

T = TypeVar("T")

ARGS_PLACEHOLDER = 'args = ["..."]'
"""What the hub's advice has for the arguments of a command that it does not start; they may be secret."""

LIMIT_S = 3.0
MAX_RECORDS = 1000
"""Records that are looked at, the newest first."""
MAX_NAMED = 20
"""The most arguments that are listed."""


@dataclass(frozen=True, slots=True)
class Noun:
    """Something that has a name or an id: what it is called in an error, and how to list it."""

    key: str
    """In the metadata of the error."""
    lister: str
    """The command that lists them."""
    records: "Callable[[Hub], Awaitable[Sequence[Record]]]"

    @staticmethod
    def get_name(record: Any) -> str:
        """Return the name of a record, or its id if it has none."""
        return record.name if hasattr(record, "name") else record.id


async def _list_members(hub: "Hub") -> "Sequence[Record]":
    """Return the members of the fleet."""
    return (await hub.fleet.status()).members


NOUNS = {
    "APPROVAL_NOT_FOUND": Noun("approval", "approvals list", lambda hub: hub.approvals.list(limit=MAX_RECORDS)),
    "SERVER_NOT_FOUND": Noun("server", "servers list", lambda hub: hub.servers.list(MAX_RECORDS)),
    "CALL_NOT_FOUND": Noun("call", "calls list", lambda hub: hub.calls.list(limit=MAX_RECORDS)),
    "REQUEST_NOT_FOUND": Noun("request", "inbox list", lambda hub: hub.inbox.list(limit=MAX_RECORDS)),
    "MEMBER_NOT_FOUND": Noun("member", "fleet status", _list_members),
    "TASK_NOT_FOUND": Noun("task", "tasks list", lambda hub: hub.tasks.list(limit=MAX_RECORDS)),
    "TOKEN_NOT_FOUND": Noun("token", "tokens list", lambda hub: hub.tokens.list(MAX_RECORDS)),
}

# Reasons that say of a command's tool, prompt or resource that the server does not have it.
MISSING_IN_CATALOG = ("PROMPT_NOT_FOUND", "RESOURCE_NOT_FOUND", "TOOL_NOT_FOUND")

# What to type next, by the reason of an error, after a command if it depends on that. Names in braces are of the
# error's metadata, or parameters of the command.
NEXT_COMMANDS = {
    "answer INVALID_ARGUMENT": "inbox show {id_}",
    "open NO_PAGE": "inbox answer {id_}",
    "ALREADY_ANSWERED": "inbox list --state open",
    "ALREADY_APPROVED": "inbox show {id_}",
    "ARGUMENTS_CHANGED": "inbox show {id_}",
    "AUTHENTICATION_FAILED": "inbox list --state open",
    "CALL_IN_PROGRESS": "calls watch {call}",
    "CALL_TIMEOUT": "logs {server}",
    "CONFIG_REJECTED": "doctor",
    "COMMAND_NOT_FOUND": "doctor",
    "CONNECTION_LOST": "logs {server}",
    "HANDSHAKE_FAILED": "doctor",
    "HUB_UNREACHABLE": "doctor",
    "MEMBER_NOT_LIVE": "fleet status",
    "NAMING_NOT_ALLOWED": "whoami",
    "NOT_AN_APPROVER": "inbox show {id_}",
    "OWNER_CHANGING": "fleet status",
    "PERMISSION_DENIED": "whoami",
    "QUEUE_FULL": "queue {server}",
    "REQUEST_CLOSED": "inbox list --state open",
    "REQUEST_EXPIRED": "inbox list --state open",
    "REQUEST_WITHDRAWN": "inbox list --state open",
    "SERVER_DISCONNECTED": "servers connect {server}",
    "SERVER_NOT_CONNECTED": "servers connect {server}",
    "STORE_UNAVAILABLE": "doctor",
    "TASK_NOT_FINISHED": "tasks watch",
    "TOKEN_INVALID": "doctor",
    "TOKEN_MISSING": "doctor",
    "UNAUTHENTICATED": "doctor",
}


def ask_hub(ctx: Any, work: "Callable[[Hub], Awaitable[T]]") -> T | None:
    """Return the result of `work` at the hub; None if the hub refuses, or does not answer within LIMIT_S."""
    from hubbub_client.errors import HubbubError

    async def connect_and_work() -> T:
        """Return the result of `work`, within LIMIT_S from the beginning of the connection."""
        async with asyncio.timeout(LIMIT_S), ctx.obj.connect(patient=False) as hub:
            return await work(hub)

    try:
        return run_in_loop(ctx, connect_and_work())
    except (HubbubError, TimeoutError, OSError):
        return None


def add_advice(ctx: Any, error: Any) -> None:
    """Add to an error of the hub what was perhaps meant, and the command to type next. With `--json` nothing is added.

    For this the hub may be asked again, for LIMIT_S at most.
    """
    settings: Settings = ctx.obj
    if settings.json:
        return
    if noun := NOUNS.get(error.reason):
        wrong_name = str(error.metadata.get(noun.key, ""))
        records = ask_hub(ctx, noun.records) or ()
        near_names = find_close_names(wrong_name, map(noun.get_name, records))
        add_notes(error, format_did_you_mean(near_names), f"all of them: {settings.command(*noun.lister.split())}")
        return
    add_notes(error, _describe_setting(ctx, error))
    if next_command := NEXT_COMMANDS.get(f"{ctx.info_name} {error.reason}") or NEXT_COMMANDS.get(error.reason):
        values = {**_select_text_params(ctx.params), **error.metadata}
        with suppress(KeyError):  # a command whose names are not known is not advised
            add_notes(error, f"next: {settings.command(*(word.format_map(values) for word in next_command.split()))}")
    _advise_on_catalog(
        ctx, lambda note: add_notes(error, note), error.message if error.reason in MISSING_IN_CATALOG else ""
    )


def advise_on_failed_call(ctx: Any) -> None:
    """Print, after a call whose tool reports an error, what the hub's catalog says of the tool and its arguments.

    Nothing is printed with `--json`, or if the catalog has the tool and the arguments.
    """
    from hubbub_cli.output.printer import note

    if not ctx.obj.json:
        _advise_on_catalog(ctx, note)


def _describe_setting(ctx: Any, error: Any) -> str:
    """Return the setting that the hub names in an error as the one that would allow a server.

    The arguments of the server's command, which the hub leaves out, are those that were typed. Empty if the error
    names no setting.
    """
    toml, file = error.metadata.get("toml"), error.metadata.get("file", "the hub's configuration file")
    if not toml:
        return ""
    text_before, mark, text_after = toml.rpartition(ARGS_PLACEHOLDER)
    if mark and (command := ctx.params.get("command")):
        args = ", ".join(json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f") for word in command[1:])
        toml = f"{text_before}args = [{args}]{text_after}"
    text = "\n".join(f"  {line}" for line in toml.splitlines())
    return f"to allow it, have this in {file}, then `hubbub reload`:\n{text}"


def _select_text_params(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of a command that are texts, since only these can be words of another command."""
    return {name: value for name, value in params.items() if isinstance(value, str)}


# By command: the kind of what it uses, and its parameter that names it. `catalog show` has the kind as a parameter.
CATALOG_PARAMS: "dict[str, tuple[CatalogKind, str]]" = {
    "call": ("tool", "tool"),
    "prompt": ("prompt", "name"),
    "read": ("resource", "uri"),
    "show": ("tool", "name"),
    "subscribe": ("resource", "uri"),
}


def _advise_on_catalog(ctx: Any, print_advice: Callable[[str], None], earlier_message: str = "") -> None:
    """Print what the catalog says of the tool, prompt or resource that a failed command has named.

    If its server has none of this name, similar names follow; else what is wrong with the arguments. `earlier_message`
    is the text of an error which says already that it is missing; empty if there is none.
    """
    if ctx.info_name not in CATALOG_PARAMS or "server" not in ctx.params:
        return
    kind, name_param = CATALOG_PARAMS[ctx.info_name]
    kind = ctx.params.get("kind") or kind
    server, name = ctx.params["server"], ctx.params.get(name_param)

    async def read_entries(hub: "Hub") -> "Sequence[CatalogEntry]":
        """Return the entries of this kind that the server has in the hub's catalog."""
        return (await hub.catalog.read(kind, server))[0]

    entries = ask_hub(ctx, read_entries)
    if entries is not None and not entries and earlier_message:
        print_advice(
            f"it lists no {kind}s, as a server that was never connected: {ctx.obj.command('servers', 'get', server)}"
        )
    if not entries or not isinstance(name, str):
        return
    by_uri = kind in ("resource", "template", "skill")
    entries_by_name = {(entry.uri if by_uri else None) or entry.name: entry for entry in entries}
    if name in entries_by_name:
        if "words" in ctx.params:
            _advise_on_arguments(
                _find_argument_names(ctx.params["words"]),
                _find_known_arguments(kind, entries_by_name[name]),
                print_advice,
            )
        return
    if not earlier_message:  # a server may have more resources than it lists
        print_advice(f"{server} does not list {name}" if kind == "resource" else f"{server} has no {kind} {name!r}")
    if near := format_did_you_mean(find_close_names(name, entries_by_name)):
        print_advice(near)
    listing = ctx.obj.command("catalog", f"{kind}s", "--server", server)
    if listing not in earlier_message:
        print_advice(f"all of them: {listing}")


def _advise_on_arguments(
    argument_names: Sequence[str], known_arguments: Mapping[str, bool], print_advice: Callable[[str], None]
) -> None:
    """Print which given arguments are unknown, and which required ones are missing.

    `known` has the names of all arguments, each with whether it is required.
    """
    for name in argument_names:
        if known_arguments and name not in known_arguments:
            suggestion = (
                format_did_you_mean(find_close_names(name, known_arguments))
                or f"it has {', '.join(list(known_arguments)[:MAX_NAMED])}"
            )
            print_advice(f"there is no argument {name!r}; {suggestion}")
    if missing := [name for name, required in known_arguments.items() if required and name not in argument_names]:
        print_advice(f"required and not given: {', '.join(missing)}")


def _find_argument_names(arguments: object) -> list[str]:
    """Return the names in the arguments of a command line: of a JSON object, or of words NAME=VALUE.

    Words that are neither are skipped.
    """
    words = [arguments] if isinstance(arguments, str) else cast("Sequence[Any]", arguments or ())
    names: list[str] = []
    for word in map(str, words):
        if word.lstrip().startswith("{"):
            try:
                names += as_object(json.loads(word))
            except ValueError:
                continue
        elif "=" in word:
            names.append(word.partition("=")[0].rstrip(":"))
    return names


def _find_known_arguments(kind: str, entry: "CatalogEntry") -> dict[str, bool]:
    """Return the names of the arguments that a tool or prompt has, each with whether it is required."""
    if kind == "prompt":
        listed = as_objects(as_object(entry.object).get("arguments"))
        return {str(each["name"]): bool(each.get("required")) for each in listed if "name" in each}
    schema = as_object(as_object(entry.object).get("inputSchema"))
    required = as_list(schema.get("required"))
    return {name: name in required for name in as_object(schema.get("properties"))}
